"""This process as the others of the home see it: a socket, its connections, and the tasks behind them."""

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType

import msgspec

from alipes.kernel.errors import StoreError
from alipes.store import wire
from alipes.store.bus import LocalBus, Subscription
from alipes.store.dispatcher import LocalDispatcher

log = logging.getLogger(__name__)


class Tasks:
    """The parent of every task inside an open store: none outlives it, and what fails in the body of
    its `async with` comes out as it is, not in a group."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._living: set[asyncio.Task[None]] = set()
        self.closing = False

    async def __aenter__(self) -> "Tasks":
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing = True
        for task in self._living:
            task.cancel()
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*(kind, error, trace) if cancelled else (None, None, None))

    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = self._group.create_task(work)
        self._living.add(task)
        task.add_done_callback(self._living.discard)
        if self.closing:
            task.cancel()
        return task


class Node:
    """Answers the other processes."""

    def __init__(self, tasks: Tasks, bus: LocalBus, dispatcher: LocalDispatcher) -> None:
        self._tasks, self._bus, self._dispatcher = tasks, bus, dispatcher

    def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection was made: serve it in a task of ours."""
        if self._tasks.closing:
            writer.transport.abort()
        else:
            self._tasks.spawn(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lent = Subscription()
        keys: set[str] = set()
        pump: asyncio.Task[None] | None = None
        try:
            while data := await reader.readline():
                request = wire.requests.decode(data)
                await self._answer(request, lent, keys)
                if pump is None and isinstance(request, wire.Listen):
                    pump = self._tasks.spawn(_pump(lent, writer))
                writer.write(wire.line(wire.Done()))
        except OSError as error:
            log.debug("a process of this home hung up: %s", error)
        except (ValueError, msgspec.DecodeError, StoreError) as error:
            log.warning("a process of this home was not served: %s", error)
        finally:
            for key in keys:
                self._bus.take_back(key, lent)
            if pump is not None:
                pump.cancel()
            await wire.hang_up(writer)

    async def _answer(self, request: wire.Request, lent: Subscription, keys: set[str]) -> None:
        match request:
            case wire.Listen(key):
                keys.add(key)
                self._bus.lend(key, lent)
            case wire.Ignore(key):
                keys.discard(key)
                self._bus.take_back(key, lent)
            case wire.Hello(host):
                await self._bus.ears.greet(host)
            case wire.Wake(key):
                await self._dispatcher.woken(key)
            case wire.Controls(key):
                await self._dispatcher.signalled(key)


async def _pump(lent: Subscription, writer: asyncio.StreamWriter) -> None:
    """Send what is lent as fast as it is read there; what does not fit meanwhile is dropped and counted."""
    told = 0
    while envelopes := await lent.take():
        lines = [wire.line(wire.Published(envelope)) for envelope in envelopes]
        kept = [line for line in lines if len(line) <= wire.LINE]
        lent.missed += len(lines) - len(kept)
        writer.write(b"".join(kept))
        if lent.missed > told:
            writer.write(wire.line(wire.Missed(lent.missed - told)))
            told = lent.missed
        try:
            await writer.drain()
        except OSError:
            return
