"""The course of one living turn: the agent runs, all it tells is kept, then shown. It ends nothing."""

import asyncio
import logging
from collections.abc import Callable

from alipes.agent.loop import run_turn
from alipes.kernel.errors import AlipesError, Fenced, StoreError
from alipes.kernel.formatting import brief
from alipes.kernel.messages import Message
from alipes.kernel.turns import Event, Noted, Said, ToolFinished, ToolStarted, TurnStarted
from alipes.plugins import specs
from alipes.plugins.attribution import TURN
from alipes.runtime.log_file import about
from alipes.sessions.services import Surroundings
from alipes.sessions.turn_ending import tell_child
from alipes.sessions.turn_state import Boundary, Living, Over

log = logging.getLogger(__name__)


class Course:
    """Run it as a task; to stop it, its session marks the turn and cancels the task."""

    def __init__(self, living: Living, around: Surroundings, post: Callable[[Boundary], None]) -> None:
        self._living, self._around, self._post = living, around, post

    async def run(self) -> Over:
        living, turn = self._living, self._living.turn
        TURN.set(turn)
        with about(session=turn.session, turn=turn.id):
            try:
                agent = await self._around.agent(turn)
                living.hold(agent.hooks)
                if living.opens:
                    await living.relay.tell(
                        specs.session_began, session=turn.session, session_key=turn.key, turn=turn
                    )
                await tell_child(living, self._around)
                await self._begin()
                ending, detail = await run_turn(
                    agent, turn, self.note, absorb=self._absorb, proceed=self.proceed
                )
                return Over(living, ending, detail)
            except Fenced:
                log.warning("turn %s is lived by another process now", turn.id)
                return Over(living, None)
            except StoreError:
                raise
            except AlipesError as error:
                return Over(living, "failed", str(error))
            except Exception as error:  # bulkhead: one broken turn must not end the session
                log.exception("turn %s broke", turn.id)
                return Over(living, "failed", f"{type(error).__name__}: {error}")

    async def _begin(self) -> None:
        """What the house says is told as such, and not as a person's words."""
        turn, notice = self._living.turn, self._living.turn.inbound.notice
        text = "" if notice else turn.inbound.text
        await self.note(TurnStarted(turn.id, turn.session, turn.attempt, text))
        if notice:
            await self.note(Noted(brief(turn.inbound.text.partition("\n")[0], 200)[1:-1]))
        await self._tell_kept()

    async def note(self, event: Event) -> None:
        """The order is memory, journal, observers, screen. A turn marked as stopped says nothing more."""
        living = self._living
        await self.proceed()
        living.hear(event)
        if isinstance(event, Said | ToolStarted | ToolFinished):
            living.fold(event)
            if isinstance(event, ToolFinished) and living.all_answered():
                living.held = event  # what it gave is said next, all results at once: one row, one wait
                return
            owed = self._around.owes(living.turn, event)
            await self._around.turns.record(living.turn, event, *owed)
            await self._show(*living.unheld(), event, owed=bool(owed))
        else:
            await self._show(*living.unheld(), event)

    async def _tell_kept(self) -> None:
        """What the journal has already, and with it our memory."""
        living = self._living
        await self.proceed()
        untold, living.untold = [Said(message) for message in living.untold], ()
        for said in untold:
            living.hear(said)
            self._around.owes(living.turn, said)  # a person's words are owed to nobody, but are heard
        await self._show(*untold)

    async def _show(self, *events: Event, owed: bool = False) -> None:
        """To observers, then to the screen: also when a stop comes in between, if they are kept already."""
        living = self._living
        try:
            if owed:  # whoever pays it learnt of it with us, and goes first
                await asyncio.sleep(0)
            for event in events:
                await living.relay.tell(specs.on_event, event=event, turn=living.turn)
        finally:
            for event in events:
                if living.stop is None or isinstance(event, Said | ToolStarted | ToolFinished):
                    self._around.publish(living.envelope(event))

    async def proceed(self) -> None:
        """After the stop nothing is begun and nothing is told: whoever comes by here goes no further."""
        living = self._living
        if living.stop is None:
            return
        if living.task is not None and living.task.cancelling():
            # a tool or plugin kept the cancellation to itself
            log.info(
                "a result of turn %s that came %.1f s after its stop, from %s, was dropped",
                *living.whereabouts(),
            )
            raise asyncio.CancelledError
        await asyncio.Event().wait()  # it is on the way

    async def _absorb(self) -> tuple[Message, ...]:
        """Taken in by the session, not by the turn: no stop can cut that short half-way."""
        living = self._living
        if not living.steered:
            return ()
        boundary = Boundary(living, asyncio.get_running_loop().create_future())
        self._post(boundary)
        heard = await boundary.heard
        for message in heard:
            await living.relay.tell(specs.on_event, event=Said(message), turn=living.turn)
        return heard
