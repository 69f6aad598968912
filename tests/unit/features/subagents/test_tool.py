"""Subagents: turns of their own that work for another, report to it, and end with it."""

import asyncio

import pytest

from alipes.config.settings import DelegationConfig
from alipes.features.subagents.tool import DelegateTask
from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.turns import AnswerApproval, ApprovalAsked, Said, Stop, ToolProgress, TurnEnded
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.plugins.specs import Verdict
from alipes.store.sql.subagents import PLATFORM
from tests.world.environment import LIMIT_S
from tests.world.subagent_harness import HERE, RuleModel, SleepTool, delegate, message, open_subagents

KEY = HERE.key
NAP = ToolCall("n1", "nap", {})


def results(family):
    """What the calls of the parent gave, as it was sent."""
    said = [event.message for event in family.events if isinstance(event, Said)]
    return [part for each in said for part in each.parts if isinstance(part, ToolResult)]


def parent_and(child, *, last="done", call=None):
    """A mind: the person's word begins subagents, each of which answers by `child(text)`."""

    def answer(seen, request):
        if seen.role == "tool":
            return last
        if seen.text == "go":
            return call or delegate(tasks=[{"goal": "one"}, {"goal": "two"}])
        return child(seen.text) if callable(child) else child

    return RuleModel(answer)


async def no_trace(family):
    """Nothing is left of subagents: no row that waits, no session, nothing kept in mind."""
    assert await family.store.subagents.unfinished() == ()
    assert family.sessions.subagents._runs == {}
    async with asyncio.timeout(LIMIT_S):
        while [key for key in family.sessions._sessions if PLATFORM in key]:
            await asyncio.sleep(0)


async def test_each_task_is_a_turn_of_its_own_and_its_last_words_are_the_result(tmp_path):
    mind = parent_and(lambda text: f"I did {text}")
    async with open_subagents(tmp_path, mind, SleepTool()) as family:
        end = await family.ask(message("1", "go", workdir="/tmp"))
        assert end.ending == "answered"
        (result,) = results(family)
        assert result.outcome == "ok" and result.text.startswith("2 of 2 tasks done.")
        assert "1. “one”: done" in result.text and "I did one" in result.text and "I did two" in result.text
        children = [turn.inbound for turn in family.begun if turn.inbound.parent]
        assert [each.parent for each in children] == [end.turn] * 2
        assert {each.depth for each in children} == {1} and {each.workdir for each in children} == {"/tmp"}
        assert len({turn.session for turn in family.begun}) == 3
        assert any("done" in event.text for event in family.events if isinstance(event, ToolProgress))
        await no_trace(family)


async def test_a_subagent_sees_its_goal_and_context_and_nothing_else(tmp_path):
    call = delegate(goal="count the files", context="they are in /srv", tools=["nap"], model="other/m")
    mind = parent_and("three", call=call)
    async with open_subagents(tmp_path, mind, SleepTool()) as family:
        await family.ask(message("1", "go"))
        child = family.begun[1].inbound
        assert child.only == ("nap",) and child.model == "other/m" and "subagent" in child.instructions
        (request,) = [each for each in mind.asked if "count the files" in each.messages[0].text]
        assert [seen.text for seen in request.messages] == ["count the files\n\n# Context\nthey are in /srv"]
        assert [tool.name for tool in request.tools] == ["nap"]


async def test_a_subagent_is_never_given_more_than_its_parent_has(tmp_path):
    mind = parent_and("never", call=delegate(goal="x", tools=["nap"]))
    async with open_subagents(tmp_path, mind, SleepTool()) as family:
        await family.ask(message("1", "go", only=("delegate_task",)))
        (result,) = results(family)
        assert result.outcome == "failed" and "nap" in result.text
        assert len(family.begun) == 1
        mind = parent_and("fine", call=delegate("c2", goal="x"))
    async with open_subagents(tmp_path, mind, SleepTool()) as family:
        await family.ask(message("2", "go", only=("delegate_task",)))
        assert family.begun[1].inbound.only == ("delegate_task",)


async def test_at_the_last_depth_nobody_can_delegate(tmp_path):
    def child(text):
        return delegate("deep", goal="deeper")

    mind = parent_and(child, call=delegate(goal="one"))
    async with open_subagents(tmp_path, mind, SleepTool(), limits=DelegationConfig(depth=1)) as family:
        await family.ask(message("1", "go"))
        assert family.begun[1].inbound.only == ("nap",)
        assert max(turn.inbound.depth for turn in family.begun) == 1


async def test_failures_are_reported_as_such_and_keep_nobody_else_from_being_done(tmp_path):
    mind = parent_and(lambda text: ProviderError("the model is on fire") if text == "one" else "I did it")
    async with open_subagents(tmp_path, mind) as family:
        await family.ask(message("1", "go"))
        (result,) = results(family)
        assert result.outcome == "ok" and result.text.startswith("1 of 2 tasks done.")
        assert "1. “one”: failed: the model is on fire" in result.text and "I did it" in result.text


async def test_where_nothing_was_done_the_call_has_failed(tmp_path):
    mind = parent_and(ProviderError("the model is on fire"))
    async with open_subagents(tmp_path, mind) as family:
        await family.ask(message("1", "go"))
        (result,) = results(family)
        assert result.outcome == "failed" and "0 of 2 tasks done." in result.text


@pytest.mark.parametrize(
    "args, word",
    [
        ({}, "no goal given"),
        ({"tasks": [{"goal": " "}]}, "needs a goal"),
        ({"tasks": [{"goal": str(n)} for n in range(20)]}, "several calls"),
    ],
)
async def test_a_call_that_says_too_little_or_wants_too_much_begins_nothing(tmp_path, args, word):
    mind = parent_and("never", call=delegate(**args))
    async with open_subagents(tmp_path, mind) as family:
        await family.ask(message("1", "go"))
        (result,) = results(family)
        assert result.outcome == "failed" and word in result.text
        assert len(family.begun) == 1


async def test_no_more_work_at_once_than_the_limit_says(tmp_path):
    most = living = 0
    three = asyncio.Barrier(3)

    async def child():
        nonlocal most, living
        living += 1
        most = max(most, living)
        await three.wait()
        living -= 1
        return "ok"

    call = delegate(tasks=[{"goal": str(n)} for n in range(9)])
    mind = parent_and(lambda text: child(), call=call)
    async with open_subagents(tmp_path, mind, limits=DelegationConfig(parallel=3)) as family:
        await family.ask(message("1", "go"))
        (result,) = results(family)
        assert "9 of 9 tasks done." in result.text and most == 3


async def test_stopping_the_parent_stops_all_beneath_it(tmp_path):
    """Two deep: the person's turn, two subagents, and under each another, asleep in a tool."""

    def answer(seen, request):
        if seen.text == "go":
            return delegate(tasks=[{"goal": "one"}, {"goal": "two"}])
        return NAP if seen.text.startswith("deeper") else delegate("d", goal="deeper")

    nap, mind, seen = SleepTool(), RuleModel(answer), []

    async def agent_loop_stopped(reason, turn):
        seen.append((reason, turn.inbound.depth))

    hooks = Hooks()
    hooks.add(PluginOwner("listener"), agent_loop_stopped)
    async with open_subagents(tmp_path, mind, nap, hooks=hooks) as family:
        async with family.sessions.ask(message("1", "go")) as following:
            await nap.until(2)
            await family.sessions.post(KEY, Stop("user_stop", "stop_command"))
            ends = [event async for event in following if isinstance(event, TurnEnded)]
        assert [end.ending for end in ends] == ["stopped"] and nap.asleep == 0 and mind.living == 0
        assert sorted(seen) == [("user_stop", depth) for depth in (0, 1, 1, 2, 2)]
        turns = [await family.store.archive.turn(turn.id) for turn in family.begun]
        assert [facts.ending for facts in turns] == ["stopped"] * 5
        asked = len(mind.asked)
        await no_trace(family)
        assert len(mind.asked) == asked


async def test_one_subagent_is_stopped_alone_and_what_it_said_is_kept(tmp_path):
    def answer(seen, request):
        if seen.text == "go":
            return delegate(tasks=[{"goal": "one"}, {"goal": "two"}])
        if seen.role == "tool" and len(request.messages) == 3 and "task" in seen.parts[0].text:
            return "done"
        return "I did two" if seen.text == "two" else (ToolCall("n1", "nap", {}),)

    nap = SleepTool()
    async with open_subagents(tmp_path, RuleModel(answer), nap) as family:
        asking = asyncio.create_task(family.ask(message("1", "go")))
        await nap.until(1)
        while len(left := await family.store.subagents.unfinished(place=KEY)) > 1:
            await asyncio.sleep(0.01)
        (one,) = left
        await family.sessions.post(one.key, Stop("user_stop", "session_interrupt", one.id))
        assert (await asking).ending == "answered"
        (result,) = results(family)
        assert "“one”: stopped before it finished: by the user" in result.text
        assert "I did two" in result.text and result.outcome == "ok"


async def test_a_subagent_that_takes_too_long_is_stopped(tmp_path):
    nap = SleepTool()
    mind = parent_and(lambda text: NAP, call=delegate(goal="one"))
    async with open_subagents(tmp_path, mind, nap, max_subagent_seconds=0.05) as family:
        await family.ask(message("1", "go"))
        (result,) = results(family)
        assert result.outcome == "failed" and "it took too long" in result.text and nap.asleep == 0


async def test_plugins_hear_of_each_child_once_when_it_begins_and_ends(tmp_path):
    heard = []

    async def subagent_started(parent, session, role, goal):
        heard.append(("began", parent.id, session, role, goal))

    async def subagent_ended(parent, session, role, goal, ending, summary, seconds):
        heard.append(("ended", parent.id, session, role, goal, ending, summary, seconds >= 0))

    hooks = Hooks()
    hooks.add(PluginOwner("listener"), subagent_started)
    hooks.add(PluginOwner("listener"), subagent_ended)
    mind = parent_and("well", call=delegate(goal="one"))
    async with open_subagents(tmp_path, mind, hooks=hooks) as family:
        end = await family.ask(message("1", "go"))
        session = family.begun[1].session
    assert heard == [
        ("began", end.turn, session, "orchestrator", "one"),
        ("ended", end.turn, session, "orchestrator", "one", "answered", "well", True),
    ]


async def test_a_stopped_child_has_ended_once_for_plugins_too(tmp_path):
    heard = []

    async def subagent_ended(session, ending):
        heard.append(ending)

    hooks, nap = Hooks(), SleepTool()
    hooks.add(PluginOwner("listener"), subagent_ended)
    async with open_subagents(tmp_path, parent_and(lambda text: NAP), nap, hooks=hooks) as family:
        async with family.sessions.ask(message("1", "go")) as following:
            await nap.until(2)
            await family.sessions.post(KEY, Stop())
            assert [e.ending async for e in following if isinstance(e, TurnEnded)] == ["stopped"]
        await no_trace(family)
    assert heard == ["stopped", "stopped"]


async def test_what_a_child_may_not_do_alone_is_asked_in_the_conversation_of_the_person(tmp_path):
    async def before_tool(call):
        return Verdict("ask", "sleeps") if call.name == "yawn" else None

    class Yawn(SleepTool):
        spec = SleepTool.spec.__class__("yawn", "yawn", {"type": "object", "properties": {}})

        async def run(self, args, act):
            return "yawned"

    def answer(seen, request):
        if seen.text == "go":
            return delegate(goal="one")
        return "done" if seen.role == "tool" else ToolCall("y1", "yawn", {})

    hooks = Hooks()
    hooks.add(PluginOwner("gate"), before_tool)
    async with open_subagents(tmp_path, RuleModel(answer), Yawn(), hooks=hooks, interactive=True) as family:
        async with family.sessions.ask(message("1", "go")) as following:
            async for event in following:
                if isinstance(event, ApprovalAsked):
                    assert event.call.name == "yawn"
                    ((_, asked),) = family.sessions.questions.open(KEY)
                    assert family.sessions.questions.is_waiting(following.turn)
                    await family.sessions.post(KEY, AnswerApproval(asked.ask, "session", "me"))
                assert not isinstance(event, TurnEnded) or event.ending == "answered"
        child = await family.store.archive.turn(family.begun[1].id)
        (result,) = child.said[-2].parts
        assert result.text == "yawned"


AGE = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


async def test_a_report_with_a_schema_is_a_document_and_one_that_does_not_match_says_where(tmp_path):
    call = delegate(tasks=[{"goal": "right"}, {"goal": "wrong"}], schema=AGE)
    mind = parent_and(lambda text: 'Here: {"age": 4}' if "right" in text else '{"age": "four"}', call=call)
    async with open_subagents(tmp_path, mind, schemas=True) as family:
        await family.ask(message("1", "go"))
        (result,) = results(family)
    assert "1. “right”: done" in result.text and '\n{"age": 4}' in result.text
    assert "2. “wrong”: gave up: the answer does not match its schema at $.age: 'four' is not of type" in result.text


async def test_a_schema_that_cannot_be_used_is_named_to_the_model(tmp_path):
    mind = parent_and("never", call=delegate(goal="one", schema={"type": "x"}))
    async with open_subagents(tmp_path, mind, schemas=True) as family:
        await family.ask(message("1", "go"))
        (result,) = results(family)
    assert result.outcome == "failed" and "The schema is not valid at $.type" in result.text


def test_the_parameter_is_listed_only_if_it_is_switched_on():
    plain, with_schemas = DelegateTask(None).spec, DelegateTask(None, schemas=True).spec
    assert "schema" not in plain.schema["properties"] and "agent" not in plain.schema["properties"]
    assert with_schemas.schema["properties"]["schema"]["type"] == "object"
