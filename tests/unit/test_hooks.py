"""Plugins are called in order, offered what they ask for, and cannot hurt the turn."""

import asyncio

import pytest

from alipes.hooks.relay import Hooks
from alipes.hooks.specs import Verdict
from alipes.kernel.errors import PluginError
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import Request
from alipes.kernel.turns import Address, Inbound, Noted, Stop, Turn

TURN = Turn("t", "s", Inbound("1", Address("test", "me"), "me", "hi"))
CALL = ToolCall("c", "x", {})


async def test_a_gate_that_breaks_denies_and_is_switched_off_after_three_strikes():
    called = []

    async def before_tool(call):
        called.append(call)
        raise ZeroDivisionError

    hooks = Hooks()
    hooks.add("broken", before_tool)
    for _ in range(3):
        verdict = await hooks.before_tool(CALL, TURN)
        assert verdict.ruling == "deny" and "broken" in verdict.reason
    assert await hooks.before_tool(CALL, TURN) is None
    assert len(called) == 3


async def test_what_is_ours_is_never_switched_off():
    async def before_tool(call):
        raise ZeroDivisionError

    hooks = Hooks()
    hooks.add("core", before_tool)
    for _ in range(5):
        assert (await hooks.before_tool(CALL, TURN)).ruling == "deny"


async def test_an_observer_that_breaks_or_hangs_disturbs_neither_the_turn_nor_the_others():
    heard = []

    async def raises(event):
        raise ValueError("no")

    async def hangs(event):
        await asyncio.Event().wait()

    async def hears(event, turn):
        heard.append((event, turn))

    for hook in (raises, hangs, hears):
        hook.__name__ = "on_event"
    hooks = Hooks(deadline=0.01)
    for name, hook in (("a", raises), ("b", hangs), ("c", hears)):
        hooks.add(name, hook)
    await hooks.on_event(Noted("x"), TURN)
    assert heard == [(Noted("x"), TURN)]


async def test_filters_see_what_the_one_before_them_returned():
    async def before_request(request):
        return Request(request.model + "+", "", ())

    hooks = Hooks()
    hooks.add("one", before_request)
    hooks.add("two", before_request)
    assert (await hooks.before_request(Request("m", "", ()), TURN)).model == "m++"


async def test_the_first_to_decide_settles_it():
    async def first(call):
        return None

    async def second(call):
        return Verdict("deny", "second")

    async def third(call):
        return Verdict("allow")

    hooks = Hooks()
    for hook in (first, second, third):
        hook.__name__ = "before_tool"
        hooks.add(str(hook), hook)
    assert await hooks.before_tool(CALL, TURN) == Verdict("deny", "second")


async def test_the_stop_hook_is_told_who_and_why():
    told = []

    async def agent_loop_stopped(session_key, reason, invalidation_reason):
        told.append((session_key, reason, invalidation_reason))

    hooks = Hooks()
    hooks.add("listener", agent_loop_stopped)
    await hooks.agent_loop_stopped(TURN, Stop("user_stop", "stop_command"))
    assert told == [("agent:main:test:dm:me", "user_stop", "stop_command")]


def test_misspelt_hooks_are_refused_at_the_door():
    async def before_tol(call): ...

    async def before_tool(cal): ...

    def on_event(event): ...

    for hook, why in [
        (before_tol, "no such hook"),
        (before_tool, "unknown parameters"),
        (on_event, "must be `async def`"),
    ]:
        with pytest.raises(PluginError, match=why):
            Hooks().add("typo", hook)


async def test_a_cancelled_caller_is_cancelled_and_the_plugin_is_not_blamed():
    async def on_event(event):
        await asyncio.Event().wait()

    hooks = Hooks()
    hooks.add("slow", on_event)
    for _ in range(4):
        task = asyncio.create_task(hooks.on_event(Noted("x"), TURN))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert hooks._strikes == {}


async def test_a_patient_hook_may_wait_for_a_person_and_every_other_has_a_deadline():
    async def before_tool(call):
        await asyncio.sleep(0.2)
        return Verdict("allow")

    patient, hasty = Hooks(deadline=0.01), Hooks(deadline=0.01)
    patient.add("core", before_tool, patient=True)
    hasty.add("core", before_tool)
    assert (await patient.before_tool(CALL, TURN)).ruling == "allow"
    assert (await hasty.before_tool(CALL, TURN)).ruling == "deny"


async def test_who_keeps_something_for_a_session_is_told_that_it_was_left():
    told = []

    async def session_left(session, reason):
        told.append((session, reason))

    async def broken(session):
        raise ZeroDivisionError

    broken.__name__ = "session_left"
    hooks = Hooks()
    hooks.add("broken", broken)
    hooks.add("keeper", session_left)
    await hooks.session_left("s", "agent:main:test:dm:me", "reset")
    assert told == [("s", "reset")]
