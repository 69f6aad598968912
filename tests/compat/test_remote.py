"""Tools that a client brings over a socket: they come, are called, answered, cut off and go while all runs on."""

import shutil
from contextlib import AsyncExitStack

import pytest

from alipes.testing import call, open_agent
from tests.compat.chat_harness import open_chat
from tests.compat.hook_log import PLUGINS
from tests.compat.remote_client import open_client
from tests.e2e.program import Home
from tests.world.model_server import Call, Calls, ModelServer, Say
from tests.world.terminal_process import CTRL_C, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(60)
REMOTE, RECORDER = PLUGINS / "remote", PLUGINS / "recorder"


def known(home, script, **settings):
    config = {"plugins": {"entries": {"remote": settings}}, "terminal": {"busy": "interrupt"}}
    return {"home": home, "plugins": [REMOTE, RECORDER], "model": script, "config": config}


def tools(agent):
    """What the model was offered, question by question."""
    return [{spec.name for spec in request.tools} for request in agent.model.requests]


async def test_tools_come_are_called_and_go_in_a_conversation_that_continues(home, hook_log):
    script = ["none yet", call("lookup", words="Rome"), "there", "gone again"]
    async with open_agent(**known(home, script)) as agent:
        await agent.say("hello")
        async with open_client(home, "lookup") as wire:
            running = await agent.start("where is Rome?")
            asked = await wire.answer({"place": "over there"})
            assert asked["args"] == {"words": "Rome"}
            reply = await running
            assert reply.result("lookup").text == '{"place": "over there"}'
            assert hook_log.last("post_tool_call")["status"] == "ok"
            await wire.take_back("lookup")
            assert (await agent.say("and now?")).text == "gone again"
        assert ["lookup" in each for each in tools(agent)] == [False, True, True, False]
        assert await agent.app.store.sessions.active(agent.key) is not None


async def test_a_tool_that_is_removed_or_brought_in_the_midst_of_a_turn_changes_the_next_one(home):
    script = [call("lookup"), "there", call("lookup"), "oh"]
    async with open_agent(**known(home, script)) as agent, open_client(home, "lookup") as wire:
        running = await agent.start("look")
        asked = await wire.hear("call")
        await wire.take_back("lookup")
        await wire.bring("other")
        wire.send(type="result", id=asked["id"], result="late, and still of this turn")
        assert (await running).result("lookup").text == "late, and still of this turn"
        reply = await agent.say("again")
        assert "no tool named lookup" in reply.result("lookup").text
        assert ["lookup" in each for each in tools(agent)] == [True, True, False, False]
        assert ["other" in each for each in tools(agent)] == [False, False, True, True]


async def test_a_call_that_nobody_answers_times_out_and_is_reported_so(home, hook_log):
    async with open_agent(**known(home, [call("lookup"), "oh"], timeout=0.2)) as agent:
        async with open_client(home, "lookup") as wire:
            reply = await agent.say("look")
            assert reply.result("lookup").outcome == "failed" and reply.text == "oh"
            assert hook_log.last("post_tool_call")["status"] == "timeout"
            assert await wire.notices() == ["timeout"]


async def test_a_client_that_goes_away_ends_its_calls_and_takes_its_tools_along(home, hook_log):
    script = [call("lookup"), "oh", "gone"]
    async with open_agent(**known(home, script)) as agent:
        async with open_client(home, "lookup") as wire:
            running = await agent.start("look")
            await wire.hear("call")
        reply = await running
        assert "the client is gone" in reply.result("lookup").text
        assert hook_log.last("post_tool_call")["status"] == "error"
        assert hook_log.last("post_tool_call")["error_type"] == "ConnectionError"
        await agent.say("and now?")
        assert "lookup" not in tools(agent)[-1]


@pytest.mark.parametrize("resolves", [False, True], ids=["leaves the future", "resolves the future"])
@pytest.mark.parametrize("how", ["/stop", "/new", "ctrl-c", "superseded"])
async def test_who_is_cut_off_gets_one_notice(home, hook_log, how, resolves):
    script = [call("lookup"), "next", "next"]
    async with open_agent(**known(home, script, resolves=resolves), person="no") as agent:
        async with open_client(home, "lookup") as wire:
            running = await agent.start("look")
            asked = await wire.hear("call")
            if how in ("/stop", "/new"):
                await agent.command(how)
            elif how == "ctrl-c":
                await running.stop()
            else:
                assert (await agent.say("something else")).text == "next"
            assert (await wire.hear("cancelled"))["id"] == asked["id"]
            assert (await running).ending == "stopped"
            assert (await agent.say("and now?")).text == "next"
            assert await wire.notices() == ["cancelled"]
            assert hook_log.names.count("agent_loop_stopped") == 1
            assert "lookup" in tools(agent)[-1], "the tool is still there"


@pytest.mark.parametrize("resolves", [False, True], ids=["leaves the future", "resolves the future"])
async def test_the_end_of_the_process_is_one_notice_too(home, resolves):
    async with AsyncExitStack() as outside:
        async with open_agent(**known(home, [call("lookup")], resolves=resolves)) as agent:
            wire = await outside.enter_async_context(open_client(home, "lookup"))
            await agent.start("look")
            asked = await wire.hear("call")
        assert (await wire.hear("cancelled"))["reason"] == "shutdown"
        with pytest.raises(AssertionError, match="closed before"):
            await wire.hear("cancelled")
        assert [each["id"] for each in wire.heard if each["type"] == "cancelled"] == [asked["id"]]


async def test_stopping_one_conversation_leaves_the_calls_of_others_alone(home):
    script = [call("lookup"), call("lookup"), "to the other"]
    async with open_agent(**known(home, script)) as agent, open_client(home, "lookup") as wire:
        one = await agent.start("look")
        first = await wire.hear("call")
        here, agent.address = agent.address, agent.address.__class__("test", "someone else")
        two = await agent.start("look too")
        second = await wire.hear("call")
        agent.address = here
        await one.stop()
        assert (await wire.hear("cancelled"))["id"] == first["id"]
        wire.send(type="result", id=second["id"], result="found")
        reply = await two
        assert (reply.ending, reply.result("lookup").text) == ("answered", "found")
        assert await wire.notices() == ["cancelled"]


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_on_a_platform_the_tools_are_offered_and_cut_off_the_same_way(home, command):
    script = [call("lookup"), "next"]
    async with open_chat(home, script, REMOTE) as chat, open_client(home, "lookup") as wire:
        await chat.say("look")
        asked = await wire.hear("call")
        await chat.say(command)
        assert (await wire.hear("cancelled"))["id"] == asked["id"]
        await chat.say("and now?")
        await chat.until("next")
        assert await wire.notices() == ["cancelled"]


async def test_at_a_real_terminal_the_client_is_notified_of_every_way_to_stop(home, hook_log):
    for plugin in (REMOTE, RECORDER):
        shutil.copytree(plugin, home / "plugins" / plugin.name)
    lookup = Calls((Call("lookup", {"words": "x"}),))
    async with ModelServer([lookup, Say("There it is."), lookup, lookup, lookup, Say("Fine.")]) as server:
        Home(home).use(server)
        with (home / "config.toml").open("a") as config:
            config.write('[plugins]\nenabled = ["remote", "recorder"]\n')
        async with TerminalProcess.of(Home(home)) as terminal, open_client(home, "lookup") as wire:
            terminal.type("look" + ENTER)
            await wire.answer("under the bed")
            await terminal.until("There it is.")
            for number, key in enumerate((CTRL_C, "/stop" + ENTER, "/new" + ENTER), 1):
                terminal.type("look" + ENTER)
                asked = await wire.hear("call")
                terminal.type(key)
                assert (await wire.hear("cancelled"))["id"] == asked["id"]
                await hook_log.until("agent_loop_stopped", number)
                await hook_log.until("on_session_end", number + 1)
            terminal.type("and now?" + ENTER)
            await terminal.until("Fine.")
            assert await wire.notices() == ["cancelled"] * 3
