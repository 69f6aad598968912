"""One session: a mailbox, at most one running turn, and the only place that stops it."""

import asyncio
import logging
from functools import partial
from typing import TypeAlias

from msgspec import structs

from alipes.agent.transcript_repair import close_transcript, opening_messages
from alipes.kernel.errors import Fenced, SessionHeld
from alipes.kernel.messages import Message
from alipes.kernel.turns import (
    AnswerApproval,
    AnswerQuestion,
    Ending,
    Notice,
    Op,
    Reset,
    Said,
    Steer,
    Stop,
    Turn,
    TurnEnded,
    Usage,
    Wake,
)
from alipes.plugins.interruption.stepped_coroutine import start_task
from alipes.runtime.tasks import run_to_completion
from alipes.sessions.services import SessionServices
from alipes.sessions.subagents.registry import ends_with_its_turn
from alipes.sessions.turn_runner import (
    TurnRunner,
    notify_end,
    notify_left,
    notify_stop,
    notify_subagent_ended,
    park_turn,
    take_steered,
    watch_time_limits,
    write_ending,
)
from alipes.sessions.turn_state import RunningTurn, StepBoundary, TurnOutcome

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
SUPERSEDED = "superseded"
GRACE = 1.5
"""Seconds a cancelled turn has to end; then its session continues without it."""
LEAVE_SECONDS = 30.0
"""Seconds that plugins have to handle stops when the process exits, whatever their deadlines allow."""
MailboxItem: TypeAlias = Op | TurnOutcome | StepBoundary


def _is_fenced(outcome: TurnOutcome) -> bool:
    return outcome.ending is None and outcome.limit is None


async def claim_turn(key: str, services: SessionServices, *, keep_lease: bool = False) -> RunningTurn | None:
    """The oldest queued turn; None if there is none, or if another process holds the session. Without a turn the
    session is released, unless `keep_lease`: its background processes run here."""
    try:
        turn = await services.store.turns.claim_next(key, _opening_with_claim, release=not keep_lease)
    except SessionHeld:
        await services.store.dispatcher.wake(key)
        return None
    return None if turn is None else RunningTurn(turn, services.hooks.dispatcher)


def _opening_with_claim(turn: Turn) -> tuple[Message, ...]:
    """The person's message, recorded with the claim; nothing if the turn may end before it starts, or if
    the transcript must be repaired first."""
    first, inbound = turn.queue_empty and turn.attempt == 1, turn.inbound
    said = opening_messages(turn, turn.said) if first and not inbound.notice and inbound.origin is None else ()
    return said if len(said) == 1 else ()


async def early_ending(running: RunningTurn, services: SessionServices) -> tuple[Ending, str] | None:
    """The ending of a turn that must not start: stopped while queued, left, or tried too often."""
    turn = running.turn
    stopped = "" if turn.queue_empty else await _stop_reason(turn, services)
    if stopped := stopped or await services.subagents.stop_reason(turn):
        return "stopped", stopped
    if turn.inbound.notice == "kept":
        return "answered", ""
    if turn.attempt > MAX_ATTEMPTS:
        why = "the process exited each time before the turn finished"
        return "failed", f"gave up after {MAX_ATTEMPTS} attempts: {why}"
    if turn.attempt > 1:
        active = await services.store.sessions.active(turn.key)
        if active is None or active.session != turn.session:
            return "stopped", "reset"  # it was left while no process could be notified
    return None


async def _stop_reason(turn: Turn, services: SessionServices) -> str:
    """The reason of the last stored op that ends the turn; empty if there is none."""
    reason = ""
    for op in await services.store.turns.take_ops(turn.key):
        match op:
            case Stop(turn=named) if named == turn.id or (turn.attempt > 1 and not named):
                reason = op.reason
            case Reset(session=left):
                reason = op.reason if left == turn.session else reason
    return reason


class Session:
    """A turn never writes its own ending: its session does, unless the process is shutting down. So a
    turn marked `stopped` was stopped by someone, and a turn cut off by the end of the process stays
    unfinished and resumes at the next start.
    """

    def __init__(self, key: str, services: SessionServices) -> None:
        self.key = key
        self.closed = False
        self._services = services
        self._publish = services.store.bus.publish
        self._mailbox: asyncio.Queue[MailboxItem] = asyncio.Queue()
        self._running: RunningTurn | None = None
        self._finishing = False
        """The end of a turn is being written and announced."""
        self._last_ended = ""
        self._unread_wakes = 0
        self._kept_lease = False
        """The session was not released after its last turn."""
        self._last_epoch = 0
        """Of the last turn that ran here: each claim, here or elsewhere, raises it."""
        self._observers: set[asyncio.Task[None]] = set()
        """Plugins that still handle the stop of a turn."""
        self._used_sessions: set[str] = set()
        """Conversations that had a turn here and were not left since."""
        self._left: dict[str, Reset] = {}
        """Conversations that were left while a turn of theirs still runs."""
        self._was_set_up: dict[str, bool] = {}
        """By conversation, whether a turn was ever set up; one may end before that."""

    def post(self, op: Op) -> None:
        if self._finishing and isinstance(op, Stop) and not op.turn:
            return  # it means the turn that has just ended, not the next one
        self._unread_wakes += isinstance(op, Wake)
        self._mailbox.put_nowait(op)

    async def run(self) -> None:
        """Serve until cancelled, or until idle for long. Turns are children and cannot outlive it."""
        async with asyncio.TaskGroup() as turns:
            try:
                while (item := await self._next_item()) is not None:
                    await self._handle(item, turns)
                    del item  # free the last turn (and its history) while idle
            except asyncio.CancelledError:
                await self._suspend(turns)
                raise
            self._left = {session: Reset("idle", "idle", session) for session in self._used_sessions}
            self._notify_left(turns)

    async def _handle(self, item: MailboxItem, turns: asyncio.TaskGroup) -> None:
        match item:
            case Wake():
                self._unread_wakes -= 1
                if self._running is None:
                    await self._start_next_turn(turns)
            case TurnOutcome() as outcome:
                await self._finish_turn(outcome)
                self._notify_left(turns)
                await self._start_next_turn(turns)
            case StepBoundary() as boundary:
                await take_steered(boundary, self._services)
            case _:
                await self._handle_op(item, turns)
                self._notify_left(turns)

    async def _handle_op(
        self, op: Stop | Steer | AnswerApproval | AnswerQuestion | Reset, turns: asyncio.TaskGroup
    ) -> None:
        match op:
            case Stop():
                await self._interrupt(op, turns)
            case Steer():
                if self._running is not None:
                    self._running.expect_steered(expected=True)
            case AnswerApproval() | AnswerQuestion():
                self._services.questions.answer(op)
            case Reset():
                self._left[op.session] = op
                if self._running is None:
                    await self._start_next_turn(turns)  # one that waits for a limit ends
                elif self._running.turn.session == op.session:
                    stop = Stop(op.reason, op.invalidation_reason, self._running.turn.id)
                    await self._interrupt(stop, turns)

    async def _next_item(self) -> MailboxItem | None:
        services = self._services
        while True:
            try:
                short_lived = ends_with_its_turn(self.key) and self._running is None
                async with asyncio.timeout(0.0 if short_lived else services.defaults.idle_seconds):
                    return await self._mailbox.get()
            except TimeoutError:
                idle = self._running is None and self._mailbox.empty()
                kept = any(map(services.subagents.describe_background, self._used_sessions))
                if idle and (short_lived or not kept):
                    if self._kept_lease:
                        self._kept_lease = False
                        await services.store.turns.release(self.key)
                    self.closed = self._mailbox.empty()
                    if self.closed:
                        return None

    def _has_processes(self) -> bool:
        """True if background processes of its conversations run here: no other process could reach them."""
        background = self._services.defaults.background
        return background is not None and any(map(background.describe_running, self._used_sessions))

    async def _start_next_turn(self, turns: asyncio.TaskGroup) -> None:
        """Start the next queued turn, finishing at once those that must not start."""
        activity = self._services.activity
        if activity.is_final(self.key, self._last_ended):
            activity.mark_idle(self.key)
            return
        self._kept_lease = self._has_processes()
        while (running := await claim_turn(self.key, self._services, keep_lease=self._kept_lease)) is not None:
            ending = await early_ending(running, self._services)
            if ending is None:
                self._start_turn(turns, running)
                return
            await self._finish_turn(TurnOutcome(running, *ending))
        if not self._unread_wakes:  # otherwise the next wake finds what was queued meanwhile
            activity.mark_idle(self.key)

    def _start_turn(self, turns: asyncio.TaskGroup, running: RunningTurn) -> None:
        self._running = running
        session = running.turn.session
        taken_elsewhere = running.turn.epoch > self._last_epoch + 1
        comes_from_elsewhere = taken_elsewhere or session not in self._used_sessions
        self._last_epoch = running.turn.epoch
        self._used_sessions.add(session)
        self._services.subagents.turn_started(running.turn)
        first = not self._was_set_up.get(session, not running.first_in_session)
        runner = TurnRunner(running, self._services, self._mailbox.put_nowait)
        task = turns.create_task(runner.run(), name=f"turn {running.turn.id}")
        running.start(task, comes_from_elsewhere=comes_from_elsewhere, first_in_session=first)
        task.add_done_callback(lambda task: self._on_done(running, task))
        watch_time_limits(running, self._services, self.post)

    def _on_done(self, running: RunningTurn, task: asyncio.Task[TurnOutcome]) -> None:
        if running.abandoned or (not task.cancelled() and task.exception() is not None):
            return  # its end is written; or the store failed and the whole group is ending
        if not task.cancelled() and (running.stop is None or _is_fenced(task.result())):
            self._mailbox.put_nowait(task.result())
        elif running.stop is not None:
            self._mailbox.put_nowait(TurnOutcome(running, "stopped", running.stop.reason))
        else:  # at shutdown nobody reads this
            self._mailbox.put_nowait(TurnOutcome(running, "failed", "a tool or plugin cancelled the turn"))

    async def _interrupt(self, stop: Stop, group: asyncio.TaskGroup) -> None:
        """The stop contract: mark, start the observers, yield once, cancel. The ending follows when the task ends."""
        running, store = self._running, self._services.store
        if running is None or (stop.turn and stop.turn != running.turn.id):
            if stop.turn and await store.sessions.unfinished(self.key):
                # it is queued or waits for a limit: its claim will find this
                await store.turns.put_op(self.key, stop)
                if running is None:
                    await self._start_next_turn(group)
            return
        task = running.task
        assert task is not None
        if running.stop is not None or task.done():
            if running.stop is None and not task.cancelled() and task.exception() is None and task.result().limit:
                await store.turns.put_op(self.key, structs.replace(stop, turn=running.turn.id))
            return
        if stop.invalidation_reason == "stop_command" and not running.started:
            stop = structs.replace(stop, invalidation_reason="stop_command_pending")
        group.create_task(self._services.subagents.stop(running.turn, stop), name="stop of its subagents")
        await self._cancel_turn(running, stop, group)
        group.create_task(self._abandon_if_stuck(running, task), name=f"end of turn {running.turn.id}")

    async def _cancel_turn(self, running: RunningTurn, stop: Stop, group: asyncio.TaskGroup) -> None:
        """Never waits for a plugin: every observer makes its first step, the rest runs beside, in `_observers`."""
        assert running.task is not None
        running.mark_stopped(stop)
        observers = start_task(group, notify_stop(running, stop), name=f"stop of turn {running.turn.id}")
        self._observers.add(observers)
        observers.add_done_callback(self._observers.discard)
        await asyncio.sleep(0)
        running.task.cancel()

    async def _abandon_if_stuck(self, running: RunningTurn, task: asyncio.Task[TurnOutcome]) -> None:
        """Continue without a turn that does not end when it is cancelled: it can emit nothing."""
        assert running.stop is not None
        await asyncio.wait({task}, timeout=GRACE)
        if not task.done():
            log.error("turn %s was abandoned: stopped %.1f s ago, still running in %s", *running.describe_stop())
            running.mark_abandoned()
            task.cancel()
            self._mailbox.put_nowait(TurnOutcome(running, "stopped", running.stop.reason))

    async def _suspend(self, group: asyncio.TaskGroup) -> None:
        """The process exits: notify plugins. Nothing is written, so the turn resumes at the next start."""
        running = self._running
        if running is not None and running.task is not None and running.stop is None and not running.task.done():
            await self._cancel_turn(running, Stop("shutdown", "shutdown", running.turn.id), group)
            await asyncio.wait({running.task}, timeout=GRACE)
            await self._wait_for_observers()
            closing = close_transcript(running.said, running.tool_results)
            await notify_end(running, self._services, "suspended", "shutdown", closing=closing)
        await self._wait_for_observers()
        for session in self._used_sessions:
            await notify_left(self.key, self._services, Reset("shutdown", "shutdown", session))

    async def _wait_for_observers(self) -> None:
        """The rest of what plugins do about a stop, also of one before the process began to exit."""
        if self._observers:
            await asyncio.wait(self._observers, timeout=LEAVE_SECONDS)

    def _notify_left(self, group: asyncio.TaskGroup) -> None:
        """Notify plugins of conversations that were left, without waiting for them."""
        current = "" if self._running is None else self._running.turn.session
        for session in [each for each in self._left if each != current]:
            self._used_sessions.discard(session)
            self._was_set_up.pop(session, None)
            notify = notify_left(self.key, self._services, self._left.pop(session))
            group.create_task(notify, name=f"session left {session}")

    async def _finish_turn(self, outcome: TurnOutcome) -> None:
        """To its end even if the process exits meanwhile; time-limited by the deadlines of the hooks."""
        self._finishing = True
        try:
            await run_to_completion(partial(self._write_and_announce, outcome))
        finally:
            self._finishing = False

    async def _write_and_announce(self, outcome: TurnOutcome) -> None:
        """Write the ending, then publish it."""
        running, ending = outcome.running, outcome.ending
        turn, session, subagents = running.turn, running.turn.session, self._services.subagents
        self._running = None
        self._was_set_up[session] = running.started or self._was_set_up.get(session, not running.first_in_session)
        if outcome.limit is not None:
            await park_turn(running, self._services, outcome.limit)
            return
        self._last_ended = turn.id
        if ending is None:
            subagents.forget(turn.inbound)
            running.release()
            return
        closing = close_transcript(running.said, running.tool_results, ending)
        partial = running.partial_messages()
        if outcome.detail == SUPERSEDED or turn.inbound.notice == "kept":
            # the message stays in the transcript even though it was not answered
            closing = (*opening_messages(turn, running.said), *closing)
        closing = (*closing, *partial)
        ended = TurnEnded(turn.id, ending, outcome.detail, await self._total_usage(running, ending))
        try:
            await write_ending(running, self._services, ended, closing)
        except Fenced:
            log.warning("turn %s was ended by another process", turn.id)
            running.release()
            return
        for message in (*running.unpublished, *closing):
            self._publish(running.envelope(Said(message, partial=message in partial)))
        if ending == "stopped" and (background := subagents.describe_background(session)):
            self._publish(running.envelope(Notice(f"still running {background}")))
        self._publish(running.envelope(ended))
        await notify_subagent_ended(running, self._services, ending, outcome.detail)
        subagents.forget(turn.inbound)
        await notify_end(running, self._services, ending, outcome.detail, closing=closing)

    async def _total_usage(self, running: RunningTurn, ending: Ending) -> Usage | None:
        """A stopped turn has usage that is in no message."""
        if ending != "stopped" or not running.started:
            return running.usage
        total = await self._services.store.archive.usage(turn=running.turn.id)
        return total.usage if total.calls else running.usage
