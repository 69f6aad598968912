"""One session: a mailbox, at most one living turn, and the only hand that stops it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from alipes.agent.loop import Agent, run_turn
from alipes.agent.mending import close
from alipes.hooks.relay import Hooks
from alipes.kernel.errors import AlipesError, Fenced, Held, StoreError
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.ports import TurnStore
from alipes.kernel.turns import (
    Ending,
    Envelope,
    Event,
    Op,
    Said,
    Stop,
    Take,
    ToolFinished,
    ToolStarted,
    Turn,
    TurnEnded,
    TurnStarted,
    Usage,
)

log = logging.getLogger(__name__)
MAX_ATTEMPTS = 3

OpenAgent: TypeAlias = Callable[[Turn], Awaitable[Agent]]
"""Who lives the next turn; asked at its start, so a turn keeps what it began with."""


class Surroundings(Struct, frozen=True):
    """What every session of a lobby shares."""

    turns: TurnStore
    hooks: Hooks
    agent: OpenAgent
    publish: Callable[[Envelope], None]
    rested: Callable[[str], None]
    """Called with the key whenever a session has nothing left to do."""
    pass_on: Callable[[str], Awaitable[None]]
    """Called with the key when another process turns out to hold the session."""
    linger: float = 300.0
    """Seconds an idle session stays in memory."""


class _Over(Struct, frozen=True):
    """A turn's task is done; its parent writes what follows."""

    living: "_Living"
    ending: Ending | None
    """None: fenced, so the ending is somebody else's to write."""
    detail: str = ""


class _Living:
    """The turn that lives now: what it has said and done, folded from its events."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.said: tuple[Message, ...] = turn.said
        self.acts: dict[str, ToolResult | None] = dict(turn.acts)
        self.usage: Usage | None = None
        self.stop: Stop | None = None
        self.task: asyncio.Task[_Over] | None = None

    def fold(self, event: Said | ToolStarted | ToolFinished) -> None:
        match event:
            case Said(message, _, usage):
                self.said = (*self.said, message)
                if usage is not None:
                    self.usage = _sum(self.usage, usage)
            case ToolStarted(call):
                self.acts[call.id] = None
            case ToolFinished(call, result):
                self.acts[call.id] = result


class Session:
    """A turn never writes its own obituary: its parent does, and a parent that is itself
    being shut down does not. So a turn marked `stopped` was stopped by someone, and a turn
    cut off by the end of the process stays unfinished and is resumed at the next start.
    """

    def __init__(self, key: str, around: Surroundings) -> None:
        self.key = key
        self.closed = False
        self._around = around
        self._mailbox: asyncio.Queue[Op | _Over] = asyncio.Queue()
        self._living: _Living | None = None

    def post(self, op: Op) -> None:
        self._mailbox.put_nowait(op)

    async def run(self) -> None:
        """Serve until cancelled, or until idle for long. Turns are children and cannot outlive it."""
        async with asyncio.TaskGroup() as turns:
            while (letter := await self._next_letter()) is not None:
                match letter:
                    case Take():
                        if self._living is None:
                            await self._take_up(turns)
                    case Stop() as stop:
                        await self._interrupt(stop)
                    case _Over() as over:
                        await self._bury(over)
                        await self._take_up(turns)

    async def _next_letter(self) -> Op | _Over | None:
        while True:
            try:
                async with asyncio.timeout(self._around.linger):
                    return await self._mailbox.get()
            except TimeoutError:
                if self._living is None and self._mailbox.empty():
                    self.closed = True
                    return None

    async def _take_up(self, turns: asyncio.TaskGroup) -> None:
        """Begin the next turn that waits, burying at once those that must not live again."""
        while (turn := await self._claim()) is not None:
            living = _Living(turn)
            ending = await self._already_over(turn)
            if ending is None:
                self._begin(turns, living)
                return
            await self._bury(_Over(living, *ending))
        self._around.rested(self.key)

    async def _claim(self) -> Turn | None:
        try:
            turn = await self._around.turns.next_turn(self.key)
            if turn is None:
                await self._around.turns.release(self.key)
        except Held:
            await self._around.pass_on(self.key)
            return None
        return turn

    async def _already_over(self, turn: Turn) -> tuple[Ending, str] | None:
        """What a turn ends as before it begins: stopped while nobody lived it, or tried too often."""
        for op in await self._around.turns.drain_control(self.key):
            if isinstance(op, Stop) and (op.turn == turn.id or (turn.attempt > 1 and not op.turn)):
                return "stopped", op.reason
        if turn.attempt > MAX_ATTEMPTS:
            return (
                "failed",
                f"given up after {MAX_ATTEMPTS} attempts: each time the process ended before the turn did",
            )
        return None

    def _begin(self, turns: asyncio.TaskGroup, living: _Living) -> None:
        self._living = living
        living.task = turns.create_task(self._live(living), name=f"turn {living.turn.id}")
        living.task.add_done_callback(lambda task: self._done(living, task))

    def _done(self, living: _Living, task: asyncio.Task[_Over]) -> None:
        if not task.cancelled() and task.exception() is not None:
            return  # the store failed: the group is ending, and so are we
        if not task.cancelled() and (living.stop is None or task.result().ending is None):
            self._mailbox.put_nowait(task.result())
        elif living.stop is not None:
            self._mailbox.put_nowait(_Over(living, "stopped", living.stop.reason))
        else:  # at shutdown nobody reads this; otherwise a tool or plugin raised it by itself
            self._mailbox.put_nowait(_Over(living, "failed", "the turn was cancelled from inside"))

    async def _live(self, living: _Living) -> _Over:
        turn = living.turn

        async def note(event: Event) -> None:
            await self._note(living, event)

        try:
            agent = await self._around.agent(turn)
            await note(TurnStarted(turn.id, turn.session, turn.attempt, turn.inbound.text))
            ending, detail = await run_turn(agent, turn, note)
            return _Over(living, ending, detail)
        except Fenced:
            log.warning("turn %s is lived by another process now", turn.id)
            return _Over(living, None)
        except StoreError:
            raise
        except AlipesError as error:
            return _Over(living, "failed", str(error))
        except Exception as error:  # bulkhead: one broken turn must not end the session
            log.exception("turn %s broke", turn.id)
            return _Over(living, "failed", f"{type(error).__name__}: {error}")

    async def _note(self, living: _Living, event: Event) -> None:
        """The order is memory, journal, observers, screen. A turn marked as stopped says nothing more."""
        if living.stop is not None:
            await asyncio.Event().wait()  # its cancellation is on the way
        if isinstance(event, Said | ToolStarted | ToolFinished):
            living.fold(event)
            await self._around.turns.record(living.turn, event)
        await self._around.hooks.on_event(event, living.turn)
        self._publish(living.turn, event)

    def _publish(self, turn: Turn, event: Event) -> None:
        self._around.publish(Envelope(self.key, turn.id, event))

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
        living.stop = stop
        await self._around.hooks.agent_loop_stopped(living.turn, stop)
        await asyncio.sleep(0)
        living.task.cancel()

    async def _bury(self, over: _Over) -> None:
        """Write the ending, then show it."""
        living, ending = over.living, over.ending
        self._living = None
        if ending is None:
            return
        try:
            closing = close(living.said, living.acts, ending)
            await self._around.turns.finish(living.turn, ending, over.detail, *closing)
        except Fenced:
            log.warning("turn %s was ended by another process", living.turn.id)
            return
        for message in closing:
            self._publish(living.turn, Said(message))
        self._publish(living.turn, TurnEnded(living.turn.id, ending, over.detail, living.usage))


def _sum(one: Usage | None, other: Usage) -> Usage:
    if one is None:
        return other
    cost = None if one.cost is None or other.cost is None else one.cost + other.cost
    return Usage(
        one.input + other.input,
        one.output + other.output,
        one.cached + other.cached,
        one.cache_write + other.cache_write,
        one.reasoning + other.reasoning,
        cost,
    )
