"""One session: a mailbox, at most one living turn, and the only hand that stops it."""

import asyncio
import logging
from typing import TypeAlias

from msgspec import structs

from alipes.agent.loop import run_turn
from alipes.agent.mending import close, opening
from alipes.kernel.errors import AlipesError, Fenced, StoreError
from alipes.kernel.messages import Message
from alipes.kernel.turns import (
    Answer,
    Envelope,
    Event,
    Noted,
    Op,
    Reset,
    Said,
    Steer,
    Stop,
    Take,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from alipes.runtime.logs import about
from alipes.sessions.claiming import already_over, claim
from alipes.sessions.living import Boundary, Living, Over
from alipes.sessions.surroundings import Surroundings

log = logging.getLogger(__name__)

Letter: TypeAlias = Op | Over | Boundary
SUPERSEDED = "superseded"


class Session:
    """A turn never writes its own obituary: its parent does, and a parent that is itself
    being shut down does not. So a turn marked `stopped` was stopped by someone, and a turn
    cut off by the end of the process stays unfinished and is resumed at the next start.
    """

    def __init__(self, key: str, around: Surroundings) -> None:
        self.key = key
        self.closed = False
        self._around = around
        self._mailbox: asyncio.Queue[Letter] = asyncio.Queue()
        self._living: Living | None = None
        self._asked = 0
        """Letters that something waits, not read yet."""
        self._lived: set[str] = set()
        """Conversations that had a turn here and were not left since."""
        self._left: dict[str, str] = {}
        """Conversations that were left, and why, as long as a turn of theirs lives."""

    def post(self, op: Op) -> None:
        self._asked += isinstance(op, Take)
        self._mailbox.put_nowait(op)

    async def run(self) -> None:
        """Serve until cancelled, or until idle for long. Turns are children and cannot outlive it."""
        async with asyncio.TaskGroup() as turns:
            while (letter := await self._next_letter()) is not None:
                match letter:
                    case Take():
                        self._asked -= 1
                        if self._living is None:
                            await self._take_up(turns)
                    case Over() as over:
                        await self._bury(over)
                        self._take_leave(turns)
                        await self._take_up(turns)
                    case Boundary() as boundary:
                        await self._absorb(boundary)
                    case _:
                        await self._heed(letter)
                        self._take_leave(turns)
            self._left = dict.fromkeys(self._lived, "idle")
            self._take_leave(turns)

    async def _next_letter(self) -> Letter | None:
        while True:
            try:
                async with asyncio.timeout(self._around.linger):
                    return await self._mailbox.get()
            except TimeoutError:
                idle = self._living is None and self._mailbox.empty()
                if idle and not any(map(self._around.keeps, self._lived)):
                    self.closed = True
                    return None

    async def _heed(self, op: Stop | Steer | Answer | Reset) -> None:
        match op:
            case Stop():
                await self._interrupt(op)
            case Steer():
                if self._living is not None:
                    self._living.steered = True
            case Answer():
                self._around.answer(op)
            case Reset(session=session):  # the conversation goes on no more
                self._left[session] = op.reason
                if self._living is not None and self._living.turn.session == session:
                    turn = self._living.turn.id
                    await self._interrupt(Stop(op.reason, op.invalidation_reason, turn))

    async def _take_up(self, turns: asyncio.TaskGroup) -> None:
        """Begin the next turn that waits, burying at once those that must not live again."""
        while (living := await claim(self.key, self._around)) is not None:
            ending = await already_over(living, self._around)
            if ending is None:
                self._begin(turns, living)
                return
            await self._bury(Over(living, *ending))
        if not self._asked:  # what came while we looked is found by the next look
            self._around.rested(self.key)

    def _begin(self, turns: asyncio.TaskGroup, living: Living) -> None:
        self._living = living
        self._lived.add(living.turn.session)
        living.task = turns.create_task(self._live(living), name=f"turn {living.turn.id}")
        living.task.add_done_callback(lambda task: self._done(living, task))

    def _done(self, living: Living, task: asyncio.Task[Over]) -> None:
        if not task.cancelled() and task.exception() is not None:
            return  # the store failed: the group is ending, and so are we
        if not task.cancelled() and (living.stop is None or task.result().ending is None):
            self._mailbox.put_nowait(task.result())
        elif living.stop is not None:
            self._mailbox.put_nowait(Over(living, "stopped", living.stop.reason))
        else:  # at shutdown nobody reads this; otherwise a tool or plugin raised it by itself
            self._mailbox.put_nowait(Over(living, "failed", "the turn was cancelled from inside"))

    async def _live(self, living: Living) -> Over:
        turn = living.turn

        async def note(event: Event) -> None:
            await self._note(living, event)

        async def absorb() -> tuple[Message, ...]:
            """Taken in by the session, not by the turn: no stop can cut that short half-way."""
            if not living.steered:
                return ()
            boundary = Boundary(living, asyncio.get_running_loop().create_future())
            self._mailbox.put_nowait(boundary)
            heard = await boundary.heard
            for message in heard:
                await self._around.hooks.on_event(Said(message), turn)
            return heard

        with about(session=turn.session, turn=turn.id):
            try:
                agent = await self._around.agent(turn)
                living.started = True
                await note(TurnStarted(turn.id, turn.session, turn.attempt, turn.inbound.text))
                ending, detail = await run_turn(agent, turn, note, absorb=absorb)
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

    async def _note(self, living: Living, event: Event) -> None:
        """The order is memory, journal, observers, screen. A turn marked as stopped says nothing more."""
        if living.stop is not None:
            await asyncio.Event().wait()  # its cancellation is on the way
        if isinstance(event, Said | ToolStarted | ToolFinished):
            living.fold(event)
            if isinstance(event, ToolFinished) and living.all_answered():
                living.held = event  # what it gave is said next, all results at once: one row, one wait
                return
            await self._around.turns.record(living.turn, event)
        for told in (*living.unheld(), event):
            await self._around.hooks.on_event(told, living.turn)
            self._publish(living.turn.id, told)

    async def _absorb(self, boundary: Boundary) -> None:
        living = boundary.living
        if boundary.heard.done():  # it was stopped before its letter was read
            return
        living.steered = False
        try:
            taken = await self._around.sessions.absorb(living.turn)
        except Fenced:
            taken = ()  # what the turn says next tells it the same
        for each in taken:
            said = Said(each.message)
            living.fold(said)
            self._publish(living.turn.id, said)
            self._publish(each.turn, TurnEnded(each.turn, "steered", living.turn.id))
        if not boundary.heard.done():
            boundary.heard.set_result(tuple(each.message for each in taken))

    def _publish(self, turn: str, event: Event) -> None:
        self._around.publish(Envelope(self.key, turn, event))

    async def _interrupt(self, stop: Stop) -> None:
        """The stop contract: mark, tell, yield once, cancel. The ending is written when the task is over."""
        living = self._living
        if living is None or (stop.turn and stop.turn != living.turn.id):
            if stop.turn:  # it waits its turn: whoever claims it will find this
                await self._around.turns.put_control(self.key, stop)
            return
        assert living.task is not None
        if living.stop is not None or living.task.done():
            return
        if stop.invalidation_reason == "stop_command" and not living.started:
            stop = structs.replace(stop, invalidation_reason="stop_command_pending")
        living.stop = stop
        await self._around.hooks.agent_loop_stopped(living.turn, stop)
        await asyncio.sleep(0)
        living.task.cancel()

    def _take_leave(self, group: asyncio.TaskGroup) -> None:
        """Tell who keeps something for a conversation that is over; nobody waits until they are done."""
        living = "" if self._living is None else self._living.turn.session
        for session in [each for each in self._left if each != living]:
            self._lived.discard(session)
            group.create_task(
                self._around.hooks.session_left(session, self.key, self._left.pop(session)),
                name=f"farewell {session}",
            )

    async def _bury(self, over: Over) -> None:
        """Write the ending, then show it."""
        living, ending = over.living, over.ending
        self._living = None
        if ending is None:
            return
        closing = close(living.said, living.acts, ending)
        if over.detail == SUPERSEDED:  # who spoke last is answered, who spoke before is still heard
            closing = (*opening(living.turn, living.said), *closing)
        try:
            await self._around.turns.finish(living.turn, ending, over.detail, *closing)
        except Fenced:
            log.warning("turn %s was ended by another process", living.turn.id)
            return
        for message in closing:
            self._publish(living.turn.id, Said(message))
        if ending == "stopped" and (going := self._around.keeps(living.turn.session)):
            self._publish(living.turn.id, Noted(f"goes on {going}"))
        self._publish(living.turn.id, TurnEnded(living.turn.id, ending, over.detail, living.usage))
