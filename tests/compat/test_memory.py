"""A memory provider on a whole app: asked before a turn, reported of it once it was answered, and only then."""

import pytest

from alipes.kernel.errors import OutOfCredit
from alipes.testing import call, open_agent, stall
from tests.compat.chat_harness import open_chat
from tests.compat.hook_log import PLUGINS
from tests.compat.plugin_files import plugin_module
from tests.world.wait import until

POUCH, RECORDER = PLUGINS / "pouch", PLUGINS / "recorder"
pytestmark = pytest.mark.deadline(40)


def calls(what):
    return [each[1:] for each in plugin_module("pouch").calls if each[0] == what]


async def test_what_is_recalled_is_added_to_the_message_and_the_answered_turn_is_kept():
    script = [call("recall"), "with milk", "bye"]
    config = {"memory": {"recall_wait": 30}}
    async with open_agent(plugins=[POUCH], model=script, config=config) as agent:
        reply = await agent.say("tea?")
        assert reply.result("recall").text == '{"recalled": "recall"}'
        await until(lambda: calls("queue_prefetch"))
        first = agent.model.requests[0]
        assert "Ada likes tea." in first.messages[-1].text and first.messages[-1].role == "user"
        assert first.system.endswith("You have a pouch.") and "Ada likes" not in first.system
        assert calls("sync_turn") == [("tea?", "with milk")]
        await agent.say("thanks")
        assert "Ada likes tea." not in agent.model.requests[-1].messages[0].text
        assert len(calls("initialize")) == 1
        ((session, seen),) = calls("initialize")
        assert session and {"hermes_home", "platform"} <= set(seen)


async def test_turns_that_were_interrupted_or_failed_are_not_kept():
    waits = [stall(), stall()]
    script = [(waits[0], "never"), OutOfCredit("no"), (waits[1], "never"), "at last"]
    config = {"terminal": {"busy": "interrupt"}}
    async with open_agent(plugins=[POUCH], model=script, person="once", config=config) as agent:
        await agent.start("stopped")
        await waits[0].reached.wait()
        await agent.stop()
        assert (await agent.say("failed")).ending == "failed"
        await agent.start("superseded")
        await waits[1].reached.wait()
        assert (await agent.say("answered")).text == "at last"
        await until(lambda: calls("sync_turn"))
        await agent.wait_until_idle()
        assert calls("sync_turn") == [("answered", "at last")]


async def test_the_end_of_a_conversation_and_the_next_one_are_reported():
    async with open_agent(plugins=[POUCH], model=["one", "two"]) as agent:
        await agent.say("first")
        await until(lambda: calls("sync_turn"))
        await agent.command("/new")
        await until(lambda: calls("on_session_switch"))
        assert calls("on_session_end") == [(["first"],)]
        ((new, old, reset),) = calls("on_session_switch")
        assert reset is True and new != old == calls("initialize")[0][0]
        provider = plugin_module("pouch")
    assert provider.calls[-1] == ("shutdown",)


async def test_the_same_on_a_platform(home):
    waits = stall()
    async with open_chat(home, [(waits, "never"), "with milk"], POUCH) as chat:
        await chat.say("coffee")
        await waits.reached.wait()
        await chat.say("/stop")
        await chat.until("Stopped.")
        await chat.say("tea")
        await chat.until("with milk")
        await until(lambda: calls("sync_turn"))
        assert calls("sync_turn") == [("tea", "with milk")]


async def test_there_is_one_memory_at_a_time(folder, caplog):
    second = folder("second", (POUCH / "__init__.py").read_text().replace('"pouch"', '"second"'))
    async with open_agent(plugins=[POUCH, second], model=["one"]) as agent:
        await agent.say("first")
        await until(lambda: calls("sync_turn") or plugin_module("second").calls)
        mine, other = plugin_module("pouch").calls, plugin_module("second").calls
        assert bool(mine) != bool(other)  # plugins open side by side: any client that comes first keeps it
    assert f"{'pouch' if mine else 'second'} is already the memory provider" in caplog.text
