"""Work beside a conversation: it outlives the turn that began it, and reports; and what survives a crash."""

import asyncio

from alipes.config.settings import DelegationConfig
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import AnswerApproval, ApprovalAsked, Envelope, Notice, Said, Stop, TurnEnded
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.plugins.specs import Verdict
from alipes.sessions.subagents.registry import background_task
from alipes.store.sqlite.store import open_store
from tests.unit.features.subagents.test_tool import KEY, NAP, no_trace, parent_and, results
from tests.world.subagent_harness import HERE, RuleModel, SleepTool, delegate, message, open_subagents


async def transcript(family):
    standing = await family.store.sessions.active(KEY)
    return [(m.role, m.text) for m in await family.store.archive.messages(standing.session) if m.text]


class Gate:
    """A mind whose subagents wait until they are let go on."""

    def __init__(self, *, call=None, last="sent off"):
        self.open, self.waiting = asyncio.Event(), asyncio.Event()

        def answer(seen, request):
            if seen.role == "notice":
                return "I was sent"
            if seen.role == "tool":
                return last
            return (call or delegate(goal="look", background=True)) if seen.text == "go" else self._child(seen)

        self.mind = RuleModel(answer)

    async def _child(self, seen):
        self.waiting.set()
        await self.open.wait()
        return f"I did {seen.text}"


async def heard(family, kind, key=KEY):
    """The next event of a kind under a key."""
    async with family.sessions.watch(key) as envelopes:
        async for envelope in envelopes:
            if isinstance(envelope.event, kind):
                return envelope.event
    raise AssertionError("nobody speaks any longer")


async def test_a_detached_subagent_reports_by_a_notice_that_the_model_answers(tmp_path):
    gate = Gate()
    async with open_subagents(tmp_path, gate.mind) as family:
        end = await family.ask(message("1", "go", model="mine/m"))
        assert end.ending == "answered" and "each will report" in results(family)[0].text
        async with family.sessions.watch(KEY) as envelopes:
            gate.open.set()
            async for envelope in envelopes:
                if isinstance(envelope.event, TurnEnded):
                    break
        seen = await transcript(family)
        assert [role for role, _ in seen] == ["user", "assistant", "notice", "assistant"]
        assert "“look”" in seen[2][1] and "I did look" in seen[2][1] and "not an instruction" in seen[2][1]
        assert seen[3] == ("assistant", "I was sent")
        report = family.begun[-1].inbound
        assert report.notice == "answered" and report.address == HERE and report.model == "mine/m"
        await no_trace(family)


async def test_a_stop_leaves_what_was_detached_at_work_and_names_it(tmp_path):
    def answer(seen, request):
        if seen.text == "go":
            return delegate(goal="look", background=True), NAP
        return "I was sent" if seen.role == "notice" else NAP

    nap = SleepTool()
    async with open_subagents(tmp_path, RuleModel(answer), nap) as family:
        async with family.sessions.ask(message("1", "go")) as following:
            await nap.until(2)
            await family.sessions.post(KEY, Stop())
            events = [event async for event in following]
        assert events[-1].ending == "stopped" and nap.asleep == 1
        (note,) = [event.text for event in events if isinstance(event, Notice)]
        assert note.startswith("still running in the background: subagent") and "“look”" in note
        (child,) = await family.store.subagents.unfinished(place=KEY)
        async with family.sessions.watch(KEY) as envelopes:
            await family.sessions.post(child.key, Stop("user_stop", "session_interrupt", child.id))
            async for envelope in envelopes:
                if isinstance(envelope.event, TurnEnded):
                    break
        assert "was stopped before it finished: by the user" in (await transcript(family))[-2][1]


async def test_a_report_is_taken_in_by_the_turn_that_lives(tmp_path):
    gate, nap = Gate(), SleepTool()
    async with open_subagents(tmp_path, gate.mind, nap) as family:
        await family.ask(message("1", "go"))
        await gate.waiting.wait()
        pause = asyncio.Event()
        gate.mind._answer = lambda seen, request: (
            _after(pause, "I heard it") if seen.text == "wait" else "and took it in"
        )
        async with family.sessions.ask(message("2", "wait")) as following:
            child = asyncio.create_task(heard(family, TurnEnded, (await family.store.subagents.unfinished())[0].key))
            await asyncio.sleep(0)
            gate.open.set()
            await child
            pause.set()
            said = [event.message.role async for event in following if isinstance(event, Said)]
        assert said == ["user", "assistant", "notice", "assistant"]
        assert (await transcript(family))[-1] == ("assistant", "and took it in")


async def _after(event, words):
    await event.wait()
    return words


async def test_no_more_is_sent_off_than_the_limit_says(tmp_path):
    call = delegate(tasks=[{"goal": "one"}, {"goal": "two"}], background=True)
    gate = Gate(call=call)
    async with open_subagents(tmp_path, gate.mind, limits=DelegationConfig(parallel=1)) as family:
        await family.ask(message("1", "go"))
        assert results(family)[0].outcome == "failed" and len(family.begun) == 1


async def test_what_a_person_has_done_beside_is_shown_at_once_and_only_kept_for_the_model(tmp_path):
    owed, gate = [], Gate()

    def enqueue_answer(turn, event):
        if turn.inbound.address == HERE and isinstance(event, Notice):
            owed.append(event.text)
            return (Outbound(f"{turn.id}:reported", HERE, event.text),)
        return ()

    async with open_subagents(tmp_path, gate.mind, outbound=enqueue_answer) as family:
        standing = await family.store.sessions.open(HERE)
        asked = background_task(message("1", "look it up"), standing.session)
        assert await family.sessions.submit(asked, "queue", ruled=True)
        assert await family.sessions.submit(asked, "queue", ruled=True) is None
        async with family.sessions.watch(KEY) as envelopes:
            gate.open.set()
            seen = [await anext(envelopes) for _ in range(3)]
        shown = [each for each in seen if isinstance(each.event, Notice)]
        assert shown == [Envelope(KEY, "", Notice(owed[0]))]
        assert "look it up" in owed[0] and "I did look it up" in owed[0]
        assert (await family.store.outbox.list_deliveries())[0].outbound.text == owed[0]
        (reported,) = await transcript(family)
        assert reported[0] == "notice" and "I did look it up" in reported[1]
        assert len(gate.mind.asked) == 1
        await no_trace(family)


async def test_a_parent_resumed_after_a_crash_finds_its_children_and_begins_none_twice(tmp_path):
    gate = Gate(call=delegate(tasks=[{"goal": "one"}, {"goal": "two"}]))
    async with open_subagents(tmp_path, gate.mind) as family:
        async with family.sessions.ask(message("1", "go")) as following:
            await gate.waiting.wait()
        ids = {turn.id for turn in family.begun}
    again = parent_and(lambda text: f"I did {text} again")
    async with open_subagents(tmp_path, again) as family:
        await family.sessions.wait_idle()
        facts = await family.store.archive.turn(following.turn)
        assert facts.ending == "answered"
        (result,) = [part for part in facts.said[2].parts]
        assert "2 of 2 tasks done." in result.text and "I did one again" in result.text
        assert sorted(turn.id for turn in family.begun) == sorted(ids)
        await no_trace(family)


async def test_a_child_that_was_done_before_the_crash_is_not_asked_again(tmp_path):
    gate, once = asyncio.Event(), []

    async def child(seen):
        once.append(seen.text)
        if seen.text == "two":
            gate.set()
            await asyncio.Event().wait()
        return f"I did {seen.text}"

    def answer(seen, request):
        if seen.text == "go":
            return delegate(tasks=[{"goal": "one"}, {"goal": "two"}])
        return "done" if seen.role == "tool" else child(seen)

    async with open_subagents(tmp_path, RuleModel(answer)) as family:
        async with family.sessions.ask(message("1", "go")) as following:
            async for event in following:
                if getattr(event, "text", "").startswith("1. “one”: done"):
                    break
            await gate.wait()
    async with open_subagents(tmp_path, parent_and(lambda text: f"late {text}")) as family:
        await family.sessions.wait_idle()
        facts = await family.store.archive.turn(following.turn)
        (result,) = facts.said[2].parts
        assert "I did one" in result.text and "late two" in result.text
        assert len([turn for turn in family.begun if turn.inbound.parent]) == 1


async def test_a_child_whose_parent_is_over_is_not_resumed_again(tmp_path):
    gate = Gate(call=delegate(goal="one"))
    async with open_subagents(tmp_path, gate.mind) as family:
        async with family.sessions.ask(message("1", "go")) as following:
            await gate.waiting.wait()
    async with open_store(tmp_path) as store:  # as if killed between the two endings
        turn = await store.turns.claim_next(KEY)
        await store.turns.finish(turn, "stopped", "user_stop")
        await store.turns.release(KEY)
    mind, seen = parent_and("never"), []

    async def subagent_ended(ending):
        seen.append(ending)

    hooks = Hooks()
    hooks.add(PluginOwner("listener"), subagent_ended)
    async with open_subagents(tmp_path, mind, hooks=hooks) as family:
        await family.sessions.wait_idle()
        assert mind.asked == [] and family.begun == [] and seen == ["stopped"]
        assert (await family.store.archive.turn(following.turn)).ending == "stopped"
        await no_trace(family)


async def test_a_parent_that_was_stopped_while_nobody_lived_it_takes_its_children_along(tmp_path):
    gate = Gate(call=delegate(goal="one"))
    async with open_subagents(tmp_path, gate.mind) as family:
        async with family.sessions.ask(message("1", "go")) as following:
            await gate.waiting.wait()
        await family.store.turns.put_op(KEY, Stop("user_stop", "session_interrupt", following.turn))
    mind = parent_and(lambda text: asyncio.Event().wait())
    async with open_subagents(tmp_path, mind) as family:
        await family.sessions.wait_idle()
        assert (await family.store.archive.turn(following.turn)).ending == "stopped"
        await no_trace(family)


async def test_a_detached_subagent_continues_at_the_next_start_and_reports_once(tmp_path):
    gate = Gate()
    async with open_subagents(tmp_path, gate.mind) as family:
        await family.ask(message("1", "go"))
        await gate.waiting.wait()
    gate.open.set()
    for _ in range(2):
        async with open_subagents(tmp_path, gate.mind) as family:
            await family.sessions.wait_idle()
            seen = await transcript(family)
            assert [role for role, _ in seen] == ["user", "assistant", "notice", "assistant"]
            await no_trace(family)


async def test_a_question_of_what_is_detached_is_answered_from_another_process(tmp_path):
    async def before_tool(call):
        return Verdict("ask", "sleeps") if call.name == "nap" else None

    def answer(seen, request):
        if seen.text == "go":
            return delegate(goal="look", background=True)
        return NAP if seen.text == "look" else "so be it"

    hooks, nap = Hooks(), SleepTool()
    hooks.add(PluginOwner("gate"), before_tool)
    async with (
        open_subagents(tmp_path, RuleModel(answer), nap, hooks=hooks, interactive=True, idle_seconds=0.01) as family,
        open_subagents(tmp_path, RuleModel(answer), interactive=True) as other,
    ):
        async with other.sessions.watch(KEY) as envelopes:
            await family.ask(message("1", "go"))
            async for envelope in envelopes:
                if isinstance(envelope.event, ApprovalAsked):
                    break
            await other.sessions.post(KEY, AnswerApproval(envelope.event.ask, "once", "me"))
            await nap.until(1)
