"""Mutations: production code without one of its rules, each by a small patch. The simulation must notice."""

import asyncio
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from msgspec import structs

from alipes.agent import loop, tool_calls
from alipes.features.schedules.store import runs
from alipes.features.schedules.store.rows import RUN_COLUMNS, run_from_row
from alipes.features.schedules.store.runs import ScheduleRunStore
from alipes.gateway import platform_runner
from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.delivery import DeliveryAttempts, OutboxWorker
from alipes.gateway.platform_runner import PlatformRunner
from alipes.gateway.questions import ChatQuestions
from alipes.kernel.errors import DeliveryError
from alipes.kernel.messages import ToolResult
from alipes.kernel.turns import Said, ToolFinished, ToolStarted
from alipes.platforms.telegram.receive import Poller
from alipes.runtime import tasks
from alipes.sessions import session
from alipes.sessions.session import Session
from alipes.sessions.subagents.registry import SubagentRegistry
from alipes.sessions.turn_runner import TurnRunner
from alipes.store.sql import turns
from alipes.store.sql.inbox import InboxStore
from alipes.store.sql.outbox import SqlOutbox
from alipes.store.sql.turns import SqlTurns
from alipes.store.sqlite.database import SqliteDatabase
from tests.simulation.plan import DEFAULT_PROFILE, PlanProfile

Patch = pytest.MonkeyPatch
STOPPED = PlanProfile(verbs=("act", "both", "twice"), stop_chance=0.8, crash_chance=0.2, fault_chance=0.0)
KILLED = PlanProfile(stop_chance=0.0, crash_chance=1.0, fault_chance=0.0)
KILLED_AT_WORK = PlanProfile(verbs=("act", "twice"), stop_chance=0.0, crash_chance=1.0, fault_chance=0.0)
KILLED_ASKING = PlanProfile(verbs=("risk",), chats=(2,), stop_chance=0.0, crash_chance=1.0, fault_chance=0.0)
UNANSWERED = PlanProfile(
    verbs=("echo",), stop_chance=0.0, crash_chance=0.0, fault_chance=1.0, endpoints=("sendMessage",)
)
ASKED_IN_VAIN = PlanProfile(
    verbs=("risk", "ask"), stop_chance=0.0, crash_chance=0.0, fault_chance=1.0, endpoints=("sendMessage",)
)
ASKED = PlanProfile(
    verbs=("risk", "ask"), stop_chance=0.0, crash_chance=0.6, fault_chance=0.2, endpoints=("getUpdates",)
)
BROKEN = PlanProfile(
    crash_chance=1.0,
    fault_chance=1.0,
    endpoints=("getUpdates",),
    fault_kinds=("odd",),
    exit_kinds=("term",),
    crash_within=(150,),
)
KILLED_JOBS = PlanProfile(
    verbs=("echo",),
    chats=(1,),
    stop_chance=0.0,
    crash_chance=1.0,
    fault_chance=0.0,
    exit_kinds=("crash",),
    crash_counts=(4,),
    crash_within=(300,),
    job_chance=1.0,
)
BROKEN_JOBS = PlanProfile(
    verbs=("echo",),
    chats=(1,),
    stop_chance=0.0,
    crash_chance=0.0,
    fault_chance=1.0,
    endpoints=("model",),
    fault_kinds=("odd",),
    job_chance=1.0,
)
SENT = PlanProfile(verbs=("send",), stop_chance=0.5, crash_chance=0.3, fault_chance=0.0)
KILLED_SENDING = PlanProfile(
    verbs=("echo",),
    chats=(1,),
    stop_chance=0.0,
    crash_chance=1.0,
    fault_chance=0.0,
    exit_kinds=("crash",),
    crash_counts=(4,),
    crash_within=(200,),
)
TRIPPED = PlanProfile(verbs=("trip",), crash_chance=0.0, fault_chance=0.0)
MUTATIONS: dict[str, tuple[Callable[[Patch], None], PlanProfile]] = {}
"""By rule: the patch that removes it, and the kind of plans in which that shows."""


def _rule(
    rule: str, profile: PlanProfile = DEFAULT_PROFILE
) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(mutate: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTATIONS[rule] = mutate, profile
        return mutate

    return register


# --- the four rules of the session


@_rule("a parent that is itself shutting down writes no ending", KILLED)
def _(patch: Patch) -> None:
    suspend = Session._suspend

    async def suspend_and_finish(self: Any, group: Any) -> None:
        running = self._running
        await suspend(self, group)
        if running is not None:
            await self._services.store.turns.finish(running.turn, "stopped", "shutdown")

    patch.setattr(Session, "_suspend", suspend_and_finish)


@_rule("a turn never writes its own ending")
def _(patch: Patch) -> None:
    run = TurnRunner.run

    @wraps(run)
    async def run_and_finish(self: Any) -> Any:
        outcome = await run(self)
        if outcome.ending is not None:
            turns = self._services.store.turns
            await turns.finish(outcome.running.turn, outcome.ending, outcome.detail)
        return outcome

    patch.setattr(TurnRunner, "run", run_and_finish)


@_rule("the journal comes before the screen")
def _(patch: Patch) -> None:
    emit = TurnRunner.emit

    async def publish_first(self: Any, event: Any) -> None:
        if isinstance(event, Said):
            self._services.store.bus.publish(self._running.envelope(event))
        await emit(self, event)

    patch.setattr(TurnRunner, "emit", publish_first)


@_rule("memory comes before the journal")
def _(patch: Patch) -> None:
    async def journal_first(self: Any, event: Any) -> None:
        running, services = self._running, self._services
        await self.check_stop()
        running.observe(event)
        if isinstance(event, Said | ToolStarted | ToolFinished):
            outbound = services.defaults.outbound(running.turn, event)
            await services.store.turns.record(running.turn, event, *outbound)
            running.fold(event)
        await self._publish(event)

    patch.setattr(TurnRunner, "emit", journal_first)


@_rule("database writes are shielded from cancellation", STOPPED)
def _(patch: Patch) -> None:
    run = SqliteDatabase.run

    async def run_unshielded(self: Any, work: Any, *, sync: bool = True, key: str = "") -> Any:
        cancelled = []

        def work_unless_cancelled(db: Any) -> Any:
            return None if cancelled else work(db)

        try:
            return await run(self, work_unless_cancelled, sync=sync, key=key)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    patch.setattr(SqliteDatabase, "run", run_unshielded)


@_rule("ending a turn answers its open calls", STOPPED)
def _(patch: Patch) -> None:
    patch.setattr(session, "close_transcript", lambda *_args: ())


@_rule("a write that was cut off is never run again", KILLED_AT_WORK)
def _(patch: Patch) -> None:
    def only_finished(calls: Any, results: Any, _effect: Any) -> dict[str, ToolResult]:
        return {call.id: results[call.id] for call in calls if results.get(call.id) is not None}

    patch.setattr(loop, "known_results", only_finished)


@_rule("the intent is on disk before the act")
def _(patch: Patch) -> None:
    record = SqlTurns.record

    async def skip_intents(self: Any, turn: Any, event: Any, *outbounds: Any) -> None:
        if not isinstance(event, ToolStarted):
            await record(self, turn, event, *outbounds)

    patch.setattr(SqlTurns, "record", skip_intents)


# --- ownership


@_rule("a session runs at most one turn")
def _(patch: Patch) -> None:
    handle = Session._handle

    async def start_at_any_time(self: Any, item: Any, turns: Any) -> None:
        if isinstance(item, session.Wake):
            self._unread_wakes -= 1
            await self._start_next_turn(turns)
        else:
            await handle(self, item, turns)

    patch.setattr(Session, "_handle", start_at_any_time)


@_rule("a stop cancels the turn", STOPPED)
def _(patch: Patch) -> None:
    async def only_mark(self: Any, running: Any, stop: Any, group: Any) -> Any:
        running.mark_stopped(stop)
        return group.create_task(asyncio.sleep(0))

    async def do_nothing(self: Any, running: Any, task: Any) -> None:
        return None

    patch.setattr(Session, "_cancel_turn", only_mark)
    patch.setattr(Session, "_abandon_if_stuck", do_nothing)


@_rule("a tool ends with its turn", STOPPED)
def _(patch: Patch) -> None:
    run = tool_calls._run_tool

    async def run_detached(runner: Any, call: Any) -> Any:
        return await asyncio.shield(asyncio.get_running_loop().create_task(run(runner, call)))

    patch.setattr(tool_calls, "_run_tool", run_detached)


@_rule("the error of a broken tool is reported to the model", TRIPPED)
def _(patch: Patch) -> None:
    async def run_unguarded(runner: Any, call: Any) -> Any:
        output = await runner.tools[call.name].run(call.args, tool_calls.ToolCallContext(call, runner))
        return ToolResult(call.id, str(output)), None

    patch.setattr(tool_calls, "_run_tool", run_unguarded)


@_rule("a broken platform is restarted and does not affect others")
def _(patch: Patch) -> None:
    async def no_guard(self: Any, verb: str, work: Any, within: float | None = None) -> Any:
        async with asyncio.timeout(within):
            return await work

    patch.setattr(PlatformRunner, "_guard", no_guard)


@_rule("a cancellation is never swallowed")
def _(patch: Patch) -> None:
    guard = PlatformRunner._guard

    async def swallow_cancellation(self: Any, verb: str, work: Any, within: float | None = None) -> Any:
        try:
            return await guard(self, verb, work, within)
        except asyncio.CancelledError:
            raise DeliveryError("cancelled") from None

    patch.setattr(PlatformRunner, "_guard", swallow_cancellation)


@_rule("the work of a dead process is resumed through the normal path", KILLED)
def _(patch: Patch) -> None:
    async def no_orphans(self: Any, *_args: Any) -> tuple[str, ...]:
        return ()

    patch.setattr(SqlTurns, "list_orphans", no_orphans)


@_rule("a resumed turn asks in its chat even if no client is connected yet", KILLED_ASKING)
def _(patch: Patch) -> None:
    patch.setattr(Gateway, "can_reach", lambda _self, _key: False)


# --- inbound and outbound


@_rule("the second copy of a message is refused")
def _(patch: Patch) -> None:
    admit = turns.admit_turn

    def admit_copies(db: Any, row: Any, busy: Any, usual: Any) -> Any:
        copy = structs.replace(row, inbound_id=f"{row.inbound_id}:copy")
        return admit(db, row, busy, usual) or admit(db, copy, busy, usual)

    patch.setattr(turns, "admit_turn", admit_copies)


@_rule("an update is confirmed only after it was stored", KILLED)
def _(patch: Patch) -> None:
    start = Poller._start

    def start_and_confirm(self: Any, raw: Any, tasks: Any) -> bool:
        fresh = start(self, raw, tasks)
        self._pending.clear()
        return fresh

    async def deliver(self: Any, update: Any) -> None:
        await self._on_update(update)

    patch.setattr(Poller, "_start", start_and_confirm)
    patch.setattr(Poller, "_deliver", deliver)


@_rule("a message and its outbox row are one transaction", KILLED)
def _(patch: Patch) -> None:
    record = SqlTurns._record_message

    async def record_apart(self: Any, turn: Any, said: Any, outbounds: Any) -> None:
        await record(self, turn, said, ())
        await SqlOutbox(self._database).enqueue(*outbounds)

    patch.setattr(SqlTurns, "_record_message", record_apart)


@_rule("one ordered lane per chat")
def _(patch: Patch) -> None:
    def start_at_once(self: Any, platform: str, lane: str) -> None:
        runner = self._runners[platform]
        if runner.ready:
            self._tasks.start(self._serve(runner, lane), f"lane {lane}")

    patch.setattr(OutboxWorker, "notify", start_at_once)
    patch.setattr(OutboxWorker, "lock", lambda _self, _lane: asyncio.Lock())


@_rule("a send that a crash cut off counts as uncertain", KILLED)
def _(patch: Patch) -> None:
    async def count_as_certain(self: Any, _runner: Any, delivery: Any) -> None:
        await self._outbox.postpone(delivery, 0.0, "cut off")

    patch.setattr(DeliveryAttempts, "handle_interrupted", count_as_certain)


@_rule("a send without an answer counts as uncertain", UNANSWERED)
def _(patch: Patch) -> None:
    handle = DeliveryAttempts._handle_failure

    async def count_as_certain(self: Any, runner: Any, delivery: Any, error: Any) -> None:
        await handle(self, runner, delivery, DeliveryError(str(error), retry_after=error.retry_after))

    patch.setattr(DeliveryAttempts, "_handle_failure", count_as_certain)


@_rule("a message that may have arrived twice is not sent a third time", KILLED_SENDING)
def _(patch: Patch) -> None:
    async def always_retry(self: Any, _runner: Any, delivery: Any) -> None:
        await self._outbox.postpone(delivery, 0.0, "cut off", uncertain=True)

    patch.setattr(DeliveryAttempts, "handle_interrupted", always_retry)


# --- schedules


@_rule("a run starts in the transaction that admits its turn", KILLED_JOBS)
def _(patch: Patch) -> None:
    async def start_apart(self: Any, now: float, _limit: int, prepare: Any, _refuse: Any, *, only: int = 0) -> Any:
        sql = f"SELECT {RUN_COLUMNS} FROM schedule_runs WHERE state = 'waiting' AND start_at <= ?"
        keys = []
        for run in map(run_from_row, await self._database.fetch_all(sql, now)):
            inbound = prepare(run)
            copy = structs.replace(inbound, id=f"{inbound.id}:{os.urandom(4).hex()}")
            row = turns.make_turn_row(copy, now)
            await self._database.run(lambda db, row=row: turns.admit_turn(db, row, "queue", "queue"))
            update = "UPDATE schedule_runs SET state = 'running', turn_id = ?, started = ? WHERE number = ?"
            await self._database.execute(update, row.turn, now, run.number)
            keys.append(row.key)
        return tuple(keys)

    patch.setattr(ScheduleRunStore, "start_waiting", start_apart)


@_rule("a job that is tried again continues its failed run", BROKEN_JOBS)
def _(patch: Patch) -> None:
    patch.setattr(runs, "_find_failure", lambda _db, _run: "")


# --- questions


@_rule("a turn does not wait for the answer to a question that could not be delivered", ASKED_IN_VAIN)
def _(patch: Patch) -> None:
    async def do_nothing(self: Any) -> None:
        return None

    patch.setattr(ChatQuestions, "review", do_nothing)


@_rule("an answer never becomes a turn, even if it is received twice", ASKED)
def _(patch: Patch) -> None:
    patch.setattr(turns, "ANSWER_BATCH", "nothing")


@_rule("the second copy of a message answers no question", ASKED)
def _(patch: Patch) -> None:
    async def add_always(self: Any, platform: str, id: str) -> bool:
        sql = "INSERT OR IGNORE INTO inbox (platform, id, batch, created, handled) VALUES (?, ?, 'answer', 0, 1e12)"
        return bool(await self._database.run(lambda db: db.execute(sql, (platform, id)).rowcount))

    patch.setattr(InboxStore, "add_answer", add_always)


@_rule("a cancelled platform ends even if it fails at the same moment", BROKEN)
def _(patch: Patch) -> None:
    patch.setattr(platform_runner, "raise_if_cancelled", lambda: None)
    patch.setattr(tasks, "raise_if_cancelled", lambda: None)


@_rule("subagents end with the turn that waits for them", SENT)
def _(patch: Patch) -> None:
    async def do_nothing(self: Any, *_args: Any) -> None:
        return None

    patch.setattr(SubagentRegistry, "stop", do_nothing)
    patch.setattr(SubagentRegistry, "stop_unfinished", do_nothing)
