"""Contract of archive, search, questions, usage, compaction, memory, proposals, schedules, health and changes."""

import time
from datetime import UTC

import pytest
from msgspec import structs

from alipes.features.memory.change import MemoryChange, MemoryOrigin
from alipes.features.memory.store import MemoryStore
from alipes.features.schedules.job import FirePlan, Job
from alipes.features.schedules.run import NewRun, RunBudget, Settlement
from alipes.features.schedules.store.jobs import ScheduleStore
from alipes.features.schedules.store.runs import ScheduleRunStore
from alipes.features.schedules.timetable import parse_timetable
from alipes.features.skills.store import SkillUseStore
from alipes.features.usage.store import UsageDay, UsageReports
from alipes.kernel.errors import SessionError
from alipes.kernel.messages import Text, assistant, user
from alipes.kernel.turns import Address, CompactionState, Inbound, Said, Usage
from alipes.store.ports.search import SearchScope
from alipes.store.sql.proposals import Proposal
from alipes.store.sql.questions import StoredQuestion
from alipes.store.sql.usage import UsageRecord

HERE, THERE = Address("telegram", "1"), Address("telegram", "2")


async def start_turn(store, id="1", address=HERE, text="hello"):
    await store.turns.accept(Inbound(id, address, "me", text))
    turn = await store.turns.claim_next(address.key)
    await store.turns.record(turn, Said(user(text)))
    return turn


async def run_turn(store, id="1", address=HERE, text="hello", answer="hi"):
    turn = await start_turn(store, id, address, text)
    await store.turns.record(turn, Said(assistant(Text(answer)), "m", Usage(10, 5, cost=0.5)))
    await store.turns.finish(turn, "answered", "")
    await store.turns.release(address.key)
    return turn


async def test_a_search_finds_words_within_its_scope_only(opened):
    async with opened() as store:
        await run_turn(store, "1", HERE, "the blue zebra")
        await run_turn(store, "2", THERE, "the red zebra")
        found = await store.archive.search("zebra", scope=SearchScope(key=HERE.key))
        assert [hit.snippet for hit in found] == ["the blue [zebra]"]


async def test_a_deleted_conversation_is_found_no_longer(opened):
    async with opened() as store:
        turn = await run_turn(store, text="the blue zebra")
        await store.archive.delete(turn.session)
        assert await store.archive.search("zebra") == []
        with pytest.raises(SessionError):
            await store.archive.messages(turn.session)


async def test_a_conversation_is_found_by_the_start_of_its_id(opened):
    async with opened() as store:
        turn = await run_turn(store)
        assert (await store.archive.resolve(turn.session[:8])).id == turn.session


async def test_the_usage_of_a_session_is_summed(opened):
    async with opened() as store:
        turn = await run_turn(store)
        total = await store.archive.usage(session=turn.session)
        assert (total.calls, total.usage.input, total.usage.cost) == (1, 10, 0.5)


async def test_all_messages_are_indexed_in_steps(opened):
    async with opened() as store:
        await run_turn(store)
        while await store.search_indexer.index_some():
            pass
        assert await store.search_indexer.count_missing(10) == 0


async def test_a_question_is_answered_once(opened):
    async with opened() as store, opened() as other:
        turn = await start_turn(store)
        now = time.time()
        asked = StoredQuestion("q1", turn.session, turn.key, turn.id, "Which?", ("a", "b"), now, now + 60)
        await store.questions.ask(asked)
        assert [each.asked.id for each in await other.questions.list_open()] == ["q1"]
        assert await other.questions.answer("q1", "a", "Ann")
        assert not await store.questions.answer("q1", "b", "Bob")
        assert (await store.questions.find("q1")).answer == "a"


async def test_auxiliary_calls_count_for_their_turn(opened):
    async with opened() as store:
        turn = await start_turn(store)
        await store.usage_ledger.add(UsageRecord(turn, "title", "m", Usage(3, 2, cost=0.25)))
        assert (await store.usage_ledger.turn_total(turn)).dollars == 0.25
        assert (await store.usage_ledger.session_total(turn.session)).tokens == 5


async def test_a_report_has_a_row_for_each_model(opened):
    async with opened() as store:
        await run_turn(store)
        start = time.time() // 900 * 900
        (row,) = await UsageReports(store.database).report([UsageDay("today", start - 900, start + 1800)], ["model"])
        assert (row.groups, row.calls, row.usage.output) == ({"model": "m"}, 1, 5)


async def test_a_skill_counts_once_per_turn(opened):
    async with opened() as store:
        turn = await start_turn(store)
        uses = SkillUseStore(store.database)
        await uses.add(turn, "mail", "read")
        await uses.add(turn, "mail", "read")
        assert (await uses.totals())["mail"].uses == 1


async def test_a_summary_of_undone_messages_is_not_saved(opened):
    async with opened() as store:
        turn = await run_turn(store)
        latest = await store.compaction.latest(turn.session)
        await store.sessions.undo(HERE.key)
        assert not await store.compaction.save(latest, CompactionState(2, "short"))


async def test_failed_compactions_are_counted_until_they_are_reset(opened):
    async with opened() as store:
        turn = await run_turn(store)
        await store.compaction.record_failure(turn.session, "no model")
        assert (await store.compaction.attempts(turn.session)).why == "no model"
        await store.compaction.reset_attempts(turn.session)
        assert (await store.compaction.attempts(turn.session)).count == 0


async def test_changes_of_notes_are_listed_newest_first(opened):
    async with opened() as store:
        memory = MemoryStore(store.database)
        for before, after in (("", "a"), ("a", "b")):
            change = MemoryChange(0, "", "memory", "add", before, after, MemoryOrigin("agent"), 0.0)
            await memory.record(change)
        assert [each.after for each in await memory.list_changes("", 10)] == ["b", "a"]
        assert await memory.last_text("", "memory") == "b"


async def test_a_branch_gets_the_notes_of_its_conversation(opened):
    async with opened() as store:
        turn = await run_turn(store)
        memory = MemoryStore(store.database)
        await memory.save_snapshot(turn.session, "", "notes")
        branch = await store.sessions.branch(HERE.key)
        assert await memory.find_snapshot(branch.new) == ("", "notes")


async def test_a_proposal_is_decided_once(opened):
    async with opened() as store, opened() as other:
        proposal = await store.proposals.add(Proposal("", "memory", "", "{}", "why", "", ""))
        assert (await store.proposals.add(Proposal("", "memory", "", "{}", "why", "", ""))).id == proposal.id
        assert await other.proposals.decide(proposal.id, "accepted", "Ann")
        assert not await store.proposals.decide(proposal.id, "rejected", "Bob")


def make_job(name="daily"):
    return Job(name, "every 1h", parse_timetable("every 1h", 0.0, UTC), "UTC", "Say hello")


def jobs_of(store):
    return ScheduleStore(store.database, store.schedule_changes)


def runs_of(store):
    return ScheduleRunStore(store.database, store.schedule_changes)


async def test_two_jobs_cannot_have_one_name(opened):
    async with opened() as store:
        assert await jobs_of(store).add(make_job(), 10.0)
        assert await jobs_of(store).add(make_job(), 20.0) is None


async def test_a_due_job_fires_once_in_two_processes(opened):
    async with opened() as store, opened() as other:
        await jobs_of(store).add(make_job(), 10.0)
        plan = FirePlan(fire_at=10.0, next_due=5000.0, runs=True)
        assert await jobs_of(store).fire_due(4000.0, lambda _: plan) == 1
        assert await jobs_of(other).fire_due(4000.0, lambda _: plan) == 0
        assert len(await runs_of(store).latest()) == 1


async def test_a_job_with_runs_left_is_done_after_the_last_one(opened):
    async with opened() as store:
        job = structs.replace(make_job(), runs_left=2)
        jobs = jobs_of(store)
        await jobs.add(job, 10.0)
        plan = FirePlan(fire_at=10.0, next_due=5000.0, runs=True)
        assert await jobs.fire_due(4000.0, lambda _: structs.replace(plan, runs=False)) == 1  # missed: none is used up
        assert await jobs.fire_due(6000.0, lambda _: structs.replace(plan, next_due=9000.0)) == 1
        (found,) = await jobs.all()
        assert (found.state, found.due, found.job.runs_left) == ("on", 9000.0, 1)
        assert await jobs.fire_due(9000.0, lambda _: structs.replace(plan, next_due=12_000.0)) == 1
        (found,) = await jobs.all()
        assert (found.state, found.due) == ("done", None)


async def test_a_run_whose_budget_is_used_up_is_left_out(opened):
    async with opened() as store:
        await runs_of(store).add(NewRun("s1", make_job(), 10.0, 10.0))
        spent = RunBudget(0.0, "", 0.0, None, "used up")
        assert await runs_of(store).start_waiting(20.0, 8, lambda _: None, lambda _: (spent,)) == ()
        (run,) = await runs_of(store).latest()
        assert (run.state, run.detail) == ("skipped", "used up")


async def test_a_started_run_has_its_turn_and_is_settled_once(opened):
    address = Address("schedule", "s1")
    async with opened() as store:
        await runs_of(store).add(NewRun("s1", make_job(), 10.0, 10.0))
        keys = await runs_of(store).start_waiting(
            20.0, 8, lambda run: Inbound(f"run:{run.number}", address, "me", run.job.prompt), lambda _: ()
        )
        assert keys == (address.key,)
        (run,) = await runs_of(store).running()
        assert await store.turns.claim_next(address.key)
        assert await runs_of(store).settle(run, Settlement()) in ((), None)


async def test_an_announced_change_of_jobs_reaches_another_process(opened):
    async with opened() as store, opened() as other:
        await store.schedule_changes.announce()
        await other.schedule_changes.changed.wait()


async def test_a_change_of_the_home_is_seen_in_another_process(opened):
    async with opened() as store, opened() as other, other.changes.watch() as changes:
        store.changes.announce("settings")
        assert (await anext(changes)).event.kind == "settings"


async def test_changed_rows_are_seen_in_another_process(opened):
    address = Address("cli", "here")
    async with opened() as store, opened() as other, other.changes.watch() as changes:
        turn_id = await store.turns.accept(Inbound("1", address, "me", "hello"))
        turn = await store.turns.claim_next(address.key)
        await store.turns.finish(turn, "answered", "")
        await store.todos.write(turn.session, "[1]")
        await store.archive.delete(turn.session)
        seen = []
        while ("session_deleted", turn.session, "", "") not in seen:
            event = (await anext(changes)).event
            seen.append((event.kind, event.id, event.session, event.status))
    assert ("run", turn_id, turn.session, "answered") in seen
    assert ("session", turn.session, "", "") in seen


async def test_no_row_is_announced_while_nobody_watches(opened):
    async with opened() as store, opened() as other:
        async with other.changes.watch():
            pass
        await store.turns.accept(Inbound("1", Address("cli", "here"), "me", "hello"))
        async with other.changes.watch() as changes:
            id = await store.turns.accept(Inbound("2", Address("cli", "there"), "me", "hello"))
            while (event := (await anext(changes)).event).kind != "run":
                pass
            assert event.id == id


async def test_the_status_counts_turns_and_messages(opened):
    async with opened() as store:
        await start_turn(store)
        status = await store.health.read_status()
        assert (status.turns, status.queued, status.failed) == (1, 0, 0)


async def test_an_open_store_can_be_written(opened):
    async with opened() as store:
        await store.health.warm_up()
        await store.health.check_writable()
        await store.health.wait_synced()


async def test_work_is_called_while_a_write_waits_for_the_disk(opened):
    called = []
    async with opened() as store:
        store.health.call_during_sync(lambda: called.append(1))
        await store.people.set_progress("lane", "short")
        await store.health.wait_synced()
        assert called == [1]
