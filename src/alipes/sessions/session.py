"""One session: a mailbox, at most one living turn, and the only hand that stops it."""

import asyncio
import logging
from typing import TypeAlias

from msgspec import structs

from alipes.agent.transcript_repair import close, opening
from alipes.kernel.errors import Fenced, Held
from alipes.kernel.messages import Message
from alipes.kernel.turns import (
    Answer,
    Ending,
    Noted,
    Op,
    Reply,
    Reset,
    Said,
    Steer,
    Stop,
    Take,
    Turn,
    TurnEnded,
)
from alipes.sessions.services import Surroundings
from alipes.sessions.subagents.running import short_lived
from alipes.sessions.turn_ending import (
    listen_for,
    take_in,
    tell_child_end,
    tell_end,
    tell_leave,
    tell_stop,
    write_end,
)
from alipes.sessions.turn_runner import Course
from alipes.sessions.turn_state import Boundary, Living, Over

MAX_ATTEMPTS = 3
LEFT = "reset"


async def claim(key: str, around: Surroundings) -> Living | None:
    """The oldest turn that waits; None when there is none, or when another process has it."""
    try:
        turn = await around.turns.next_turn(key, _first_words)
        if turn is None:
            await around.turns.release(key)
    except Held:
        await around.pass_on(key)
        return None
    return None if turn is None else Living(turn, around.hooks.relay)


def _first_words(turn: Turn) -> tuple[Message, ...]:
    """What it says with its claim: the person's message, unless the turn may be over before it begins, or
    something must be said before that."""
    plain = turn.alone and turn.attempt == 1 and not turn.inbound.notice and turn.inbound.origin is None
    said = opening(turn, turn.said) if plain else ()
    return said if len(said) == 1 else ()


async def already_over(living: Living, around: Surroundings) -> tuple[Ending, str] | None:
    """What a turn ends as before it begins: stopped while nobody lived it, left, or tried too often."""
    turn = living.turn
    stopped = "" if turn.alone else await _stopped(living, around)
    if stopped := stopped or await around.delegated.forsaken(turn):
        return "stopped", stopped
    if turn.inbound.notice == "kept":
        return "answered", ""
    if turn.attempt > MAX_ATTEMPTS:
        return (
            "failed",
            f"given up after {MAX_ATTEMPTS} attempts: each time the process ended before the turn did",
        )
    if turn.attempt > 1:
        standing = await around.sessions.standing(turn.key)
        if standing is None or standing.session != turn.session:
            return "stopped", LEFT  # whoever left it could no longer tell the process that lived it
    return None


async def _stopped(living: Living, around: Surroundings) -> str:
    """The reason of the last word that ends it; empty when there is none."""
    turn, reason = living.turn, ""
    for op in await around.turns.drain_control(turn.key):
        match op:
            case Stop(turn=named) if named == turn.id or (turn.attempt > 1 and not named):
                reason = op.reason
            case Reset(session=left):
                reason = op.reason if left == turn.session else reason
    return reason


log = logging.getLogger(__name__)

Letter: TypeAlias = Op | Over | Boundary
SUPERSEDED = "superseded"
GRACE = 1.5
"""Seconds a cancelled turn has to end; then its session goes on without it."""


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
        self._ended = ""
        """The last turn that was over."""
        self._asked = 0
        """Letters that something waits, not read yet."""
        self._lived: set[str] = set()
        """Conversations that had a turn here and were not left since."""
        self._left: dict[str, Reset] = {}
        """Conversations that were left, as long as a turn of theirs lives."""
        self._opened: dict[str, bool] = {}
        """By conversation, whether a turn of it was ever set up; one may be over before that."""

    def post(self, op: Op) -> None:
        self._asked += isinstance(op, Take)
        self._mailbox.put_nowait(op)

    async def run(self) -> None:
        """Serve until cancelled, or until idle for long. Turns are children and cannot outlive it."""
        async with asyncio.TaskGroup() as turns:
            try:
                while (letter := await self._next_letter()) is not None:
                    await self._read(letter, turns)
                    del letter  # else we sit on the last turn, and all of its history, until the next
            except asyncio.CancelledError:
                await self._suspend()
                raise
            self._left = {session: Reset("idle", "idle", session) for session in self._lived}
            self._take_leave(turns)

    async def _read(self, letter: Letter, turns: asyncio.TaskGroup) -> None:
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
                await take_in(boundary, self._around)
            case _:
                await self._heed(letter, turns)
                self._take_leave(turns)

    async def _heed(self, op: Stop | Steer | Answer | Reply | Reset, turns: asyncio.TaskGroup) -> None:
        match op:
            case Stop():
                await self._interrupt(op, turns)
            case Steer():
                if self._living is not None:
                    self._living.steered = True
            case Answer():
                self._around.answer(op)
            case Reply():
                self._around.reply(op)
            case Reset():  # the conversation goes on no more
                self._left[op.session] = op
                if self._living is not None and self._living.turn.session == op.session:
                    stop = Stop(op.reason, op.invalidation_reason, self._living.turn.id)
                    await self._interrupt(stop, turns)

    async def _next_letter(self) -> Letter | None:
        while True:
            try:
                brief = short_lived(self.key) and self._living is None
                async with asyncio.timeout(0.0 if brief else self._around.linger):
                    return await self._mailbox.get()
            except TimeoutError:
                idle = self._living is None and self._mailbox.empty()
                if idle and (brief or not any(map(self._around.keeps, self._lived))):
                    self.closed = True
                    return None

    async def _take_up(self, turns: asyncio.TaskGroup) -> None:
        """Begin the next turn that waits, burying at once those that must not live again."""
        if self._around.leaves(self.key, self._ended):
            self._around.rested(self.key)
            return
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
        self._around.delegated.began(living.turn)
        living.opens = not self._opened.get(living.turn.session, not living.opens)
        course = Course(living, self._around, self._mailbox.put_nowait)
        living.task = turns.create_task(course.run(), name=f"turn {living.turn.id}")
        living.task.add_done_callback(lambda task: self._done(living, task))
        listen_for(living, self._around, self.post)

    def _done(self, living: Living, task: asyncio.Task[Over]) -> None:
        if living.abandoned or (not task.cancelled() and task.exception() is not None):
            return  # its end is written; or the store failed: the group is ending, and so are we
        if not task.cancelled() and (living.stop is None or task.result().ending is None):
            self._mailbox.put_nowait(task.result())
        elif living.stop is not None:
            self._mailbox.put_nowait(Over(living, "stopped", living.stop.reason))
        else:  # at shutdown nobody reads this; otherwise a tool or plugin raised it by itself
            self._mailbox.put_nowait(Over(living, "failed", "the turn was cancelled from inside"))

    async def _interrupt(self, stop: Stop, group: asyncio.TaskGroup) -> None:
        """The stop contract: mark, tell, yield once, cancel. The ending is written when the task is over."""
        living = self._living
        if living is None or (stop.turn and stop.turn != living.turn.id):
            if stop.turn and await self._around.sessions.unfinished(self.key):
                # it waits its turn: whoever claims it will find this
                await self._around.turns.put_control(self.key, stop)
            return
        task = living.task
        assert task is not None
        if living.stop is not None or task.done():
            return
        if stop.invalidation_reason == "stop_command" and not living.started:
            stop = structs.replace(stop, invalidation_reason="stop_command_pending")
        group.create_task(self._around.delegated.stop(living.turn, stop), name="stop of what works for it")
        await self._cut_short(living, stop)
        group.create_task(self._see_it_end(living, task), name=f"end of turn {living.turn.id}")

    async def _cut_short(self, living: Living, stop: Stop) -> None:
        assert living.task is not None
        living.mark(stop)
        await tell_stop(living, stop)
        await asyncio.sleep(0)
        living.task.cancel()

    async def _see_it_end(self, living: Living, task: asyncio.Task[Over]) -> None:
        """A turn that does not end when it is cancelled is left behind: it can tell nothing any more."""
        assert living.stop is not None
        await asyncio.wait({task}, timeout=GRACE)
        if not task.done():
            log.error("turn %s is left behind: stopped %.1f s ago, it goes on in %s", *living.whereabouts())
            living.abandoned = True
            task.cancel()
            self._mailbox.put_nowait(Over(living, "stopped", living.stop.reason))

    async def _suspend(self) -> None:
        """The process ends: plugins are told. Nothing is written, so the turn goes on at the next start."""
        living = self._living
        if living is not None and living.task is not None and living.stop is None and not living.task.done():
            await self._cut_short(living, Stop("shutdown", "shutdown", living.turn.id))
            await asyncio.wait({living.task}, timeout=GRACE)
            closing = close(living.said, living.acts)
            await tell_end(living, self._around, "suspended", "shutdown", closing=closing)
        for session in self._lived:
            await tell_leave(self.key, self._around, Reset("shutdown", "shutdown", session))

    def _take_leave(self, group: asyncio.TaskGroup) -> None:
        """Tell who keeps something for a conversation that is over; nobody waits until they are done."""
        living = "" if self._living is None else self._living.turn.session
        for session in [each for each in self._left if each != living]:
            self._lived.discard(session)
            self._opened.pop(session, None)
            farewell = tell_leave(self.key, self._around, self._left.pop(session))
            group.create_task(farewell, name=f"farewell {session}")

    async def _bury(self, over: Over) -> None:
        """Write the ending, then show it."""
        living, ending = over.living, over.ending
        self._living, self._ended = None, living.turn.id
        session = living.turn.session
        self._opened[session] = living.started or self._opened.get(session, not living.opens)
        if ending is None:
            self._around.delegated.over(living.turn.inbound)
            living.release()
            return
        closing = close(living.said, living.acts, ending)
        if over.detail == SUPERSEDED or living.turn.inbound.notice == "kept":
            # who spoke last is answered, who spoke before is still heard
            closing = (*opening(living.turn, living.said), *closing)
        ended = TurnEnded(living.turn.id, ending, over.detail, living.usage)
        try:
            await write_end(living, self._around, ended, closing)
        except Fenced:
            log.warning("turn %s was ended by another process", living.turn.id)
            living.release()
            return
        for message in (*living.untold, *closing):
            self._around.publish(living.envelope(Said(message)))
        if ending == "stopped" and (going := self._around.keeps(living.turn.session)):
            self._around.publish(living.envelope(Noted(f"goes on {going}")))
        self._around.publish(living.envelope(ended))
        await tell_child_end(living, self._around, ending, over.detail)
        self._around.delegated.over(living.turn.inbound)
        await tell_end(living, self._around, ending, over.detail, closing=closing)
