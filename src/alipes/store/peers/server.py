"""This process as the others of the home see it: a socket, its connections, and the tasks behind them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType

import msgspec

from alipes.kernel.errors import Held, StoreError
from alipes.kernel.turns import Op, Take
from alipes.store.peers import peers
from alipes.store.peers.bus import LocalBus, Subscription
from alipes.store.peers.peers import Hosts
from alipes.store.turns import SqliteTurns

log = logging.getLogger(__name__)

OnOp = Callable[[str, Op], None]


class LocalDispatcher:
    """`Dispatcher` for the processes of one home."""

    def __init__(self, turns: SqliteTurns, hosts: Hosts) -> None:
        self._turns, self._hosts = turns, hosts
        self._on_op: OnOp | None = None
        self._serving = asyncio.Event()
        self._early: list[tuple[str, Op]] = []

    def wake_here(self, key: str) -> bool:
        """Where we are alone nobody else can hold it: then it is woken at once, else not at all."""
        if alone := not self._hosts.others():
            self._deliver(key, Take())
        return alone

    async def wake(self, key: str) -> None:
        while not self.wake_here(key):
            holder = await self._turns.holder(key)
            if holder in (None, self._hosts.me):
                self._deliver(key, Take())
                return
            if await self._told(holder, peers.Wake(key)):
                return

    async def signal(self, key: str, op: Op) -> None:
        """As the port says. Where nobody holds the session and a turn waits, whoever claims that turn
        finds `op` by `drain_control`; so claim first, then drain."""
        await self._turns.put_control(key, op)
        while (holder := await self._turns.holder(key)) not in (None, self._hosts.me):
            if await self._told(holder, peers.Controls(key)):
                return
        if holder is None and await self._turns.waits(key):
            self._deliver(key, Take())
        elif self._on_op is not None:
            await self._drain(key)

    async def run(self, on_op: OnOp) -> None:
        self._on_op = on_op
        self._serving.set()
        try:
            early, self._early = self._early, []
            for key, op in early:
                on_op(key, op)
            await asyncio.get_running_loop().create_future()
        finally:
            self._on_op = None
            self._serving.clear()

    async def woken(self, key: str) -> None:
        """Another process says that something waits; returns when it has been passed on."""
        await self._serving.wait()
        self._deliver(key, Take())

    async def signalled(self, key: str) -> None:
        """Another process left ops for a session that, as it saw, we hold."""
        await self._serving.wait()
        await self._drain(key)

    async def _drain(self, key: str) -> None:
        try:
            ops = await self._turns.drain_control(key)
        except Held as held:  # it changed hands while the word was on its way
            await self._told(held.host, peers.Controls(key))
            return
        for op in ops:
            if self._on_op is not None:
                self._on_op(key, op)
            else:  # we stopped serving meanwhile: it is the next holder's
                await self._turns.put_control(key, op)

    def _deliver(self, key: str, op: Op) -> None:
        if self._on_op is None:
            self._early.append((key, op))
        else:
            self._on_op(key, op)

    async def _told(self, host: str | None, request: peers.Request) -> bool:
        """False when `host` is gone, so that it is worth looking again who holds the session."""
        if host is None:
            return False
        if await peers.tell(self._hosts, host, request):
            return True
        if await self._hosts.gone(host):
            return False
        log.warning("process %s lives but cannot be reached; what waits for it is in the store", host)
        return True


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
                request = peers.requests.decode(data)
                await self._answer(request, lent, keys)
                if pump is None and isinstance(request, peers.Listen):
                    pump = self._tasks.spawn(_pump(lent, writer))
                writer.write(peers.line(peers.Done()))
        except OSError as error:
            log.debug("a process of this home hung up: %s", error)
        except (ValueError, msgspec.DecodeError, StoreError) as error:
            log.warning("a process of this home was not served: %s", error)
        finally:
            for key in keys:
                self._bus.take_back(key, lent)
            if pump is not None:
                pump.cancel()
            await peers.hang_up(writer)

    async def _answer(self, request: peers.Request, lent: Subscription, keys: set[str]) -> None:
        match request:
            case peers.Listen(key):
                keys.add(key)
                self._bus.lend(key, lent)
            case peers.Ignore(key):
                keys.discard(key)
                self._bus.take_back(key, lent)
            case peers.Hello(host):
                await self._bus.ears.greet(host)
            case peers.Wake(key):
                await self._dispatcher.woken(key)
            case peers.Controls(key):
                await self._dispatcher.signalled(key)


async def _pump(lent: Subscription, writer: asyncio.StreamWriter) -> None:
    """Send what is lent as fast as it is read there; what does not fit meanwhile is dropped and counted."""
    told = 0
    while envelopes := await lent.take():
        lines = [peers.line(peers.Published(envelope)) for envelope in envelopes]
        kept = [line for line in lines if len(line) <= peers.LINE]
        lent.missed += len(lines) - len(kept)
        writer.write(b"".join(kept))
        if lent.missed > told:
            writer.write(peers.line(peers.Missed(lent.missed - told)))
            told = lent.missed
        try:
            await writer.drain()
        except OSError:
            return
