"""Runs one turn as a task: the agent's events are recorded, then published; and writes and announces its end."""

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable

from msgspec import structs

from alipes.agent.loop import run_turn
from alipes.agent.transcript_repair import count_calls
from alipes.kernel.errors import AlipesError, Fenced, LimitReached, StoreError
from alipes.kernel.formatting import format_clock, format_duration, format_excerpt, strip_object_addresses
from alipes.kernel.messages import Message, notice
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import (
    Envelope,
    Event,
    Inbound,
    JournalEvent,
    Notice,
    Reset,
    Said,
    Stop,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnParked,
    TurnStarted,
)
from alipes.plugins import specs
from alipes.plugins.interruption.attribution import TURN
from alipes.runtime.log_file import log_context
from alipes.runtime.tasks import run_to_completion
from alipes.sessions.services import SessionServices
from alipes.sessions.subagents.text import summary_of
from alipes.sessions.turn_state import RunningTurn, StepBoundary, TurnOutcome

log = logging.getLogger(__name__)
MAX_SPREAD_S = 3.0
"""Turns that wait for the same limit resume up to this much later than it, not all at the same moment."""
LOST_PROCESSES = (
    "These background processes no longer run, because the process of alipes that started them has ended: {}. "
    "Start them again if they are still needed."
)


class TurnRunner:
    """Run it as a task; to stop it, its session marks the turn and cancels the task."""

    def __init__(self, running: RunningTurn, services: SessionServices, post: Callable[[StepBoundary], None]) -> None:
        self._running, self._services, self._post = running, services, post

    async def run(self) -> TurnOutcome:
        running, turn = self._running, self._running.turn
        TURN.set(turn)
        with log_context(session=turn.session, turn=turn.id):
            try:
                agent = await self._services.agent(turn)
                running.attach_hooks(agent.hooks)
                if running.first_in_session:
                    await running.hooks.notify(
                        specs.session_began, session=turn.session, session_key=turn.key, turn=turn
                    )
                await notify_subagent_started(running, self._services)
                await self._begin()
                ending, detail = await run_turn(
                    agent, turn, self.emit, take_steered=self._take_steered, check_stop=self.check_stop
                )
                return TurnOutcome(running, ending, detail)
            except Fenced:
                log.warning("turn %s is run by another process now", turn.id)
                return TurnOutcome(running, None)
            except LimitReached as limit:
                return TurnOutcome(running, None, limit=limit)
            except StoreError:
                raise
            except AlipesError as error:
                return TurnOutcome(running, "failed", str(error))
            except Exception as error:  # bulkhead: one broken turn must not end the session
                log.exception("turn %s failed", turn.id)
                return TurnOutcome(running, "failed", strip_object_addresses(f"{type(error).__name__}: {error}"))

    async def _begin(self) -> None:
        """Announce the turn; a notice is shown as such, not as a person's words."""
        turn, notice = self._running.turn, self._running.turn.inbound.notice
        text = "" if notice else turn.inbound.text
        finished = {id for id, result in turn.tool_results.items() if result is not None}
        calls, done = count_calls(turn.said, finished) if turn.attempt > 1 else (0, 0)
        await self.emit(TurnStarted(turn.id, turn.session, turn.attempt, text, calls, done))
        if notice:
            await self.emit(Notice(format_excerpt(turn.inbound.text.partition("\n")[0], 200)[1:-1]))
        await self._publish_opening()

    async def emit(self, event: Event) -> None:
        """The order is memory, journal, hooks, bus. A stopped turn emits nothing."""
        running = self._running
        await self.check_stop()
        running.observe(event)
        if isinstance(event, Said | ToolStarted | ToolFinished):
            running.fold(event)
            if isinstance(event, ToolFinished) and running.all_answered():
                running.hold_result(event)  # recorded with the message of all results: one row, one wait
                return
            outbound = self._services.defaults.outbound(running.turn, event)
            await self._record(event, outbound)
            await self._publish(*running.take_held_result(), event, has_outbound=bool(outbound))
        else:
            await self._publish(*running.take_held_result(), event)

    async def _record(self, event: JournalEvent, outbound: tuple[Outbound, ...]) -> None:
        services, turn = self._services, self._running.turn
        if not any(each.media for each in outbound):
            await services.store.turns.record(turn, event, *outbound)
            return

        async def share_and_record() -> None:
            shared = await services.defaults.share(outbound)
            await services.store.turns.record(turn, event, *shared)

        # the message is in memory already: a stop between the two would lose it
        await run_to_completion(share_and_record)

    async def _publish_opening(self) -> None:
        """Publish the messages that were recorded with the claim."""
        running = self._running
        await self.check_stop()
        opening = running.take_opening()
        for said in opening:
            running.observe(said)
            self._services.defaults.outbound(running.turn, said)  # sends nothing, but must see every message
        await self._publish(*opening)

    async def _publish(self, *events: Event, has_outbound: bool = False) -> None:
        """To hooks, then to the bus; recorded events are published even if a stop comes in between."""
        running = self._running
        try:
            if has_outbound:  # let the outbox worker, which was notified by the write, start first
                await asyncio.sleep(0)
            for event in events:
                await running.hooks.notify(specs.on_event, event=event, turn=running.turn)
        finally:
            for event in events:
                if running.stop is None or isinstance(event, Said | ToolStarted | ToolFinished):
                    self._services.store.bus.publish(running.envelope(event))

    async def check_stop(self) -> None:
        """Does not return once the turn is stopped, so that nothing is started or emitted afterwards.

        Raises `LeaseLost` if other workers may have taken the session over.
        """
        self._services.store.check_lease()
        running = self._running
        if running.stop is None:
            return
        if running.task is not None and running.task.cancelling():
            # a tool or plugin swallowed the cancellation
            log.info(
                "a result of turn %s that came %.1f s after its stop, from %s, was dropped", *running.describe_stop()
            )
            raise asyncio.CancelledError
        await asyncio.Event().wait()  # the cancellation follows

    async def _take_steered(self) -> tuple[Message, ...]:
        """The session moves the messages, not the turn, so that a stop cannot interrupt it halfway."""
        running = self._running
        lost = await self._report_lost() if running.comes_from_elsewhere and not running.first_in_session else ()
        if lost or not running.may_have_steered:
            return lost
        boundary = StepBoundary(running, asyncio.get_running_loop().create_future())
        self._post(boundary)
        steered = await boundary.steered
        for message in steered:
            await running.hooks.notify(specs.on_event, event=Said(message), turn=running.turn)
        return steered

    async def _report_lost(self) -> tuple[Message, ...]:
        """Tell the model, once, which background processes ended with another process of alipes."""
        records, turn = self._services.store.background_processes, self._running.turn
        self._running.mark_lost_reported()
        lost = await records.list_lost(turn.session)
        if not lost:
            return ()
        message = notice(
            LOST_PROCESSES.format(", ".join(f"{each.name} {format_excerpt(each.command, 200)}" for each in lost))
        )
        await self.emit(Said(message))
        await records.forget(*lost)
        return (message,)


async def write_ending(
    running: RunningTurn, services: SessionServices, ended: TurnEnded, closing: tuple[Message, ...]
) -> None:
    """Stop its subagents, report a background turn, and write the ending. Raises `Fenced`.

    The report comes first: if the process dies between the two writes, the second report is a duplicate
    and is ignored.
    """
    turn, origin = running.turn, running.turn.inbound.origin
    outbound_for = services.defaults.outbound
    await services.subagents.stop_unfinished(turn)
    shown = await services.subagents.report(running, ended.ending, ended.detail)
    outbound = outbound_for(turn, ended)
    if shown and origin is not None:
        there = structs.replace(turn, inbound=structs.replace(turn.inbound, address=origin.address))
        outbound = (*outbound, *outbound_for(there, Notice(shown)))
    await services.store.turns.finish(turn, ended.ending, ended.detail, *closing, owed=outbound)
    if shown and origin is not None:
        services.store.bus.publish(Envelope(origin.address.key, "", Notice(shown)))


async def park_turn(running: RunningTurn, services: SessionServices, limit: LimitReached) -> None:
    """Write when the turn resumes, tell the person, and let go of it. Its session is released with the next claim."""
    turn, store = running.turn, services.store
    until = time.time() + limit.seconds + random.uniform(0.0, min(MAX_SPREAD_S, limit.seconds / 20))
    text = f"{str(limit).rstrip('. ')}. Resumes at {format_clock(until)}; /stop ends the wait."
    owed = tuple(
        structs.replace(each, id=f"{each.id}:{turn.epoch}") for each in services.defaults.outbound(turn, Notice(text))
    )
    try:
        await store.turns.park(turn, until, text, owed=owed)
    except Fenced:
        log.warning("turn %s is run by another process now", turn.id)
        running.release()
        return
    store.bus.publish(running.envelope(TurnParked(turn.id, until, text)))
    services.activity.parked.set()
    await notify_end(running, services, "suspended", text, closing=())


async def take_steered(boundary: StepBoundary, services: SessionServices) -> None:
    """Move the messages queued for steering into the turn that waits at the boundary."""
    running, publish = boundary.running, services.store.bus.publish
    if boundary.steered.done():  # the turn was stopped meanwhile
        return
    running.expect_steered(expected=False)
    try:
        taken = await services.store.sessions.take_steered(running.turn)
    except Fenced:
        taken = ()  # the turn finds out with its next write
    for steered in taken:
        said = Said(steered.message)
        running.fold(said)
        publish(running.envelope(said))
        ended = TurnEnded(steered.turn, "steered", running.turn.id)
        publish(Envelope(running.turn.key, steered.turn, ended))
    if not boundary.steered.done():
        boundary.steered.set_result(tuple(each.message for each in taken))


def watch_time_limits(running: RunningTurn, services: SessionServices, post: Callable[[Stop], None]) -> None:
    """Stop a turn that emits nothing for too long, or a subagent that runs for too long. Waiting for a
    person does not count."""
    if running.stop is not None or running.task is None or running.task.done():
        return
    waiting = services.questions.is_waiting(running.turn.id)
    idle, age = (0.0, 0.0) if waiting else (running.idle_seconds, running.age)
    max_silence, max_seconds = services.defaults.max_silence, services.subagents.max_seconds(running.turn)
    silence_left = max_silence - idle if max_silence else math.inf
    left = min(silence_left, max_seconds - age if max_seconds else math.inf)
    if left > 0:
        if left < math.inf:
            loop = asyncio.get_running_loop()
            running.set_timer(loop.call_later(left, watch_time_limits, running, services, post))
        return
    silent = f"no activity for {format_duration(idle)}"
    why = silent if silence_left <= 0 else f"it took longer than {format_duration(max_seconds)}"
    services.store.bus.publish(running.envelope(Notice(f"stopped: {why}")))
    post(Stop("timeout", "timeout", running.turn.id))


async def notify_stop(running: RunningTurn, stop: Stop) -> None:
    """The turn is marked as stopped and about to be cancelled. The plugins stay open until they have heard it."""
    turn, hooks = running.turn, running.hooks
    hooks.hold()
    try:
        await hooks.notify(
            specs.agent_loop_stopped,
            turn=turn,
            session_key=turn.key,
            session_id=turn.session,
            turn_id=turn.id,
            platform=turn.inbound.address.platform,
            reason=stop.reason,
            invalidation_reason=stop.invalidation_reason,
            tool_call_ids=running.running_calls,
            partial_text=running.partial,
        )
    finally:
        hooks.release()


async def notify_end(
    running: RunningTurn, services: SessionServices, ending: str, detail: str, *, closing: tuple[Message, ...]
) -> None:
    """Notify plugins of the calls that the end cut off and of the end. Afterwards they may close."""
    turn, hooks = running.turn, running.hooks
    for answered in services.questions.take_interrupted(turn.id):
        await hooks.notify(specs.on_event, event=answered, turn=turn)
    for call, result, seconds in running.unanswered_calls(closing):
        await hooks.notify(specs.after_tool, call=call, result=result, turn=turn, seconds=seconds, error=None)
    said = (*running.said, *closing)
    await hooks.notify(specs.turn_ended, turn=turn, ending=ending, detail=detail, said=said, usage=running.usage)
    running.release()


async def notify_left(key: str, services: SessionServices, reset: Reset) -> None:
    """A conversation was left; `reset.successor` may have replaced it."""
    hooks, reason, old, new = services.hooks.dispatcher, reset.reason, reset.session, reset.successor
    await hooks.notify(specs.session_left, session=old, session_key=key, reason=reason, successor=new)
    if new:
        await hooks.notify(specs.session_reset, session=new, session_key=key, reason=reason, predecessor=old)


async def notify_subagent_started(running: RunningTurn, services: SessionServices) -> None:
    """Only for a subagent, and only when it starts for the first time."""
    turn, hooks, inbound = running.turn, running.hooks, running.turn.inbound
    if not inbound.parent or turn.attempt > 1 or not hooks.has_hooks(specs.subagent_started):
        return
    if (parent := await services.subagents.parent_of(turn)) is not None:
        goal, role = inbound.origin.goal if inbound.origin else "", _role(inbound)
        await hooks.notify(specs.subagent_started, parent=parent, session=turn.session, role=role, goal=goal)


async def notify_subagent_ended(running: RunningTurn, services: SessionServices, ending: str, detail: str) -> None:
    """Once for each subagent that had started, also if another process started it."""
    turn, hooks, inbound = running.turn, running.hooks, running.turn.inbound
    had_started = running.started or turn.attempt > 1
    if not inbound.parent or not had_started or not hooks.has_hooks(specs.subagent_ended):
        return
    if (parent := await services.subagents.parent_of(turn)) is not None:
        await hooks.notify(
            specs.subagent_ended,
            parent=parent,
            session=turn.session,
            role=_role(inbound),
            goal=inbound.origin.goal if inbound.origin else "",
            ending=ending,
            summary=summary_of(running.said, detail),
            seconds=running.age,
        )


def _role(inbound: Inbound) -> str:
    return "orchestrator" if "delegate_task" in (inbound.only or ()) else "leaf"
