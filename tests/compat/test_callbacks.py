"""Callbacks that raise, hang and block: named, contained, and without effect on anybody else."""

import asyncio
import logging

import pytest

from alipes.kernel.turns import Notice
from alipes.testing import call, open_agent
from tests.compat import turn_scripts
from tests.compat.contract import KEYWORDS
from tests.compat.hook_log import PLUGINS
from tests.compat.plugin_files import plugin_module

pytestmark = pytest.mark.deadline(40)
RECORDER = PLUGINS / "recorder"
OBSERVED = [hook for hook in KEYWORDS if hook != "pre_tool_call"]
"""Those whose failure must change nothing; that of `pre_tool_call` closes the gate."""
RAISING = """
def broken(**kwargs):
    raise RuntimeError("a bug of mine")

async def broken_later(**kwargs):
    raise RuntimeError("a bug of mine")

def register(ctx):
    ctx.register_hook("HOOK", broken)
    ctx.register_hook("HOOK", broken_later)
"""
WAITING = """
import asyncio, threading, time
calls = []
begun = asyncio.Event()

async def wait(args):
    begun.set()
    await asyncio.sleep(600)

def here():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return "worker"
    return "loop"

def base(ctx):
    ctx.register_tool("wait", "t", {"type": "object", "properties": {}}, wait)
"""


@pytest.mark.parametrize("ending", ["answered", "/stop"])
async def test_callbacks_that_raise_at_every_hook_change_nothing_for_anybody(folder, home, hook_log, ending, caplog):
    """One plugin for each hook, loaded before the recorder: it must hear all the same, in the same order."""
    clumsy = [folder(f"clumsy_{hook}", RAISING.replace("HOOK", hook)) for hook in OBSERVED]
    async with open_agent(
        home=home, plugins=[*clumsy, RECORDER], model=turn_scripts.script_for(ending), person="once"
    ) as agent:
        running = await agent.start("go the long way")
        if ending == "/stop":
            await hook_log.until("tool ponder")
            await agent.command("/stop")
        reply = await running
        assert reply.ending == ("stopped" if ending == "/stop" else "answered")
        await agent.command("/new")
        await hook_log.until("on_session_reset")
        seen = set(hook_log.check(ending))
        facts = {each.name: each for each in agent.app.plugins.statuses()}
        assert facts["recorder"].state == "on" and facts["recorder"].strikes == 0
    for hook in seen & {*OBSERVED}:
        assert f"plugin clumsy_{hook} failed in {hook}: RuntimeError: a bug of mine" in caplog.text


async def test_a_callback_that_fails_three_times_is_silenced_and_the_user_is_notified(folder, home, hook_log):
    clumsy = folder("clumsy", RAISING.replace("HOOK", "pre_llm_call"))
    async with open_agent(home=home, plugins=[clumsy, RECORDER], model=["one", "two", "three"]) as agent:
        notes = []
        for text in ("one", "two", "three"):
            reply = await agent.say(text)
            assert reply.text == text
            notes += [each.text for each in reply.of(Notice)]
        assert sum("plugin clumsy failed in pre_llm_call" in each for each in notes) == 6, "two callbacks, three times"
        assert any("pre_llm_call of plugin clumsy is off after 3 failures" in each for each in notes)
        status = {each.name: each for each in agent.app.plugins.statuses()}["clumsy"]
        assert status.state == "on" and list(status.silenced) == ["pre_llm_call", "pre_llm_call #2"]
        assert "pre_llm_call is off after 3 failures" in (await agent.command("/plugins")).text
        assert "are forgotten" in (await agent.command("/plugins reset clumsy")).text
        assert "off after" not in (await agent.command("/plugins")).text
        assert hook_log.names.count("pre_llm_call") == 3


@pytest.mark.parametrize("kind", ["raises", "hangs", "swallows its cancellation", "hangs in a thread"])
async def test_a_stop_is_held_up_by_no_callback(folder, home, hook_log, kind, caplog):
    bodies = {
        "raises": "async def broken(**kw):\n    raise RuntimeError('mine')",
        "hangs": "async def broken(**kw):\n    await asyncio.sleep(600)",
        "swallows its cancellation": (
            "async def broken(**kw):\n    while True:\n        try:\n            await asyncio.sleep(600)\n"
            "        except asyncio.CancelledError:\n            pass"
        ),
        "hangs in a thread": "async def broken(**kw):\n    await asyncio.to_thread(time.sleep, 0.8)",
    }
    register = "def register(ctx):\n    base(ctx)\n    ctx.register_hook('agent_loop_stopped', broken)"
    source = "\n".join([WAITING, bodies[kind], register])
    config = {"plugins": {"deadlines": {"agent_loop_stopped": 0.3}}}
    known = {"home": home, "plugins": [folder("clumsy", source), RECORDER], "config": config}
    async with open_agent(**known, model=[call("wait"), "next"]) as agent:
        await agent.start("wait")
        await plugin_module("clumsy").begun.wait()
        assert (await agent.stop()).ending == "stopped"
        assert (await agent.say("and now?")).text == "next"
        assert hook_log.names.count("agent_loop_stopped") == 1
        while "plugin clumsy failed in agent_loop_stopped" not in caplog.text:  # at its deadline
            await asyncio.sleep(0.01)


async def test_a_hanging_callback_of_any_hook_ends_at_the_deadline_the_operator_named(folder):
    source = """
    import time
    def slow(**kw):
        time.sleep(0.7)
    def register(ctx):
        ctx.register_hook("pre_llm_call", slow)
    """
    config = {"plugins": {"deadlines": {"pre_llm_call": 0.2}}}
    async with open_agent(plugins=[folder("slow", source)], model=["on time"], config=config) as agent:
        reply = await agent.say("hello")
        assert reply.text == "on time"
        assert any("slow failed in pre_llm_call: took longer than 0.2 s" in each.text for each in reply.of(Notice))


async def test_a_plain_callback_that_blocks_the_loop_is_interrupted_and_runs_off_it_from_then_on(folder, caplog):
    source = f"""{WAITING}
def stopped(reason):
    calls.append(here())
    time.sleep(10**6 if len(calls) == 1 else 0.8)

def register(ctx):
    base(ctx)
    ctx.register_hook("agent_loop_stopped", stopped)
"""
    config = {"plugins": {"deadlines": {"agent_loop_stopped": 4.0}}}
    script = [call("wait"), call("wait"), "next"]
    async with open_agent(plugins=[folder("blocker", source)], model=script, config=config) as agent:
        plugin = plugin_module("blocker")
        with caplog.at_level(logging.WARNING):
            await agent.start("wait")
            await plugin.begun.wait()
            assert (await agent.stop()).ending == "stopped"
        named = [each.message for each in caplog.records if "interrupted at" in each.message]
        assert named[0].startswith("plugin blocker failed in agent_loop_stopped: blocked the event loop for")
        assert "(stopped)" in named[0], "with the place"
        assert {each.name: each.strikes for each in agent.app.plugins.statuses()} == {"blocker": 1}
        plugin.begun.clear()
        await agent.start("wait again")
        await plugin.begun.wait()
        assert (await agent.stop()).ending == "stopped"
        while len(plugin.calls) < 2:
            await asyncio.sleep(0.01)
        assert plugin.calls == ["loop", "worker"]
        assert (await agent.say("and now?")).text == "next"


async def test_tasks_that_a_stop_hook_begins_run_and_end_with_the_plugin(folder):
    source = f"""{WAITING}
def stopped(reason):
    async def tell():
        calls.append(("reported", reason))
        try:
            await asyncio.sleep(600)
        finally:
            calls.append("cleaned")
    asyncio.create_task(tell())
    asyncio.get_event_loop().call_soon(calls.append, "soon")

def register(ctx):
    base(ctx)
    ctx.register_hook("agent_loop_stopped", stopped)
"""
    async with open_agent(plugins=[folder("teller", source)], model=[call("wait"), "next"]) as agent:
        plugin = plugin_module("teller")
        await agent.start("wait")
        await plugin.begun.wait()
        await agent.stop()
        assert plugin.calls == [("reported", "user_stop"), "soon"] or plugin.calls == [
            "soon",
            ("reported", "user_stop"),
        ]
    assert plugin.calls[-1] == "cleaned"


async def test_an_unknown_hook_is_said_and_kept_and_the_plugin_continues(folder, caplog):
    source = """
    calls = []
    def register(ctx):
        global ctx_
        ctx_ = ctx
        ctx.register_hook("pre_tool_cal", lambda **kw: None)
        ctx.register_hook("on_session_start", lambda **kw: calls.append(1))
    """
    async with open_agent(plugins=[folder("hopeful", source)], model=["hi"]) as agent:
        await agent.say("hello")
        assert plugin_module("hopeful").calls == [1]
        assert list(plugin_module("hopeful").ctx_.uncalled) == ["pre_tool_cal"]
    assert "unknown hook pre_tool_cal. Did you mean pre_tool_call?" in caplog.text
