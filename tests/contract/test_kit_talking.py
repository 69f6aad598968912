"""The test kit's conversation: a whole app, every event visible, nothing shared with the machine."""

import asyncio
import os

import pytest

from alipes.kernel.errors import ConfigError, OutOfCredit, Transient
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import ApprovalAsked, Notice, TextDelta, ToolProgress, ToolStarted
from alipes.testing import Clock, ScriptedModel, call, open_agent, stall
from tests.world.plugins import make_plugin

GREETER = make_plugin(
    "greeter",
    """
    import asyncio
    from alipes.plugin import tool
    received = []

    @tool(effect="read")
    async def greet(name: str, act) -> str:
        "Greet someone."
        await act.progress("clearing my throat")
        return f"Hello {name}"

    @tool()
    async def nap() -> str:
        "A tool."
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            received.append("woken")
            raise

    async def turn_context(turn):
        return "It is raining."

    async def agent_loop_stopped(reason, invalidation_reason, tool_call_ids):
        received.append((reason, invalidation_reason, len(tool_call_ids)))

    async def before_message(inbound):
        from alipes.plugin import Admission
        return Admission("drop") if inbound.text == "spam" else None
    """,
)


async def test_a_reply_has_the_text_the_events_the_calls_and_what_they_gave():
    async with open_agent(plugins=[GREETER], model=[call("greet", name="Ada"), "I greeted Ada."]) as agent:
        reply = await agent.say("greet Ada")
    assert (reply.text, reply.ending, reply.detail) == ("I greeted Ada.", "answered", "")
    assert [made.name for made in reply.tool_calls] == ["greet"]
    assert reply.result("greet") == ToolResult(reply.tool_calls[0].id, "Hello Ada")
    assert [event.text for event in reply.of(ToolProgress)] == ["clearing my throat"]
    assert [message.role for message in reply.said] == ["user", "assistant", "tool", "assistant"]
    assert reply.usage.output > 0 and reply.turn and reply.partial == ""
    with pytest.raises(LookupError, match="sing"):
        reply.result("sing")


async def test_the_model_sees_what_the_plugin_adds_and_every_question_is_kept():
    async with open_agent(plugins=[GREETER], model=["hi"]) as agent:
        await agent.say("hello")
        (request,) = agent.model.requests
    assert "It is raining." in request.messages[-1].text
    assert {"greet", "nap", "terminal"} <= {spec.name for spec in request.tools}


async def test_a_conversation_continues_and_a_command_starts_a_new_one():
    async with open_agent(model=["one", "two", "three"]) as agent:
        await agent.say("first")
        await agent.say("second")
        assert (await agent.command("/new")).text.startswith("Started a new conversation.")
        await agent.say("third")
        assert [len(request.messages) for request in agent.model.requests] == [1, 3, 1]
        with pytest.raises(ValueError, match="not a command"):
            await agent.command("/etc/passwd")


async def test_a_running_turn_is_watched_and_stopped_in_the_order_of_the_contract():
    GREETER.received.clear()
    async with open_agent(plugins=[GREETER], model=[call("nap"), "fine"]) as agent:
        running = await agent.start("sleep")
        started = await running.wait_for(ToolStarted)
        assert started.call.name == "nap" and not running.ended.is_set()
        reply = await agent.stop()
        assert reply.ending == "stopped" and reply.result("nap").outcome == "cancelled"
        assert GREETER.received == [("user_stop", "stop_command", 1), "woken"]
        assert await agent.stop() is None
        assert (await agent.say("and now?")).text == "fine"


async def test_one_of_two_turns_is_stopped_and_the_one_behind_it_is_answered():
    here = stall()
    async with open_agent(model=[("I was", here), "second"]) as agent:
        first = await agent.start("first")
        second = await agent.start("second")
        await here.reached.wait()
        reply = await first.stop()
        assert (reply.ending, reply.partial) == ("stopped", "I was")
        assert (await second).text == "second"


async def test_waiting_for_an_event_that_never_comes_says_what_came_instead():
    async with open_agent(model=["one two"]) as agent:
        running = await agent.start("hello")
        assert (await running.wait_for(TextDelta, 2)).text == " two"
        with pytest.raises(LookupError, match=r"before ToolStarted number 1.*TurnEnded"):
            await running.wait_for(ToolStarted)


async def test_a_message_that_a_plugin_drops_never_becomes_a_turn():
    async with open_agent(plugins=[GREETER], model=["hi"]) as agent:
        reply = await agent.say("spam")
        assert (reply.ending, reply.turn, reply.events, agent.model.requests) == ("", "", (), [])
        assert "dropped" in reply.refused == reply.detail
        assert (await agent.say("eggs")).text == "hi"


@pytest.mark.parametrize(
    ("person", "outcome", "asked"),
    [("nobody", "denied", 0), ("no", "denied", 1), ("once", "ok", 1), ("trusts", "ok", 0)],
)
async def test_the_person_who_sits_there_has_the_say(person, outcome, asked):
    async with open_agent(model=[call("terminal", command="rm -rf /nonexistent/kit"), "done"], person=person) as agent:
        reply = await agent.say("tidy up")
        assert reply.ending == "answered" and len(reply.of(ApprovalAsked)) == asked
        assert reply.result("terminal").outcome == outcome, reply.result("terminal").text


async def test_failures_of_a_model_are_waited_out_by_the_clock_of_the_test():
    clock = Clock()
    async with open_agent(model=[Transient("busy", 60), "at last"], clock=clock) as agent:
        running = await agent.start("hello")
        await clock.wait_asleep()
        assert "busy" in (await running.wait_for(Notice)).text
        await clock.advance(60)
        assert (await running).text == "at last"
    async with open_agent(model=[OutOfCredit("no money left")]) as agent:
        reply = await agent.say("hello")
        assert reply.ending == "failed" and "no money left" in reply.detail


async def test_a_script_that_is_too_short_says_so_in_the_ending():
    async with open_agent(model=[]) as agent:
        assert "no line for request 1" in (await agent.say("hello")).detail


async def test_the_machines_configuration_is_ignored_and_an_invalid_one_is_reported_with_its_line(tmp_path):
    async with open_agent(config={"max_steps": 1, "terminal": {"busy": "steer"}}, home=tmp_path) as agent:
        settings = agent.app.settings
        assert (settings.max_steps, settings.terminal.busy, settings.home) == (1, "steer", tmp_path)
        assert not any(endpoint.key for endpoint in settings.providers.values())
    with pytest.raises(ConfigError, match=r"config.toml:\d+.*max_step"):
        async with open_agent(config={"max_step": 1}):
            pass


async def test_nothing_stays_behind_unless_a_home_is_given(tmp_path):
    async with open_agent(model=["hi"]) as agent:
        home, work = agent.app.settings.home, agent.workdir
        assert home.is_dir() and work.is_dir()
        await agent.say("hello")
    assert not home.exists() and not work.exists()


async def test_reopened_on_the_same_home_it_resumes_an_interrupted_turn(alipes):
    async with alipes(model=[stall()]) as agent:
        await agent.start("hello")
        await agent.model.wait_for_request()
    async with alipes(model=["here I am again"]) as agent:
        await agent.wait_until_idle()
        (session,) = await agent.app.store.archive.sessions(1)
        assert (await agent.app.store.archive.messages(session.id))[-1].text == "here I am again"


async def test_an_error_of_the_test_comes_out_as_it_is_and_all_is_closed():
    for error in (AssertionError("no"), LookupError("where?"), pytest.fail.Exception("so")):
        with pytest.raises(type(error)) as raised:
            async with open_agent(model=[stall()]) as agent:
                await agent.start("hello")
                raise error
        assert raised.value is error


async def test_a_test_that_is_cancelled_closes_everything():
    opened = asyncio.Event()

    async def test():
        async with open_agent(model=[stall()]) as agent:
            await agent.start("hello")
            opened.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(test())
    await opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_any_provider_can_be_the_model():
    class Upper:
        def stream(self, request):
            return ScriptedModel([request.messages[-1].text.upper()]).stream(request)

    async with open_agent(model=Upper()) as agent:
        assert (await agent.say("hello")).text == "HELLO"


async def test_a_folder_is_a_plugin_too(tmp_path):
    folder = tmp_path / "shouter"
    folder.mkdir()
    (folder / "__init__.py").write_text("async def answer_text(text):\n    return text.upper()\n")
    for plugin in (folder, os.fspath(folder)):
        async with open_agent(plugins=[plugin], model=["hello"]) as agent:
            assert (await agent.say("hi")).text == "HELLO"
