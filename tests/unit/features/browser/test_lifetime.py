"""How long the browser lives: started on first use, stopped at any point, ended with its scope or killed host."""

import asyncio
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("playwright.async_api", reason="playwright is not installed (make test)")

from alipes.kernel.errors import ToolError
from alipes.runtime.processes.process_tree import find_marked, open_orphan_guard
from tests.world.environment import LIMIT_S, ROOT, require
from tests.world.web_pages import open_browser_world

pytestmark = [pytest.mark.deadline(120), pytest.mark.service("chromium")]
STOPS = 20


@pytest.fixture(autouse=True)
def chromium():
    return require("chromium")


async def gone(owner):
    """Wait until no process of the browser is left."""
    while list(find_marked(owner)):
        await asyncio.sleep(0.02)


async def ended(world):
    while world.sessions.is_running:
        await asyncio.sleep(0.02)


async def test_nothing_runs_until_a_tool_is_used_and_nothing_after_the_scope(tmp_path):
    async with open_orphan_guard(tmp_path / "run") as guard:
        async with open_browser_world(str(tmp_path), keeper=guard) as world:
            assert not world.sessions.is_running and list(find_marked(guard.owner)) == []
            await world.show("<h1>here</h1>")
            assert "Starting the browser." in world.last.shown
            assert len(list(find_marked(guard.owner))) > 3
        await gone(guard.owner)
        assert not list((tmp_path / "run" / "children").glob("of-*/*")), "no profile of Chromium is left"


async def test_the_browser_ends_with_its_last_conversation_and_starts_again(tmp_path):
    async with open_orphan_guard(tmp_path / "run") as guard, open_browser_world(str(tmp_path), keeper=guard) as world:
        await world.show("<h1>one</h1>", session="s1")
        await world.show("<h1>two</h1>", session="s2")
        await world.sessions.session_left("s1")
        assert "two" in await world.run("snapshot", session="s2")
        await world.sessions.session_left("s2")
        await ended(world)
        await gone(guard.owner)
        assert "again" in await world.show("<h1>again</h1>")


async def test_idle_pages_are_closed_and_their_profile_is_kept(tmp_path):
    settings = {"idle": 1.0, "profile": "work"}
    async with open_browser_world(str(tmp_path), **settings) as world:
        await world.show("<script>document.cookie = 'login=ann; max-age=1000'; localStorage.theme = 'dark'</script>")
        await ended(world)
        file = Path(tmp_path, ".alipes", "browser", "work.json")
        assert b"login" in file.read_bytes() and stat.S_IMODE(file.stat().st_mode) == 0o600
        world.server.add("/who", "<p id=p></p><script>p.textContent = document.cookie + localStorage.theme</script>")
        assert "login=anndark" in await world.run("navigate", url=world.server.url("/who"))


async def test_a_killed_host_leaves_no_process(tmp_path):
    argv = [sys.executable, "-m", "tests.world.browser_host", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    host = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT, env=env)
    try:
        owner = int(await asyncio.to_thread(host.stdout.readline))
        commands = [Path(f"/proc/{each.pid}/cmdline").read_bytes() for each in find_marked(owner)]
        assert any(b"run-driver" in each for each in commands), "the driver is marked"
        assert any(b"--type=renderer" in each for each in commands), "so is every process of Chromium"
    finally:
        host.send_signal(signal.SIGKILL)
        await asyncio.to_thread(host.communicate)
    async with asyncio.timeout(LIMIT_S):
        await gone(owner)


async def test_a_stop_at_any_point_leaves_no_page_and_no_process(tmp_path):
    dice = random.Random(17)
    async with open_orphan_guard(tmp_path / "run") as guard, open_browser_world(str(tmp_path), keeper=guard) as world:

        async def slow(request):
            await asyncio.sleep(60)

        world.server.add("/slow", slow)
        for number in range(STOPS):
            longest = 1.5 if number % 4 == 0 else 0.4
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(dice.uniform(0, longest)):
                    await world.run("navigate", url=world.server.url("/slow"))
            if number % 4 == 3:
                async with asyncio.timeout(LIMIT_S):
                    await ended(world)
                    await gone(guard.owner)
        assert "alive" in await world.show("<h1>alive</h1>")
        assert len(world.sessions._sessions["s1"].context.browser.contexts) == 1
    await gone(guard.owner)


async def test_a_stop_while_a_page_loads_keeps_the_conversation_and_stops_loading(tmp_path):
    async with open_browser_world(str(tmp_path)) as world:
        loading, left = asyncio.Event(), asyncio.Event()

        async def slow(request):
            loading.set()
            try:
                await asyncio.sleep(60)
            finally:
                left.set()

        world.server.add("/slow", slow)
        await world.show("<h1>first</h1>")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(world.run("navigate", url=world.server.url("/slow")))
            await loading.wait()
            task.cancel()
        await left.wait()
        assert "first" in await world.run("snapshot")


async def test_a_browser_that_dies_is_reported_and_started_again(tmp_path):
    async with open_orphan_guard(tmp_path / "run") as guard, open_browser_world(str(tmp_path), keeper=guard) as world:
        await world.show("<h1>first</h1>")
        for each in find_marked(guard.owner):
            if b"--type=" not in (command := Path(f"/proc/{each.pid}/cmdline").read_bytes()) and b"chromium" in command:
                os.kill(each.pid, signal.SIGKILL)
        await ended(world)
        page = await world.show("<h1>second</h1>")
        assert "[the browser had ended by itself, so all pages were closed]" in page and "second" in page


async def test_a_page_that_never_loads_ends_with_the_time_limit(tmp_path):
    async with open_browser_world(str(tmp_path), timeout=1.0) as world:

        async def slow(request):
            await asyncio.sleep(60)

        world.server.add("/slow", slow)
        with pytest.raises(
            ToolError, match=r"loading http://127.0.0.1:\d+/slow took longer than 1 s \(browser.timeout\)"
        ):
            await world.run("navigate", url=world.server.url("/slow"))


async def test_a_chromium_that_cannot_start_is_explained(tmp_path):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho 'error: no display' >&2\nexit 1\n")
    broken.chmod(0o755)
    async with open_browser_world(str(tmp_path), executable=str(broken)) as world:
        with pytest.raises(ToolError, match=rf"{broken} could not be started: "):
            await world.show("<h1>never</h1>")
        assert not world.sessions.is_running


async def test_too_many_conversations_close_the_one_that_was_used_least(tmp_path):
    async with open_browser_world(str(tmp_path)) as world:
        world.sessions.max_sessions = 2
        for name in ("a", "b", "a", "c"):
            await world.show("<h1>here</h1>", session=name)
        assert sorted(world.sessions._sessions) == ["a", "c"]
