"""The small parts of the test kit keep their word: the clock, the model, the runner of tests."""

import asyncio
import subprocess
import sys
import textwrap

import pytest

from alipes.agent.model_call import ModelCallContext, RetryPolicy, call_model
from alipes.kernel.errors import OutOfCredit, ProviderError, Transient
from alipes.kernel.messages import Message, Text, Thinking, ToolResult, assistant, user
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Request
from alipes.kernel.turns import Address, Inbound, ModelReply, Turn
from alipes.providers.registry import Backend
from alipes.testing import (
    Clock,
    DeadlineExceeded,
    LeakError,
    ScriptedModel,
    call,
    no_leaks,
    results,
    run_test,
    slow_text,
    stall,
)

QUESTION = Request("m", "", (user("hello"),))


async def heard(model, request=QUESTION):
    async with model.stream(request) as deltas:
        return [delta async for delta in deltas]


async def reply(model, request=QUESTION):
    return (await heard(model, request))[-1].message


async def test_the_clock_does_not_advance_by_itself():
    clock, woken = Clock(100), []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        woken.append((seconds, clock()))

    async with asyncio.TaskGroup() as group:
        for seconds in (5, 2, 9):
            group.create_task(sleeper(seconds))
        await clock.wait_asleep(3)
        await clock.advance(1.5)
        assert woken == [] and clock() == 101.5
        await clock.advance(4)
        assert woken == [(2, 102), (5, 105)] and clock() == 105.5 and clock.asleep == 1
        await clock.advance(100)
    assert woken[-1] == (9, 109) and clock.slept == [5, 2, 9]


async def test_who_sleeps_again_after_being_woken_is_woken_again_in_the_same_advance():
    clock, ticks = Clock(0), []

    async def ticker():
        while len(ticks) < 4:
            await clock.sleep(1)
            ticks.append(clock())

    async with asyncio.TaskGroup() as group:
        group.create_task(ticker())
        await clock.wait_asleep()
        await clock.advance(10)
    assert ticks == [1, 2, 3, 4] and clock() == 10


async def test_a_sleeper_that_is_cancelled_disturbs_nobody():
    clock = Clock()
    sleeper = asyncio.create_task(clock.sleep(1))
    await clock.wait_asleep()
    sleeper.cancel()
    await asyncio.wait({sleeper})
    assert clock.asleep == 0
    await clock.advance(5)
    await clock.sleep(0)


async def test_a_model_is_asked_again_by_the_clock_of_the_test():
    clock, seen = Clock(), []
    model = ScriptedModel([Transient("busy", 30), Transient("busy", 40), "at last"])
    turn = Turn("t", "s", Inbound("1", Address("test", "me"), "me", "hello"))

    async def emit(event):
        seen.append(event)

    asker = ModelCallContext(turn, emit, RetryPolicy(clock=clock, sleep=clock.sleep))
    backend = Backend(name="scripted/m", model="m", provider=model, facts=ModelFacts())
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(call_model(backend, QUESTION, asker, 1))
        for seconds in (30, 40):
            await clock.wait_asleep()
            await clock.advance(seconds)
    assert asking.result().message.text == "at last" and clock.slept == [30, 40]
    jumping = Clock(jumps=True)
    await jumping.sleep(3600)
    assert jumping() == 4600


async def test_the_model_follows_its_script_and_keeps_every_question():
    model = ScriptedModel(["one", (Thinking("hm"), "two", call("ls", path="."))])
    assert (await reply(model)).text == "one" and model.remaining == 1
    said = await reply(model)
    assert [type(part) for part in said.parts] == [Thinking, Text, type(call("x"))]
    assert said.calls[0].args == {"path": "."} and model.requests == [QUESTION, QUESTION]
    with pytest.raises(ProviderError, match="no line for request 3"):
        await heard(model)
    model.set_script("more")
    assert (await reply(model)).text == "more"


async def test_no_two_calls_have_the_same_id():
    assert call("a").id != call("a").id


async def test_a_line_may_be_a_function_of_the_question():
    asked = call("greet", name="Ada")
    given = Message("tool", (ToolResult(asked.id, "Hello Ada"),))
    model = ScriptedModel([lambda request: f"it said: {results(request)['greet'].text}"])
    request = Request("m", "", (user("hi"), assistant(asked), given))
    assert (await reply(model, request)).text == "it said: Hello Ada"


async def test_the_model_fails_with_the_scripted_error_also_in_mid_stream():
    with pytest.raises(OutOfCredit):
        await heard(ScriptedModel([OutOfCredit("no money")]))
    seen = []
    with pytest.raises(Transient):
        async with ScriptedModel([("half an", Transient("cut"), "answer")]).stream(QUESTION) as deltas:
            async for delta in deltas:
                seen.append(delta.text)
    assert "".join(seen) == "half an"


async def test_the_model_stalls_until_released_and_a_stall_can_be_awaited():
    here = stall()
    model = ScriptedModel([("before", here, "after")])
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(reply(model))
        await here.reached.wait()
        assert not answer.done() and model.streaming == 1
        assert await model.wait_for_request() is QUESTION
        here.go()
    assert answer.result() == assistant(Text("beforeafter")) and model.streaming == 0


async def test_the_model_streams_at_the_scripted_speed_by_test_clock_or_real_clock():
    clock = Clock(jumps=True)
    *pieces, end = await heard(ScriptedModel([slow_text("one two three", 7, sleep=clock.sleep)]))
    assert [piece.text for piece in pieces] == ["one", " two", " three"] and clock.slept == [7, 7, 7]
    assert end.message == assistant(Text("one two three"))
    assert isinstance((await heard(ScriptedModel([slow_text("a b", 0.001)])))[-1], ModelReply)


async def test_a_model_without_a_script_obeys_the_person():
    request = Request("m", "", (user('!call greet {"name": "Ada"}'),))
    assert (await reply(ScriptedModel(), request)).calls[0].args == {"name": "Ada"}


def test_a_test_that_takes_too_long_reports_where_it_was():
    async def waiting_for_nobody():
        await asyncio.Event().wait()

    async def test():
        async with asyncio.TaskGroup() as group:
            group.create_task(waiting_for_nobody(), name="the idler")

    with pytest.raises(DeadlineExceeded) as late:
        run_test(test(), deadline=0.05)
    assert "the idler" in str(late.value) and "not done after 0.05 s" in str(late.value)
    assert "waiting_for_nobody) at " in str(late.value) and "test_kit_parts.py:" in str(late.value)


def test_what_a_test_raises_is_what_the_runner_raises():
    async def test(error):
        raise error

    for error in (AssertionError("no"), TimeoutError("its own")):
        with pytest.raises(type(error), match=str(error)):
            run_test(test(error))


def test_a_test_runs_in_debug_mode_and_inside_what_is_given():
    seen = []

    async def test():
        seen.append(asyncio.get_running_loop().get_debug())
        seen.append(asyncio.create_task(asyncio.sleep(60)))

    with pytest.raises(LeakError):
        run_test(test(), around=no_leaks(within=0.01))
    assert seen[0] is True


def test_the_kit_loads_only_what_is_asked_of_it():
    code = """
    import sys
    import alipes.testing.pytest_plugin
    from alipes.testing import Clock
    heavy = {"alipes.app", "httpx2", "sqlite3", "alipes.agent.loop", "tomlkit"} & set(sys.modules)
    assert not heavy, heavy
    import alipes.testing
    assert {name: getattr(alipes.testing, name) for name in alipes.testing.__all__}
    assert set(alipes.testing._MODULES) == set(alipes.testing.__all__)
    try:
        alipes.testing.nothing
    except AttributeError:
        pass
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
