"""Our ears at the other processes of the home: a connection to each, for as long as we listen at all."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Protocol

import msgspec

from alipes.kernel.turns import Envelope
from alipes.store import wire
from alipes.store.hosts import Hosts, Peer

log = logging.getLogger(__name__)


class Hearer(Protocol):
    def hear(self, envelope: Envelope, host: str) -> None: ...
    def miss(self, count: int) -> None: ...
    async def lose(self, host: str) -> None: ...
    def awaited(self) -> list[str]: ...


Spawn = Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]


class _Ear:
    """At one process: the connection, the keys it carries, and who waits for a `Done`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.keys: set[str] = set()
        self.task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[wire.Request] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    def say(self, request: wire.Request) -> "asyncio.Future[None]":
        """Send it now or once connected; the future is done when it is answered or nobody is there."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._writer is None:
            self._unsent.append(request)
        else:
            self._writer.write(wire.line(request))
        return done

    async def attend(self, hearer: Hearer) -> None:
        """Until the connection ends; whoever still waits then is let go."""
        try:
            async with wire.connected(self.peer.socket) as (reader, self._writer):
                self._writer.write(b"".join(map(wire.line, self._unsent)))
                while data := await reader.readline():
                    self._heard(data, hearer)
        except (OSError, ValueError) as error:
            log.debug("the ear at process %s closed: %s", self.peer.pid, error)
        finally:
            while self._waiting:
                self._answered()

    def _heard(self, data: bytes, hearer: Hearer) -> None:
        try:
            answer = wire.answers.decode(data)
        except msgspec.DecodeError:  # an event that only a newer alipes knows
            hearer.miss(1)
            return
        match answer:
            case wire.Done():
                self._answered()
            case wire.Published(envelope):
                hearer.hear(envelope, self.peer.host)
            case wire.Missed(count):
                hearer.miss(count)

    def _answered(self) -> None:
        if self._waiting and not (done := self._waiting.popleft()).done():
            done.set_result(None)


class Ears:
    """Whom we listen to. A key is listened for at every living process, since any may come to hold it."""

    def __init__(self, hosts: Hosts, spawn: Spawn, hearer: Hearer) -> None:
        self._hosts, self._spawn, self._hearer = hosts, spawn, hearer
        self._ears: dict[str, _Ear] = {}

    async def listen(self, key: str) -> None:
        """Returns when every living process has been told that we listen for `key`."""
        said = [(peer, self._say(peer, key)) for peer in self._hosts.others()]
        await self._answers([answer for peer, answer in said if not self._hosts.stopped(peer)])

    async def greet(self, host: str) -> None:
        """A new process: listen there for all that we listen for."""
        if (peer := self._hosts.find(host)) is not None:
            await self._answers([self._say(peer, key) for key in self._hearer.awaited()])

    def ignore(self, key: str) -> None:
        for host, ear in list(self._ears.items()):
            ear.keys.discard(key)
            if ear.keys:
                ear.say(wire.Ignore(key))
            elif ear.task is not None:
                del self._ears[host]
                ear.task.cancel()

    def _say(self, peer: Peer, key: str) -> "asyncio.Future[None]":
        ear = self._ears.get(peer.host)
        if ear is None:
            ear = self._ears[peer.host] = _Ear(peer)
            ear.task = self._spawn(self._attend(ear))
        ear.keys.add(key)
        return ear.say(wire.Listen(key))

    async def _attend(self, ear: _Ear) -> None:
        await ear.attend(self._hearer)
        if self._ears.get(ear.peer.host) is ear:
            del self._ears[ear.peer.host]
        await self._hearer.lose(ear.peer.host)

    async def _answers(self, answers: "list[asyncio.Future[None]]") -> None:
        if answers:
            _, silent = await asyncio.wait(answers, timeout=self._hosts.within)
            if silent:
                log.warning("a process of this home does not answer; what it publishes may be missed")
