"""Runs one turn as a task: the agent's events are recorded, then published."""

import asyncio
import logging
from collections.abc import Callable

from alipes.agent.loop import run_turn
from alipes.kernel.errors import AlipesError, Fenced, StoreError
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.messages import Message
from alipes.kernel.turns import Event, Notice, Said, ToolFinished, ToolStarted, TurnStarted
from alipes.plugins import specs
from alipes.plugins.interruption.attribution import TURN
from alipes.runtime.log_file import log_context
from alipes.sessions.services import SessionServices
from alipes.sessions.turn_outcome import notify_subagent_started
from alipes.sessions.turn_state import RunningTurn, StepBoundary, TurnOutcome

log = logging.getLogger(__name__)


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
            except StoreError:
                raise
            except AlipesError as error:
                return TurnOutcome(running, "failed", str(error))
            except Exception as error:  # bulkhead: one broken turn must not end the session
                log.exception("turn %s failed", turn.id)
                return TurnOutcome(running, "failed", f"{type(error).__name__}: {error}")

    async def _begin(self) -> None:
        """Announce the turn; a notice is shown as such, not as a person's words."""
        turn, notice = self._running.turn, self._running.turn.inbound.notice
        text = "" if notice else turn.inbound.text
        await self.emit(TurnStarted(turn.id, turn.session, turn.attempt, text))
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
                running.held_result = event  # recorded with the message of all results: one row, one wait
                return
            outbound = self._services.defaults.outbound(running.turn, event)
            await self._services.store.turns.record(running.turn, event, *outbound)
            await self._publish(*running.take_held_result(), event, has_outbound=bool(outbound))
        else:
            await self._publish(*running.take_held_result(), event)

    async def _publish_opening(self) -> None:
        """Publish the messages that were recorded with the claim."""
        running = self._running
        await self.check_stop()
        opening, running.unpublished = [Said(message) for message in running.unpublished], ()
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
        """Does not return once the turn is stopped, so that nothing is started or emitted afterwards."""
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
        if not running.may_have_steered:
            return ()
        boundary = StepBoundary(running, asyncio.get_running_loop().create_future())
        self._post(boundary)
        steered = await boundary.steered
        for message in steered:
            await running.hooks.notify(specs.on_event, event=Said(message), turn=running.turn)
        return steered
