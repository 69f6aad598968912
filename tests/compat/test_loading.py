"""Where Hermes plugins are found and which one counts; exchanged while they run; and async from end to end."""

import asyncio
from pathlib import Path

import pytest

from alipes.config.settings import load
from alipes.plugins.discovery import wanted
from alipes.testing import call, open_agent
from tests.compat import walking
from tests.compat.diary import PLUGINS
from tests.compat.planting import module, plant
from tests.compat.test_endings_app import killed
from tests.e2e.program import Home
from tests.world.environment import LIMIT_S

pytestmark = pytest.mark.deadline(60)
HAIL = """
def register(ctx):
    ctx.register_tool("hail", "s", {"type": "object", "properties": {}}, lambda args: "hail from WHERE")
"""


def hailing(folder: Path, where: str) -> None:
    plant(folder, HAIL.replace("WHERE", where), about="description: hails\n")


def packaged(site: Path, where: str) -> None:
    (about := site / "hailers-1.0.dist-info").mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hailers\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[hermes_agent.plugins]\nhailer = hailers\n")
    (site / "hailers.py").write_text(HAIL.replace("WHERE", where))


def found(home: Path, settings: str = "", **more: str) -> str:
    """From where the loader would take it."""
    (home / "config.toml").write_text(f'model = "scripted"\n[plugins]\n{settings}')
    known, _ = wanted(load(home, more))
    return ", ".join(each.source for each in known)


async def test_the_later_place_counts_and_the_operator_has_the_last_word(home, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    enabled = 'enabled = ["hailer"]\n'
    hailing(tmp_path / ".hermes" / "plugins" / "hailer", "the folder of the original")
    assert found(home, enabled) == "", "it is not looked for unasked"
    assert found(home, enabled + "import_hermes = true\n") == "~/.hermes/plugins"
    hailing(home / "plugins" / "hailer", "home")
    assert found(home, enabled + "import_hermes = true\n") == "home"
    hailing(tmp_path / ".alipes" / "plugins" / "hailer", "the project")
    assert found(home, enabled) == "home", "a project's own only where that is allowed"
    assert found(home, enabled + "project = true\n") == "project"
    assert found(home) == "", "nothing is loaded that was not asked for"
    assert found(home, enabled + 'disabled = ["hailer"]\n') == ""
    assert found(home, enabled, ALIPES_SAFE="1") == ""
    packaged(tmp_path / "site", "a package")
    path = f"{tmp_path / 'site'}:{Home(home).environ()['PYTHONPATH']}"
    (home / "config.toml").write_text(f'model = "scripted"\n[plugins]\n{enabled}project = true\n')
    for words, said in ((), "hail from a package"), (("--safe",), "there is no tool named hail"):
        done = await Home(home).run("ask", *words, "!call hail {}", PYTHONPATH=path)
        assert done.status == 0 and said in done.out, done


async def test_a_plugin_is_exchanged_and_running_turns_finish_with_the_code_they_began_with(home, folder):
    source = """
    import asyncio
    begun, go = asyncio.Event(), asyncio.Event()
    async def version(args):
        begun.set()
        await go.wait()
        return "version 1"
    def register(ctx):
        ctx.register_tool("version", "s", {"type": "object", "properties": {}}, version)
    """
    place = folder("changing", source)
    script = [call("version"), "old", call("version"), "new"]
    async with open_agent(home=home, plugins=[place], model=script) as agent:
        old = module("changing")
        running = await agent.start("which?")
        await old.begun.wait()
        (place / "__init__.py").write_text(
            (place / "__init__.py").read_text().replace("version 1", "version 2")
        )
        assert "is loaded anew" in (await agent.command("/plugins reload changing")).text
        old.go.set()
        assert (await running).result("version").text == "version 1"
        new = module("changing_2")
        assert new is not old
        new.go.set()
        assert (await agent.say("and now?")).result("version").text == "version 2"


@pytest.mark.parametrize("ending", ["answered", "/stop"])
async def test_async_callbacks_are_awaited_at_every_hook(home, diary, tmp_path, ending):
    source = (PLUGINS / "recorder" / "__init__.py").read_text()
    source = source.replace(
        "    def told(**kwargs):", "    async def told(**kwargs):\n        await asyncio.sleep(0)"
    )
    book = (PLUGINS / "recorder" / "book.py").read_text()
    recorder = plant(tmp_path / "sources" / "recorder", source, book_py=book)
    script = walking.way(ending)
    async with open_agent(home=home, plugins=[recorder], model=script, person="once") as agent:
        running = await agent.start("go the long way")
        if ending == "/stop":
            await diary.until("tool ponder")
            await agent.command("/stop")
        await running
        await agent.command("/new")
        await diary.until("on_session_reset")
    diary.check(ending)


async def test_a_call_that_was_under_way_when_the_process_was_killed_is_told_and_not_repeated(home, diary):
    await killed(home, diary, "tool", "tool ponder")
    (home / "hold").unlink()
    async with open_agent(home=home, plugins=[PLUGINS / "recorder"], model=["so be it"]) as agent:
        await diary.until("on_session_end")
        assert "tool ponder" not in diary.names, "nobody knows what it did, so it is not done again"
        told = diary.last("post_tool_call")
        assert (told["tool_name"], told["status"]) == ("ponder", "error")
        assert diary.last("on_session_end")["completed"] is True
        assert diary.names.index("post_tool_call") < diary.names.index("post_api_request")
        (asked,) = agent.model.requests
        assert asked.messages[-1].parts[0].outcome == "unknown"


async def test_plugins_that_wait_in_threads_keep_nobody_from_leaving(home, folder):
    source = """
    import time
    def slow(args):
        time.sleep(0.6)
        return "late"
    def register(ctx):
        ctx.register_tool("slow", "s", {"type": "object", "properties": {}}, slow)
    """
    async with open_agent(home=home, plugins=[folder("slow", source)], model=[call("slow"), "next"]) as agent:
        running = await agent.start("go")
        async with asyncio.timeout(LIMIT_S):
            await agent.model.asked()
            await asyncio.sleep(0.1)
        assert (await running.stop()).ending == "stopped"
        assert (await agent.say("and now?")).text == "next"
