"""Serves the requests of the other processes, and passes work to the process that holds a session."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType

import msgspec

from alipes.kernel.errors import SessionHeld, StoreError
from alipes.kernel.turns import Op, Wake
from alipes.store.peers import peers
from alipes.store.peers.bus import LocalBus, Subscription
from alipes.store.peers.peers import Processes
from alipes.store.turns import SqliteTurns

log = logging.getLogger(__name__)

OnOp = Callable[[str, Op], None]


class LocalDispatcher:
    """Routes work to the process of this home that holds the session."""

    def __init__(self, turns: SqliteTurns, processes: Processes) -> None:
        self._turns, self._processes = turns, processes
        self._on_op: OnOp | None = None
        self._serving = asyncio.Event()
        self._early: list[tuple[str, Op]] = []

    def wake_if_alone(self, key: str) -> bool:
        """Wake the session at once if no other process is running; else do nothing and return False."""
        if alone := not self._processes.list_peers():
            self._deliver(key, Wake())
        return alone

    async def wake(self, key: str) -> None:
        """Work is queued for `key`: notify its holder, or take it ourselves if there is none."""
        while not self.wake_if_alone(key):
            holder = await self._turns.holder(key)
            if holder in (None, self._processes.own_name):
                self._deliver(key, Wake())
                return
            if await self._notify(holder, peers.WakeFrame(key)):
                return

    async def signal(self, key: str, op: Op) -> None:
        """Send `op` to the session's holder in any process; stored before it is sent.

        If nobody holds the session and a turn is queued, the process that claims it finds `op` in the store;
        so claim first, then take the ops.
        """
        await self._turns.put_op(key, op)
        while (holder := await self._turns.holder(key)) not in (None, self._processes.own_name):
            if await self._notify(holder, peers.OpsFrame(key)):
                return
        if holder is None and await self._turns.has_pending(key):
            self._deliver(key, Wake())
        elif self._on_op is not None:
            await self._deliver_stored_ops(key)

    async def run(self, on_op: OnOp) -> None:
        """Serve until cancelled: call `on_op(key, op)` for each wake-up (`Wake`) and signal meant for us."""
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

    async def on_wake(self, key: str) -> None:
        """Another process queued a turn; return when it has been passed on."""
        await self._serving.wait()
        self._deliver(key, Wake())

    async def on_ops(self, key: str) -> None:
        """Another process stored ops for a session that we held at that moment."""
        await self._serving.wait()
        await self._deliver_stored_ops(key)

    async def _deliver_stored_ops(self, key: str) -> None:
        try:
            ops = await self._turns.take_ops(key)
        except SessionHeld as held:  # another process claimed it meanwhile
            await self._notify(held.host, peers.OpsFrame(key))
            return
        for op in ops:
            if self._on_op is not None:
                self._on_op(key, op)
            else:  # we stopped serving meanwhile: leave it for the next holder
                await self._turns.put_op(key, op)

    def _deliver(self, key: str, op: Op) -> None:
        if self._on_op is None:
            self._early.append((key, op))
        else:
            self._on_op(key, op)

    async def _notify(self, host: str | None, request: peers.RequestFrame) -> bool:
        """False if `host` is gone: then look again who holds the session."""
        if host is None:
            return False
        if await peers.send_request(self._processes, host, request):
            return True
        if await self._processes.wait_until_gone(host):
            return False
        log.warning("process %s is running but cannot be reached; its work stays in the store", host)
        return True


class StoreTasks:
    """The parent of every task inside an open store; none of them outlives it.

    Unlike a `TaskGroup` it raises an error of its body as it is, not as a group.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self.closing = False

    async def __aenter__(self) -> "StoreTasks":
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing = True
        for task in self._running:
            task.cancel()
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*(kind, error, trace) if cancelled else (None, None, None))

    def spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if self.closing:
            task.cancel()
        return task


class PeerServer:
    """Serves the connections of the other processes."""

    def __init__(self, tasks: StoreTasks, bus: LocalBus, dispatcher: LocalDispatcher) -> None:
        self._tasks, self._bus, self._dispatcher = tasks, bus, dispatcher

    def accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._tasks.closing:
            writer.transport.abort()
        else:
            self._tasks.spawn(self._serve(reader, writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subscription = Subscription()
        keys: set[str] = set()
        sender: asyncio.Task[None] | None = None
        try:
            while line := await reader.readline():
                request = peers.request_decoder.decode(line)
                await self._handle(request, subscription, keys)
                if sender is None and isinstance(request, peers.SubscribeFrame):
                    sender = self._tasks.spawn(_send_events(subscription, writer))
                writer.write(peers.encode_line(peers.DoneFrame()))
        except OSError as error:
            log.debug("a process of this home closed its connection: %s", error)
        except (ValueError, msgspec.DecodeError, StoreError) as error:
            log.warning("a request of another process of this home failed: %s", error)
        finally:
            for key in keys:
                self._bus.remove_remote(key, subscription)
            if sender is not None:
                sender.cancel()
            await peers.close_connection(writer)

    async def _handle(self, request: peers.RequestFrame, subscription: Subscription, keys: set[str]) -> None:
        match request:
            case peers.SubscribeFrame(key):
                keys.add(key)
                self._bus.add_remote(key, subscription)
            case peers.UnsubscribeFrame(key):
                keys.discard(key)
                self._bus.remove_remote(key, subscription)
            case peers.HelloFrame(host):
                await self._bus.peers.subscribe_all_at(host)
            case peers.WakeFrame(key):
                await self._dispatcher.on_wake(key)
            case peers.OpsFrame(key):
                await self._dispatcher.on_ops(key)


async def _send_events(subscription: Subscription, writer: asyncio.StreamWriter) -> None:
    """Send as fast as the other process reads; what exceeds the backlog is dropped and counted."""
    reported = 0
    while envelopes := await subscription.take_all():
        lines = [peers.encode_line(peers.PublishedFrame(envelope)) for envelope in envelopes]
        short = [line for line in lines if len(line) <= peers.MAX_LINE_BYTES]
        subscription.missed += len(lines) - len(short)
        writer.write(b"".join(short))
        if subscription.missed > reported:
            writer.write(peers.encode_line(peers.MissedFrame(subscription.missed - reported)))
            reported = subscription.missed
        try:
            await writer.drain()
        except OSError:
            return
