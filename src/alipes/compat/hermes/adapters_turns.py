"""What an adapter is told of the turns in its chats: when one begins, and how it ended. It says nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any
from weakref import WeakValueDictionary

from alipes.compat.hermes.adapters import call
from alipes.compat.hermes.adapters_values import HEARD, ProcessingOutcome, event_of
from alipes.compat.hermes.entries import PlatformEntry
from alipes.hooks.owners import Owner
from alipes.hooks.relay import guard
from alipes.hooks.tracking import on_behalf_of
from alipes.kernel.errors import PluginError
from alipes.kernel.turns import Turn

PATIENCE = 5.0
"""Seconds that an adapter has for each word it is told."""
GRACE = 2.0
"""Seconds to wait for what was ended."""
_OUTCOMES = {"answered": ProcessingOutcome.SUCCESS, "out_of_steps": ProcessingOutcome.SUCCESS}
_OUTCOMES |= {"stopped": ProcessingOutcome.CANCELLED}


class _Attended:
    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.mark = asyncio.Event()
        """For the adapter: set once the turn is interrupted."""
        self.ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None


class Attendance:
    """A task for each turn that lives, so that a slow adapter holds up nobody. What goes wrong is logged, and
    ends nothing: a network that fails three times is no reason to switch a plugin off."""

    def __init__(self, entry: PlatformEntry, adapter: Any) -> None:
        self._entry, self._adapter = entry, adapter
        self._blamed = Owner(f"{entry.owner.name} ({entry.name})", lasting=True)
        self._group: asyncio.TaskGroup | None = None
        self._living: dict[str, _Attended] = {}
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._active: dict[str, asyncio.Event] = getattr(adapter, "_active_sessions", None) or {}
        adapter._active_sessions = self._active

    @asynccontextmanager
    async def open(self, group: asyncio.TaskGroup) -> AsyncIterator[None]:
        """Turns are attended in this group, until it is left."""
        self._group = group
        try:
            yield
        finally:
            self._group = None

    def begin(self, turn: Turn) -> None:
        """A turn is at work from now on."""
        if self._group is None or turn.id in self._living:
            return
        attended = self._living[turn.id] = _Attended(turn)
        self._active[turn.key] = attended.mark
        # whoever begins it, it is not done in the course of their turn
        attended.task = self._group.create_task(
            self._attend(attended), name=f"{self._entry.name} {turn.id}", context=Context()
        )

    def end(self, turn: Turn, ending: str) -> None:
        attended = self._living.get(turn.id)
        if attended is None or attended.ending.done():
            return
        if self._active.get(turn.key) is attended.mark:
            del self._active[turn.key]
        if ending == "stopped":
            attended.mark.set()
        attended.ending.set_result(ending)

    async def over(self, turns: Iterable[str]) -> None:
        """Return when the adapter was told of their end, or soon after."""
        known = (self._living[turn].task for turn in turns if turn in self._living)
        tasks = {task for task in known if task is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)

    async def tried(self, verb: str, *given: Any, patience: float = PATIENCE, **offered: Any) -> Any:
        """What the adapter's `verb` gives, which it may lack; None where it breaks."""
        function = getattr(self._adapter, verb, None)
        if not callable(function):
            return None
        try:
            return await guard(self._blamed, verb, self._done(function, *given, **offered), deadline=patience)
        except PluginError:
            return None

    async def _done(self, function: Callable[..., Any], *given: Any, **offered: Any) -> Any:
        with on_behalf_of(self._entry.owner):
            return await call(function, *given, **offered)

    async def _attend(self, attended: _Attended) -> None:
        turn = attended.turn
        address, event = turn.inbound.address, event_of(turn.inbound)
        HEARD.set(event)
        try:
            async with self._chats.setdefault(turn.key, asyncio.Lock()):  # one after the other is told
                await self.tried("on_processing_start", event)
                ending = await attended.ending
                if ending == "stopped":
                    await self.tried("interrupt_session_activity", turn.key, address.chat)
                metadata = {"thread_id": address.thread} if address.thread else None
                await self.tried("stop_typing", address.chat, metadata=metadata)
                if ending != "suspended":  # it goes on at the next start
                    await self._complete(event, _OUTCOMES.get(ending, ProcessingOutcome.FAILURE))
        finally:
            del self._living[turn.id]
            if self._active.get(turn.key) is attended.mark:
                del self._active[turn.key]

    async def _complete(self, event: Any, outcome: ProcessingOutcome) -> None:
        """The oldest plugins are told whether it went well, the others how."""
        hook = getattr(self._adapter, "on_processing_complete", None)
        told = outcome is ProcessingOutcome.SUCCESS if "success" in _parameters(hook) else outcome
        await self.tried("on_processing_complete", event, told)


def _parameters(function: Any) -> tuple[str, ...]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code.co_varnames[: code.co_argcount] if code is not None else ()
