"""Brings a session's work to the process that holds it: here, or over the holder's socket."""

import asyncio
import logging
from collections.abc import Callable

from alipes.kernel.errors import Held
from alipes.kernel.turns import Op, Take
from alipes.store import wire
from alipes.store.hosts import Hosts
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
            if await self._told(holder, wire.Wake(key)):
                return

    async def signal(self, key: str, op: Op) -> None:
        """As the port says. Where nobody holds the session and a turn waits, whoever claims that turn
        finds `op` by `drain_control`; so claim first, then drain."""
        await self._turns.put_control(key, op)
        while (holder := await self._turns.holder(key)) not in (None, self._hosts.me):
            if await self._told(holder, wire.Controls(key)):
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
            await self._told(held.host, wire.Controls(key))
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

    async def _told(self, host: str | None, request: wire.Request) -> bool:
        """False when `host` is gone, so that it is worth looking again who holds the session."""
        if host is None:
            return False
        if await wire.tell(self._hosts, host, request):
            return True
        if await self._hosts.gone(host):
            return False
        log.warning("process %s lives but cannot be reached; what waits for it is in the store", host)
        return True
