"""Where Hermes plugins are found and which one counts; exchanged while they run; and async from end to end."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from alipes.config.loader import load_settings
from alipes.plugins.discovery import enabled_plugins
from alipes.testing import call, open_agent
from tests.compat import turn_scripts
from tests.compat.hook_log import PLUGINS
from tests.compat.plugin_files import plugin_module, write_plugin
from tests.compat.test_endings_app import killed
from tests.e2e.program import Home
from tests.world.environment import LIMIT_S

pytestmark = pytest.mark.deadline(60)
HAIL = """
def register(ctx):
    ctx.register_tool("hail", "s", {"type": "object", "properties": {}}, lambda args: "hail from WHERE")
"""


def hailing(folder: Path, where: str) -> None:
    write_plugin(folder, HAIL.replace("WHERE", where), about="description: hails\n")


def packaged(site: Path, where: str) -> None:
    (about := site / "hailers-1.0.dist-info").mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hailers\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[hermes_agent.plugins]\nhailer = hailers\n")
    (site / "hailers.py").write_text(HAIL.replace("WHERE", where))


def found(home: Path, settings: str = "", **more: str) -> str:
    """From where the loader would take it."""
    (home / "config.toml").write_text(f'model = "scripted"\n[plugins]\n{settings}')
    known, _ = enabled_plugins(load_settings(home, more))
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
    for words, said in ((), "hail from a package"), (("--safe",), "no tool named hail"):
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
        old = plugin_module("changing")
        running = await agent.start("which?")
        await old.begun.wait()
        (place / "__init__.py").write_text((place / "__init__.py").read_text().replace("version 1", "version 2"))
        assert "was reloaded" in (await agent.command("/plugins reload changing")).text
        old.go.set()
        assert (await running).result("version").text == "version 1"
        new = plugin_module("changing_2")
        assert new is not old
        new.go.set()
        assert (await agent.say("and now?")).result("version").text == "version 2"


@pytest.mark.parametrize("file", ["__init__.py", "inside.py"])
async def test_reload_within_the_same_second_runs_the_new_code(home, folder, monkeypatch, file):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    source = """
    from .inside import version
    def answer(args):
        return f"outside 1, {version}"
    def register(ctx):
        ctx.register_tool("version", "s", {"type": "object", "properties": {}}, answer)
    """
    place = folder("changing", source, inside_py='version = "inside 1"\n')
    script = [call("version"), "old", call("version"), "new"]
    async with open_agent(home=home, plugins=[place], model=script) as agent:
        assert (await agent.say("which?")).result("version").text == "outside 1, inside 1"
        changed, before = place / file, (place / file).stat()
        changed.write_text(changed.read_text().replace("side 1", "side 2"))
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
        await agent.command("/plugins reload changing")
        expected = {"__init__.py": "outside 2, inside 1", "inside.py": "outside 1, inside 2"}[file]
        assert (await agent.say("and now?")).result("version").text == expected


@pytest.mark.parametrize("ending", ["answered", "/stop"])
async def test_async_callbacks_are_awaited_at_every_hook(home, hook_log, tmp_path, ending):
    source = (PLUGINS / "recorder" / "__init__.py").read_text()
    source = source.replace(
        "    def reported(**kwargs):", "    async def reported(**kwargs):\n        await asyncio.sleep(0)"
    )
    book = (PLUGINS / "recorder" / "book.py").read_text()
    recorder = write_plugin(tmp_path / "sources" / "recorder", source, book_py=book)
    script = turn_scripts.script_for(ending)
    async with open_agent(home=home, plugins=[recorder], model=script, person="once") as agent:
        running = await agent.start("go the long way")
        if ending == "/stop":
            await hook_log.until("tool ponder")
            await agent.command("/stop")
        await running
        await agent.command("/new")
        await hook_log.until("on_session_reset")
    hook_log.check(ending)


async def test_a_call_that_was_under_way_when_the_process_was_killed_is_reported_and_not_repeated(home, hook_log):
    await killed(home, hook_log, "tool", "tool ponder")
    (home / "hold").unlink()
    async with open_agent(home=home, plugins=[PLUGINS / "recorder"], model=["so be it"]) as agent:
        await hook_log.until("on_session_end")
        assert "tool ponder" not in hook_log.names, "nobody knows what it did, so it is not done again"
        seen = hook_log.last("post_tool_call")
        assert (seen["tool_name"], seen["status"]) == ("ponder", "error")
        assert hook_log.last("on_session_end")["completed"] is True
        assert hook_log.names.index("post_tool_call") < hook_log.names.index("post_api_request")
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
            await agent.model.wait_for_request()
            await asyncio.sleep(0.1)
        assert (await running.stop()).ending == "stopped"
        assert (await agent.say("and now?")).text == "next"
