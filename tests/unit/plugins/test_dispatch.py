"""Plugins are called in order, offered what they ask for, and cannot hurt the turn."""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping

import pytest

from alipes.kernel.errors import PluginError, Transient
from alipes.kernel.messages import Message, Text, ToolCall
from alipes.kernel.ports import Request, ToolOutput
from alipes.kernel.turns import Address, Inbound, ModelReply, Notice, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import HookDispatcher, Hooks, guard, hook_parameters
from alipes.plugins.interruption.attribution import PLUGIN, tasks_of, track_tasks
from alipes.plugins.owner import CORE, PluginOwner
from alipes.plugins.registration import HookOptions
from alipes.plugins.specs import Admission, Verdict
from alipes.runtime.watchdog import LoopActivity

TURN = Turn("t", "s", Inbound("1", Address("test", "me"), "me", "hi"))
CALL = ToolCall("c", "x", {})
EVENT = Notice("x")
REPLIED = ModelReply(Message("assistant", (Text("hello"),)))
STOP = {
    "turn": TURN,
    "session_key": TURN.key,
    "session_id": "s",
    "turn_id": "t",
    "platform": "test",
    "reason": "user_stop",
    "invalidation_reason": "stop_command",
    "tool_call_ids": (),
    "partial_text": "",
}


class Reports(list):
    """The reports, as sentences."""

    def __call__(self, what: str, offered: Mapping[str, object]) -> None:
        self.append((what, dict(offered)))

    @property
    def words(self) -> str:
        return "\n".join(what for what, _ in self)


def registered(*named: tuple[str, object], **options) -> tuple[Hooks, dict[str, PluginOwner]]:
    """Hooks of several plugins, all under the name of the first spec they are meant for."""
    hooks, owners = Hooks(**options), {}
    for name, hook in named:
        owners[name] = owners.get(name) or PluginOwner(name)
        hooks.add(owners[name], hook)
    return hooks, owners


def named(name: str):
    def rename(hook):
        hook.__name__ = name
        return hook

    return rename


async def tell(hooks: Hooks) -> None:
    await hooks.dispatcher.notify(specs.on_event, event=EVENT, turn=TURN)


async def may(hooks: Hooks) -> Verdict | None:
    closed = lambda why: Verdict("deny", why)  # noqa: E731
    return await hooks.dispatcher.decide(specs.before_tool, closed, call=CALL, turn=TURN)


async def context(hooks: Hooks, value: str = "") -> str:
    return await hooks.dispatcher.filter(specs.turn_context, value, turn=TURN)


async def stop(hooks: Hooks) -> None:
    await hooks.dispatcher.notify(specs.agent_loop_stopped, **STOP)


async def forever() -> None:
    await asyncio.Event().wait()


# --- what may be registered


def test_misspelt_hooks_are_refused_at_the_door():
    async def before_tol(call): ...

    async def before_tool(cal): ...

    @named("before_tool")
    async def positional(call, /): ...

    @named("tool_arguments")
    async def starred(*args): ...

    @named("on_event")
    async def yields(event):
        yield event

    for hook, why in [
        (before_tol, "no such hook"),
        (before_tool, "unknown parameter cal. Did you mean call"),
        (positional, "by name"),
        (starred, "by name"),
        (yields, "not yield"),
        (object(), "no such hook"),
    ]:
        with pytest.raises(PluginError, match=why) as refused:
            Hooks().add(PluginOwner("typo"), hook)
        assert refused.value.plugin == "typo"


def test_a_name_of_the_specs_that_is_no_hook_is_no_hook():
    assert hook_parameters("Verdict") is None and hook_parameters("nothing") is None
    assert hook_parameters("before_tool") == ("call", "turn")


async def test_a_hook_is_given_what_it_asks_for_and_all_if_it_asks_for_all():
    given = []

    async def on_event(turn):
        given.append(turn)

    @named("on_event")
    async def everything(**offered):
        given.append(offered)

    @named("on_event")
    async def nothing():
        given.append(None)

    hooks, _ = registered(("a", on_event), ("b", everything), ("c", nothing))
    await tell(hooks)
    assert given == [TURN, {"event": EVENT, "turn": TURN}, None]


async def test_a_hook_may_be_registered_under_another_name():
    async def mine(event): ...

    hooks = Hooks()
    hooks.add(PluginOwner("p"), mine, name="on_event")
    assert hooks.dispatcher.has_hooks(specs.on_event)
    assert hooks.dispatcher.has_hooks(specs.before_tool, specs.on_event)
    assert not hooks.dispatcher.has_hooks(specs.before_tool)


# --- observe


async def test_observers_are_called_in_the_order_they_were_registered():
    order = []

    @named("on_event")
    async def first(event):
        await asyncio.sleep(0)
        order.append(1)

    @named("on_event")
    def second(event):
        order.append(2)

    @named("on_event")
    async def third(event):
        order.append(3)

    hooks, _ = registered(("a", first), ("b", second), ("c", third))
    await tell(hooks)
    assert order == [1, 2, 3]


async def test_an_observer_that_breaks_or_hangs_disturbs_neither_the_turn_nor_the_others():
    heard, reports = [], Reports()

    @named("on_event")
    async def raises(event):
        raise ValueError("no")

    @named("on_event")
    async def hangs(event):
        await forever()

    async def on_event(event, turn):
        heard.append((event, turn))

    hooks, owners = registered(("a", raises), ("b", hangs), ("c", on_event), deadline=0.01, report=reports)
    await tell(hooks)
    assert heard == [(EVENT, TURN)]
    assert [what for what, _ in reports] == [
        "plugin a failed in on_event: ValueError: no",
        "plugin b failed in on_event: took longer than 0.01 s",
    ]
    assert reports[0][1] == {"event": EVENT, "turn": TURN}
    assert [owners[name].strikes for name in "abc"] == [1, 1, 0]


@pytest.mark.parametrize(
    "error", [SystemExit(3), type("Quit", (BaseException,), {})("now"), StopIteration(), RecursionError("deep")]
)
@pytest.mark.parametrize("sync", [False, True])
async def test_whatever_a_hook_raises_ends_nothing_but_its_call(error, sync):
    @named("on_event")
    def raises(event):
        raise error

    async def on_event(event):
        raise error

    hooks, owners = registered(("p", raises if sync else on_event))
    await tell(hooks)
    assert owners["p"].strikes == 1


async def test_ctrl_c_is_the_persons_and_not_the_plugins():
    def on_event(event):
        raise KeyboardInterrupt

    hooks, owners = registered(("p", on_event))
    with pytest.raises(KeyboardInterrupt):
        await tell(hooks)
    assert owners["p"].strikes == 0 and PLUGIN.get() is None


async def test_an_error_that_cannot_be_printed_is_reported_all_the_same():
    class Broken(Exception):
        def __str__(self):
            raise ValueError

        __repr__ = __str__

    async def on_event(event):
        raise Broken

    reports = Reports()
    hooks, _ = registered(("p", on_event), report=reports)
    await tell(hooks)
    assert "plugin p failed in on_event" in reports.words and "Broken" in reports.words


async def test_a_report_reaches_the_current_listeners():
    async def on_event(event):
        raise ValueError

    hooks, _ = registered(("p", on_event))
    relay = hooks.dispatcher
    hooks.report = late = Reports()
    await relay.notify(specs.on_event, event=EVENT, turn=TURN)
    assert len(late) == 1


# --- filter


async def test_filters_see_what_the_one_before_them_returned():
    async def before_request(request):
        return Request(request.model + "+", "", ())

    @named("before_request")
    async def silent(request, turn):
        return None

    hooks, _ = registered(("one", before_request), ("none", silent), ("two", before_request))
    request = Request("m", "", ())
    assert (await hooks.dispatcher.filter(specs.before_request, request, turn=TURN)).model == "m++"


async def test_a_filter_that_breaks_or_gives_something_else_changes_nothing():
    @named("turn_context")
    async def adds(context):
        return context + "a"

    @named("turn_context")
    async def breaks(context):
        raise ValueError

    @named("turn_context")
    async def gives_a_number(context):
        return 3

    @named("turn_context")
    async def empties(context):
        return ""

    hooks, owners = registered(("a", adds), ("b", breaks), ("c", gives_a_number), ("d", adds))
    assert await context(hooks, "x") == "xaa"
    assert owners["b"].strikes == 1 and owners["c"].strikes == 1
    hooks, _ = registered(("a", adds), ("b", empties))
    assert await context(hooks, "x") == ""


async def test_any_mapping_will_do_for_arguments():
    class Args(dict):
        pass

    async def tool_arguments(args, call):
        return Args(args, more=1)

    hooks, _ = registered(("p", tool_arguments))
    given = await hooks.dispatcher.filter(specs.tool_arguments, {"a": 0}, call=CALL, turn=TURN)
    assert given == {"a": 0, "more": 1}


# --- decide


async def test_who_is_always_asked_hears_of_what_is_settled_and_has_no_say_in_it(caplog):
    heard = []

    @named("before_tool")
    async def breaks(call):
        raise RuntimeError("no")

    @named("before_tool")
    async def curious(call):
        heard.append(call.id)
        return Verdict("allow")

    @named("before_tool")
    async def usual(call):
        heard.append("usual")

    hooks, owner = Hooks(), PluginOwner("p")
    hooks.add(owner, breaks, options=HookOptions(title="pre_tool_call", always_ask=True))
    hooks.add(owner, curious, options=HookOptions(always_ask=True))
    hooks.add(owner, usual)
    verdict = await may(hooks)
    assert verdict is not None and verdict.ruling == "deny"
    assert "plugin p failed in pre_tool_call: RuntimeError: no" in verdict.reason
    assert heard == ["c"]


async def test_a_lenient_hook_that_fails_has_said_nothing():
    @named("before_tool")
    async def breaks(call):
        raise RuntimeError("no")

    hooks, owner = Hooks(), PluginOwner("p")
    hooks.add(owner, breaks, options=HookOptions(fail_open=True))
    assert await may(hooks) is None and owner.strikes == 1


async def test_the_first_to_decide_settles_it():
    @named("before_tool")
    async def first(call):
        return None

    @named("before_tool")
    async def second(call):
        return Verdict("deny", "second")

    @named("before_tool")
    async def third(call):
        return Verdict("allow")

    hooks, _ = registered(("a", first), ("b", second), ("c", third))
    assert await may(hooks) == Verdict("deny", "second")


async def test_a_hook_that_is_first_is_asked_before_those_that_were_added_earlier():
    @named("before_tool")
    async def usual(call):
        return Verdict("deny")

    @named("before_tool")
    async def own_question(call):
        return Verdict("ask", "it uploads a file")

    hooks = Hooks()
    hooks.add(PluginOwner("p"), usual)
    hooks.add(PluginOwner("q"), own_question, options=HookOptions(first=True))
    assert await may(hooks) == Verdict("ask", "it uploads a file")


async def test_a_gate_that_breaks_denies_and_is_silenced_after_three_strikes():
    called, neighbours, reports = [], [], Reports()

    async def before_tool(call):
        called.append(call)
        raise ZeroDivisionError

    async def on_event(event):
        neighbours.append(event)

    owner = PluginOwner("broken")
    hooks = Hooks(report=reports)
    hooks.add(owner, before_tool)
    hooks.add(owner, on_event)
    for _ in range(3):
        verdict = await may(hooks)
        assert verdict.ruling == "deny" and "broken" in verdict.reason
    assert await may(hooks) is None
    assert len(called) == 3
    assert "ZeroDivisionError" in owner.silenced["before_tool"] and not owner.disabled
    assert [what for what, _ in reports][-1].startswith("before_tool of plugin broken is off after 3 failures")
    assert len(reports) == 4
    await tell(hooks)
    assert neighbours == [EVENT], "other callbacks of the plugin are still called"
    owner.forgive()
    assert (await may(hooks)).ruling == "deny" and len(called) == 4 and owner.strikes == 1


async def test_a_silenced_gate_of_a_required_plugin_denies():
    async def before_tool(call):
        raise ZeroDivisionError

    hooks, owners = registered(("broken", before_tool))
    owners["broken"].required = True
    for _ in range(5):
        assert (await may(hooks)).ruling == "deny"


async def test_strikes_fade_and_count_for_each_callback():
    now = [1000.0]
    owner, hooks, called = PluginOwner("p", clock=lambda: now[0]), Hooks(), []

    @named("on_event")
    async def first(event):
        called.append("first")
        raise ValueError

    @named("on_event")
    async def second(event):
        called.append("second")
        if len(called) > 8:
            raise ValueError

    hooks.add(owner, first)
    hooks.add(owner, second)
    for _ in range(4):
        await tell(hooks)
        now[0] += 301.0  # at most two within ten minutes
    assert called == ["first", "second"] * 4 and not owner.silenced and owner.strikes == 1
    for _ in range(3):
        await tell(hooks)
    assert list(owner.silenced) == ["on_event", "on_event #2"]
    assert called == ["first", "second"] * 4 + ["first", "second", "first", "second", "second"]


@pytest.mark.parametrize("answer", [True, "allow", {"ruling": "allow"}, Admission("take")])
async def test_a_gate_that_answers_something_else_denies(answer):
    async def before_tool(call):
        return answer

    hooks, _ = registered(("odd", before_tool))
    verdict = await may(hooks)
    assert verdict.ruling == "deny" and "not Verdict" in verdict.reason


async def test_a_gate_that_answers_after_its_deadline_denies():
    async def before_tool(call):
        try:
            await forever()
        except asyncio.CancelledError:
            return Verdict("allow")

    hooks, owners = registered(("late", before_tool), deadline=0.01)
    verdict = await may(hooks)
    assert verdict.ruling == "deny" and "took longer" in verdict.reason
    assert owners["late"].strikes == 1


async def test_what_is_ours_is_never_switched_off():
    async def before_tool(call):
        raise ZeroDivisionError

    hooks = Hooks()
    hooks.add(CORE, before_tool)
    for _ in range(5):
        assert (await may(hooks)).ruling == "deny"
    assert not CORE.disabled and not CORE.silenced
    CORE.forgive()


# --- wrap


async def around(hooks: Hooks, go, value=None):
    given = {"a": 1} if value is None else value
    return await hooks.dispatcher.wrap(specs.around_tool, go, given, call=CALL, turn=TURN)


async def echo(args) -> str:
    await asyncio.sleep(0)
    return f"did {dict(args)}"


async def test_wrappers_stand_around_the_act_the_first_outermost():
    @named("around_tool")
    async def outer(go, call):
        return "(" + await go({"b": 2}) + ")"

    @named("around_tool")
    async def inner(go, call):
        return "[" + await go({"c": 3}) + "]"

    hooks, _ = registered(("a", outer), ("b", inner))
    assert await around(hooks, echo) == "([did {'c': 3}])"
    assert await around(Hooks(), echo) == "did {'a': 1}"


async def test_a_wrapper_of_requests_is_given_the_request_as_the_one_outside_left_it():
    seen = []

    @named("around_request")
    async def outer(go, request):
        return await go(Request(request.model + "+", "", ()))

    @named("around_request")
    async def inner(go, request):
        seen.append(request.model)
        return await go(request)

    async def ask(request):
        seen.append(request.model)
        return REPLIED

    hooks, _ = registered(("a", outer), ("b", inner))
    assert (
        await hooks.dispatcher.wrap(specs.around_request, ask, Request("m", "", ()), request=None, turn=TURN) is REPLIED
    )
    assert seen == ["m+", "m+"]


async def test_a_wrapper_may_answer_in_place_of_the_act():
    async def around_tool(go, call):
        return ToolOutput("mine")

    hooks, owners = registered(("p", around_tool))
    assert await around(hooks, echo) == ToolOutput("mine")
    assert owners["p"].strikes == 0


async def test_a_wrapper_that_breaks_before_during_or_after_is_as_if_it_were_not_there():
    done = []

    async def act(args):
        done.append(dict(args))
        return "done"

    @named("around_tool")
    async def before(go, call):
        raise ValueError

    @named("around_tool")
    async def after(go, call):
        await go({"b": 2})
        raise ValueError

    @named("around_tool")
    async def nothing(go, call):
        await go({"c": 3})

    for hook, args in [(before, {"a": 1}), (after, {"b": 2}), (nothing, {"c": 3})]:
        hooks, owners = registered(("p", hook))
        assert await around(hooks, act) == "done"
        assert done.pop() == args and done == []
        assert owners["p"].strikes == 1


async def test_what_the_act_raises_is_not_the_wrappers_fault():
    error = Transient("later")

    async def act(args):
        await asyncio.sleep(0)
        raise error

    async def around_tool(go, call):
        return await go(call.args)

    @named("around_tool")
    async def in_a_group(go, call):
        async with asyncio.TaskGroup() as group:
            group.create_task(go(call.args))
        return "never"

    hooks, owners = registered(("p", around_tool), ("q", around_tool))
    with pytest.raises(Transient) as raised:
        await around(hooks, act)
    assert raised.value is error and owners["p"].strikes == owners["q"].strikes == 0
    hooks, owners = registered(("p", in_a_group))
    with pytest.raises(ExceptionGroup):
        await around(hooks, act)
    assert owners["p"].strikes == 0


async def test_a_wrapper_may_make_something_of_what_the_act_raised():
    async def act(args):
        raise ValueError("no")

    @named("around_tool")
    async def soothes(go, call):
        try:
            return await go(call.args)
        except ValueError as error:
            return f"it said {error}"

    @named("around_tool")
    async def translates(go, call):
        try:
            return await go(call.args)
        except ValueError as error:
            raise KeyError("another") from error

    hooks, owners = registered(("p", soothes))
    assert await around(hooks, act) == "it said no"
    hooks, owners = registered(("p", translates))
    with pytest.raises(ValueError, match="no"):
        await around(hooks, act)
    assert owners["p"].strikes == 1


async def test_the_act_is_done_once_however_often_it_is_asked_for():
    times = 0

    async def act(args):
        nonlocal times
        times += 1
        await asyncio.sleep(0)
        return f"time {times}"

    async def around_tool(go, call):
        one = asyncio.create_task(go({}))
        two = asyncio.create_task(go({}))
        return f"{await one}, {await two}, {await go({})}"

    hooks, _ = registered(("p", around_tool))
    assert await around(hooks, act) == "time 1, time 1, time 1"


async def test_a_wrapper_that_breaks_while_the_act_runs_elsewhere_waits_for_it():
    async def act(args):
        await asyncio.sleep(0.01)
        return "done"

    async def around_tool(go, call):
        around_tool.task = asyncio.create_task(go({}))
        await asyncio.sleep(0)
        raise ValueError

    hooks, owners = registered(("p", around_tool))
    assert await around(hooks, act) == "done"
    assert owners["p"].strikes == 1
    await around_tool.task


async def test_a_wrapper_that_cuts_the_act_short_and_breaks_is_reported_as_such():
    async def act(args):
        await forever()

    async def around_tool(go, call):
        async with asyncio.timeout(0.01):
            return await go({})

    hooks, owners = registered(("hasty", around_tool))
    with pytest.raises(PluginError, match=r"hasty.*cancelled the wrapped call"):
        await around(hooks, act)
    assert owners["hasty"].strikes == 1 and asyncio.current_task().cancelling() == 0


async def test_of_a_wrapper_only_its_own_time_counts():
    async def slow(args):
        await asyncio.sleep(0.1)
        return "slow"

    async def around_tool(go, call):
        return await go({})

    @named("around_tool")
    async def hangs(go, call):
        await forever()

    hooks, owners = registered(("p", around_tool), deadline=0.02)
    assert await around(hooks, slow) == "slow"
    assert owners["p"].strikes == 0
    hooks, owners = registered(("p", hangs), deadline=0.02)
    assert await around(hooks, slow) == "slow"
    assert owners["p"].strikes == 1


async def test_the_wrapped_call_is_not_attributed_to_the_wrapper():
    whose, owner = [], PluginOwner("p")

    async def act(args):
        whose.append(PLUGIN.get())
        whose.append(asyncio.create_task(asyncio.sleep(0)))
        await asyncio.sleep(0)
        time.sleep(0.15)
        return "done"

    async def around_tool(go, call):
        assert PLUGIN.get() is owner
        given = await go({})
        assert PLUGIN.get() is owner
        return given

    hooks = Hooks(watch=LoopActivity(limit=0.1))
    hooks.add(owner, around_tool)
    async with track_tasks(owner):
        assert await around(hooks, act) == "done"
        assert whose[0] is None and whose[1] not in owner.tasks
    assert owner.strikes == 0


async def test_a_plugin_that_is_off_wraps_nothing():
    async def around_tool(go, call):
        return "mine"

    hooks, owners = registered(("p", around_tool))
    owners["p"].disable("asked to")
    assert await around(hooks, echo) == "did {'a': 1}"


# --- deadlines and cancellation


async def test_a_patient_hook_may_wait_for_a_person_and_every_other_has_a_deadline():
    async def before_tool(call):
        await asyncio.sleep(0.1)
        return Verdict("allow")

    patient, hasty = Hooks(deadline=0.01), Hooks(deadline=0.01)
    patient.add(CORE, before_tool, patient=True)
    hasty.add(PluginOwner("p"), before_tool)
    assert (await may(patient)).ruling == "allow"
    assert (await may(hasty)).ruling == "deny"


async def test_a_deadline_is_the_callbacks_own_or_the_hooks_or_the_usual_one():
    async def before_tool(call):
        await asyncio.sleep(0.1)
        return Verdict("allow")

    @named("on_event")
    async def slow(event):
        await asyncio.sleep(0.1)

    owner = PluginOwner("p")
    hooks = Hooks(deadline=0.01, deadlines={"before_tool": 5})
    hooks.add(owner, before_tool)
    hooks.add(owner, slow)
    assert (await may(hooks)).ruling == "allow"
    await tell(hooks)
    assert owner.strikes == 1
    hooks = Hooks(deadline=5, deadlines={"before_tool": 5})
    hooks.add(owner, before_tool, deadline=0.01)
    assert (await may(hooks)).ruling == "deny"


async def test_a_timeout_of_the_hooks_own_is_not_its_deadline():
    async def on_event(event):
        async with asyncio.timeout(0.01):
            await forever()

    reports = Reports()
    hooks, _ = registered(("p", on_event), report=reports)
    await tell(hooks)
    assert "TimeoutError" in reports.words and "took longer" not in reports.words


async def test_a_cancelled_caller_is_cancelled_and_the_plugin_is_not_blamed():
    async def on_event(event):
        await forever()

    hooks, owners = registered(("slow", on_event))
    for _ in range(4):
        task = asyncio.create_task(tell(hooks))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert owners["slow"].strikes == 0


async def test_a_hook_that_keeps_the_callers_cancellation_to_itself_does_not_keep_it_from_the_caller():
    async def on_event(event):
        try:
            await forever()
        except asyncio.CancelledError:
            await asyncio.sleep(0)

    hooks, owners = registered(("deaf", on_event))
    task = asyncio.create_task(tell(hooks))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert owners["deaf"].strikes == 0


async def test_a_hook_that_is_cancelled_from_inside_has_failed():
    @named("on_event")
    async def raises(event):
        raise asyncio.CancelledError

    @named("on_event")
    async def waits(event):
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        await future

    reports = Reports()
    hooks, owners = registered(("a", raises), ("b", waits), report=reports)
    await tell(hooks)
    assert owners["a"].strikes == owners["b"].strikes == 1
    assert reports.words.count("cancelled itself") == 2


async def test_a_stubborn_hook_holds_nobody_much_longer_than_its_deadline():
    closed = []

    async def on_event(event):
        try:
            while True:
                try:
                    await forever()
                except asyncio.CancelledError:
                    continue
        finally:
            closed.append(event)

    reports = Reports()
    hooks, owners = registered(("mule", on_event), deadline=0.02, report=reports)
    await asyncio.wait_for(tell(hooks), 5)
    assert closed == [EVENT] and owners["mule"].strikes == 1
    assert "plugin mule failed in on_event: took longer than 0.02 s" in reports.words


async def test_relays_are_called_by_tasks_that_are_being_cancelled_too():
    seen = []

    async def on_event(event):
        await forever()

    @named("on_event")
    async def hears(event):
        await asyncio.sleep(0)
        seen.append(event)

    hooks, owners = registered(("slow", on_event), ("p", hears), deadline=0.01)

    async def dying() -> None:
        try:
            await forever()
        finally:
            await tell(hooks)

    task = asyncio.create_task(dying())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [EVENT] and owners["slow"].strikes == 1


# --- the stop


async def test_the_stop_hook_knows_who_and_why():
    seen = []

    async def agent_loop_stopped(session_key, reason, invalidation_reason):
        seen.append((session_key, reason, invalidation_reason))

    hooks, _ = registered(("listener", agent_loop_stopped))
    await stop(hooks)
    assert seen == [("agent:main:test:dm:me", "user_stop", "stop_command")]


async def test_at_a_stop_all_begin_at_once_and_in_order_on_the_loops_thread():
    order, thread = [], threading.get_ident()

    def began(name):
        order.append(name)
        assert threading.get_ident() == thread

    @named("agent_loop_stopped")
    async def first():
        began("a")
        await asyncio.sleep(0)
        order.append("a continues")

    @named("agent_loop_stopped")
    def second():
        began("b")
        second.task = asyncio.create_task(asyncio.sleep(0))

    @named("agent_loop_stopped")
    async def third():
        began("c")

    hooks, _ = registered(("a", first), ("b", second), ("c", third))
    asyncio.get_running_loop().call_soon(order.append, "the loop continues")
    await stop(hooks)
    assert order == ["a", "b", "c", "the loop continues", "a continues"]
    await second.task


async def test_at_a_stop_the_slow_wait_side_by_side_and_the_stubborn_are_left():
    heard, reports = [], Reports()

    @named("agent_loop_stopped")
    async def hangs():
        await forever()

    @named("agent_loop_stopped")
    async def stubborn():
        while True:
            try:
                await forever()
            except asyncio.CancelledError:
                continue

    @named("agent_loop_stopped")
    async def breaks():
        raise ValueError

    async def agent_loop_stopped(reason):
        await asyncio.sleep(0)
        heard.append(reason)

    many = [(f"slow {n}", hangs) for n in range(20)]
    hooks, owners = registered(
        *many, ("mule", stubborn), ("bad", breaks), ("good", agent_loop_stopped), deadline=0.2, report=reports
    )
    began = time.monotonic()
    await stop(hooks)
    assert time.monotonic() - began < 3.9  # one after the other it would be four
    assert heard == ["user_stop"]
    assert {name for name, owner in owners.items() if owner.strikes == 0} == {"good"}
    assert "plugin mule failed" in reports.words


async def test_at_a_stop_timeouts_and_groups_of_a_hook_are_its_own():
    done = []

    async def agent_loop_stopped():
        mine = asyncio.current_task()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await forever()
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        assert asyncio.current_task() is mine
        done.append(mine)

    hooks, owners = registered(("a", agent_loop_stopped), ("b", agent_loop_stopped))
    await stop(hooks)
    assert len(set(done)) == 2 and asyncio.current_task() not in done
    assert asyncio.current_task().cancelling() == 0
    assert owners["a"].strikes == 0


async def test_what_a_hook_schedules_at_a_stop_is_the_plugins_task():
    owner = PluginOwner("p")

    def agent_loop_stopped():
        agent_loop_stopped.task = asyncio.create_task(forever())

    hooks = Hooks()
    hooks.add(owner, agent_loop_stopped)
    async with track_tasks(owner):
        await stop(hooks)
        assert tasks_of(owner) == {agent_loop_stopped.task}
    assert agent_loop_stopped.task.cancelled()


async def test_a_session_that_is_cancelled_while_it_tells_of_a_stop_is_cancelled():
    async def agent_loop_stopped():
        await forever()

    hooks, owners = registered(("p", agent_loop_stopped))
    task = asyncio.create_task(stop(hooks))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert owners["p"].strikes == 0


# --- blocking


async def test_a_hook_of_alipes_itself_that_blocks_is_logged_and_not_reported(caplog):
    def on_event(event):
        time.sleep(0.15)

    reports = Reports()
    hooks = Hooks(report=reports, watch=LoopActivity(limit=0.1))
    hooks.add(PluginOwner("core", permanent=True), on_event)
    await tell(hooks)
    assert not reports.words and "plugin core in on_event blocked the event loop for 0." in caplog.text


async def test_a_sync_hook_that_blocks_is_a_strike_and_leaves_the_loop_from_its_next_event_on():
    threads, reports = [], Reports()

    def on_event(event):
        threads.append(threading.get_ident())
        time.sleep(0.15)

    hooks, owners = registered(("sleepy", on_event), report=reports, watch=LoopActivity(limit=0.1))
    await tell(hooks)
    assert owners["sleepy"].strikes == 1
    assert "plugin sleepy in on_event blocked the event loop for 0." in reports.words
    await tell(hooks)
    await tell(hooks)
    here = threading.get_ident()
    assert threads[0] == here and here not in threads[1:] and len(threads) == 3
    assert owners["sleepy"].strikes == 1


async def test_off_the_loop_it_has_a_deadline_its_name_and_its_answer():
    let_go, whose = threading.Event(), []

    def before_tool(call):
        whose.append(PLUGIN.get())
        if len(whose) == 1:
            time.sleep(0.15)
        if len(whose) == 3:
            let_go.wait(5)
        return Verdict("allow")

    hooks, owners = registered(("p", before_tool), deadline=1, watch=LoopActivity(limit=0.1))
    assert await may(hooks) == await may(hooks) == Verdict("allow")
    assert (await may(hooks)).ruling == "deny"
    let_go.set()
    assert whose == [owners["p"]] * 3


async def test_an_async_hook_that_blocks_is_a_strike_at_any_of_its_steps(caplog):
    @named("on_event")
    async def at_once(event):
        time.sleep(0.15)

    @named("on_event")
    async def later(event):
        await asyncio.sleep(0)
        time.sleep(0.15)

    hooks, owners = registered(("a", at_once), ("b", later), watch=LoopActivity(limit=0.1))
    await tell(hooks)
    assert owners["a"].strikes == owners["b"].strikes == 1
    assert "plugin a in on_event blocked" in caplog.text and "plugin b in on_event blocked" in caplog.text


async def test_who_waits_while_another_blocks_is_not_late():
    done = []

    async def on_event(event):
        await asyncio.sleep(0.05)
        done.append(event)

    hooks, owners = registered(("p", on_event), deadline=0.1, watch=LoopActivity(limit=0.05))
    asyncio.get_running_loop().call_later(0.01, time.sleep, 0.4)
    await tell(hooks)
    assert done == [EVENT] and owners["p"].strikes == 0


async def test_a_plain_function_that_gives_an_awaitable_is_awaited_also_off_the_loop():
    async def answer() -> Verdict:
        await asyncio.sleep(0)
        return Verdict("deny", "mine")

    def before_tool(call):
        if not before_tool.blocked:
            before_tool.blocked = True
            time.sleep(0.15)
        return answer()

    before_tool.blocked = False
    hooks, _ = registered(("p", before_tool), watch=LoopActivity(limit=0.1))
    for _ in range(2):
        assert await may(hooks) == Verdict("deny", "mine")
    future = asyncio.get_running_loop().create_future()
    future.set_result(Verdict("allow"))

    @named("before_tool")
    def promises(call):
        return future

    hooks, _ = registered(("p", promises))
    assert await may(hooks) == Verdict("allow")


# --- in whose name


async def test_every_call_is_made_in_the_plugins_name_and_what_follows_is_not():
    whose = []

    @named("on_event")
    async def waits(event):
        await asyncio.sleep(0)
        whose.append(PLUGIN.get())

    @named("on_event")
    def plain(event):
        whose.append(PLUGIN.get())
        raise ValueError

    hooks, owners = registered(("a", waits), ("b", plain))
    await tell(hooks)
    assert whose == [owners["a"], owners["b"]] and PLUGIN.get() is None


# --- generations


async def test_a_turn_keeps_the_hooks_it_began_with():
    seen = []

    def hook(name):
        async def on_event(event):
            seen.append(name)

        return on_event

    hooks, old, new = Hooks(), PluginOwner("p"), PluginOwner("p")
    hooks.add(old, hook("old"))
    relay = hooks.dispatcher
    assert hooks.dispatcher is relay
    hooks.remove(old)
    hooks.add(new, hook("new"))
    await relay.notify(specs.on_event, event=EVENT, turn=TURN)
    await tell(hooks)
    assert seen == ["old", "new"]


async def test_strikes_belong_to_one_generation():
    async def on_event(event):
        raise ValueError

    hooks, old, new = Hooks(), PluginOwner("p"), PluginOwner("p")
    hooks.add(old, on_event)
    relay = hooks.dispatcher
    hooks.remove(old)
    hooks.add(new, on_event)
    for _ in range(4):
        await relay.notify(specs.on_event, event=EVENT, turn=TURN)
    await tell(hooks)
    assert old.silenced and old.strikes == 3 and not new.silenced and new.strikes == 1


async def test_hooks_that_come_and_go_while_they_are_called_count_for_the_next_turn():
    seen, owner, other = [], PluginOwner("p"), PluginOwner("q")
    hooks = Hooks()

    @named("on_event")
    async def late(event):
        seen.append("late")

    async def on_event(event):
        seen.append("on_event")
        hooks.add(other, late)
        hooks.remove(owner)

    hooks.add(owner, on_event)
    await tell(hooks)
    assert seen == ["on_event"]
    await tell(hooks)
    assert seen == ["on_event", "late"]


async def test_a_held_relay_keeps_its_plugins_in_use():
    async def on_event(event): ...

    hooks, owners = registered(("p", on_event))
    hooks.add(CORE, on_event)
    relay = hooks.dispatcher
    relay.hold()
    relay.hold()
    waiting = asyncio.create_task(owners["p"].wait_unused())
    relay.release()
    await asyncio.sleep(0)
    assert not waiting.done()
    relay.release()
    await waiting
    await PluginOwner("idle").wait_unused()


async def test_an_empty_relay_calls_nobody():
    relay = HookDispatcher()
    relay.hold()
    await relay.notify(specs.on_event, event=EVENT, turn=TURN)
    assert await relay.filter(specs.turn_context, "x", turn=TURN) == "x"
    assert await relay.decide(specs.before_tool, lambda why: None, call=CALL, turn=TURN) is None
    assert await relay.wrap(specs.around_tool, echo, {}, call=CALL, turn=TURN) == "did {}"
    relay.release()


# --- what plugins do outside hooks


async def test_guarded_work_is_done_in_the_plugins_name_and_gives_what_it_gives():
    owner = PluginOwner("p")

    async def work() -> PluginOwner | None:
        await asyncio.sleep(0)
        return PLUGIN.get()

    assert await guard(owner, "setup", work()) is owner
    future = asyncio.get_running_loop().create_future()
    future.set_result(7)
    assert await guard(owner, "command", future) == 7
    assert owner.strikes == 0


async def test_guarded_work_that_breaks_is_a_strike_and_a_plugin_error(caplog):
    owner = PluginOwner("p")

    async def breaks() -> None:
        raise ValueError("no key")

    async def leaves() -> None:
        raise SystemExit

    async def refused() -> None:
        raise PluginError("p", "tool x", "the tool exists already")

    for work, why in [
        (breaks, "^plugin p: setup: ValueError: no key$"),
        (leaves, "SystemExit"),
        (refused, "^plugin p: tool x: the tool exists"),
    ]:
        with pytest.raises(PluginError, match=why):
            await guard(owner, "setup", work())
    assert owner.strikes == 3 and not owner.silenced
    assert "plugin p failed in setup: ValueError: no key" in caplog.text


async def test_guarded_work_has_the_deadline_it_is_given_and_else_none():
    owner = PluginOwner("p")
    with pytest.raises(PluginError, match=r"took longer than 0\.01 s"):
        await guard(owner, "setup", forever(), deadline=0.01)
    task = asyncio.create_task(guard(owner, "a task", forever()))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert owner.strikes == 1


async def test_a_plugin_that_is_off_may_still_close_what_it_opened():
    owner, closed = PluginOwner("p"), []
    owner.disable("asked to")

    async def close() -> None:
        closed.append(1)

    await guard(owner, "closing", close())
    assert closed == [1]


async def test_setup_that_blocks_is_named_and_no_strike(caplog):
    owner = PluginOwner("heavy")

    async def imports() -> None:
        time.sleep(0.3)

    caplog.set_level(logging.WARNING)
    await guard(owner, "setup", imports())
    assert "plugin heavy in setup blocked the event loop for 0." in caplog.text and owner.strikes == 0


async def test_a_hook_of_alipes_that_never_waits_needs_no_task_at_the_end_of_a_turn():
    tasks, over = {}, asyncio.Event()

    def hook(name, *, waits):
        async def short(turn):
            tasks[name] = asyncio.current_task()

        async def long(turn):
            tasks[name] = asyncio.current_task()
            await over.wait()

        return long if waits else short

    hooks = Hooks()
    hooks.add(CORE, hook("short", waits=False), name="turn_ended")
    hooks.add(CORE, hook("long", waits=True), name="turn_ended")
    hooks.add(PluginOwner("other"), hook("plugin", waits=False), name="turn_ended")
    hooks.add(CORE, hook("last", waits=False), name="turn_ended")
    asyncio.get_running_loop().call_soon(over.set)
    await hooks.dispatcher.notify(specs.turn_ended, turn=None)
    assert list(tasks) == ["short", "long", "plugin", "last"]
    me = asyncio.current_task()
    assert [task is me for task in tasks.values()] == [True, False, False, True]
