"""Events on their way to whoever watches: fast and lossy. The journal is where they are kept."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec

from alipes.kernel.errors import StoreError
from alipes.kernel.turns import Envelope
from alipes.store.peers import peers
from alipes.store.peers.peers import Hosts, Peer

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
        self._unsent: list[peers.Request] = []
        self._waiting: deque[asyncio.Future[None]] = deque()

    def say(self, request: peers.Request) -> "asyncio.Future[None]":
        """Send it now or once connected; the future is done when it is answered or nobody is there."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._writer is None:
            self._unsent.append(request)
        else:
            self._writer.write(peers.line(request))
        return done

    async def attend(self, hearer: Hearer) -> None:
        """Until the connection ends; whoever still waits then is let go."""
        try:
            async with peers.connected(self.peer.socket) as (reader, self._writer):
                self._writer.write(b"".join(map(peers.line, self._unsent)))
                while data := await reader.readline():
                    self._heard(data, hearer)
        except (OSError, ValueError) as error:
            log.debug("the ear at process %s closed: %s", self.peer.pid, error)
        finally:
            while self._waiting:
                self._answered()

    def _heard(self, data: bytes, hearer: Hearer) -> None:
        try:
            answer = peers.answers.decode(data)
        except msgspec.DecodeError:  # an event that only a newer alipes knows
            hearer.miss(1)
            return
        match answer:
            case peers.Done():
                self._answered()
            case peers.Published(envelope):
                hearer.hear(envelope, self.peer.host)
            case peers.Missed(count):
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
                ear.say(peers.Ignore(key))
            elif ear.task is not None:
                del self._ears[host]
                ear.task.cancel()

    def _say(self, peer: Peer, key: str) -> "asyncio.Future[None]":
        ear = self._ears.get(peer.host)
        if ear is None:
            ear = self._ears[peer.host] = _Ear(peer)
            ear.task = self._spawn(self._attend(ear))
        ear.keys.add(key)
        return ear.say(peers.Listen(key))

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


BACKLOG = 4096
"""Envelopes that wait for one reader; beyond it the oldest are dropped, so the ending always arrives."""


class Subscription:
    """What one reader has still to read: an async iterator that ends when its publisher is gone."""

    def __init__(self, backlog: int = BACKLOG) -> None:
        self._waiting: deque[Envelope] = deque(maxlen=backlog)
        self._ready = asyncio.Event()
        self._over = False
        self.missed = 0
        """How many were dropped because they were not read in time; re-read the journal then."""
        self.source = ""
        """The process that published last."""

    def put(self, envelope: Envelope, source: str) -> None:
        if len(self._waiting) == self._waiting.maxlen:
            self.missed += 1
        self._waiting.append(envelope)
        self.source = source
        self._ready.set()

    def end(self) -> None:
        """No more will come; what waits can still be read."""
        self._over = True
        self._ready.set()

    async def take(self) -> list[Envelope]:
        """All that waits, as soon as there is some; empty once it is over."""
        while not self._waiting and not self._over:
            self._ready.clear()
            await self._ready.wait()
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        while not self._waiting:
            if self._over:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        return self._waiting.popleft()


class LocalBus:
    """`Bus` for the processes of one home. `abandoned(key)`: has it work that nobody living holds?"""

    def __init__(self, hosts: Hosts, spawn: Spawn, abandoned: Callable[[str], Awaitable[bool]]) -> None:
        self._hosts, self._abandoned = hosts, abandoned
        self.ears = Ears(hosts, spawn, self)
        self._here: dict[str, set[Subscription]] = {}
        self._away: dict[str, set[Subscription]] = {}

    def publish(self, envelope: Envelope) -> None:
        for subscription in self._here.get(envelope.key, ()):
            subscription.put(envelope, self._hosts.me)
        for subscription in self._away.get(envelope.key, ()):
            subscription.put(envelope, self._hosts.me)

    def heard(self, key: str) -> bool:
        return bool(self._here.get(key) or self._away.get(key))

    @asynccontextmanager
    async def subscribe(self, key: str, into: Subscription | None = None) -> AsyncIterator[Subscription]:
        """`into`: a reader of one's own, whose `put` is called as soon as something is published."""
        subscription = into or Subscription()
        here = self._here.setdefault(key, set())
        here.add(subscription)  # before we look who lives: who comes after that look asks us (`Hello`)
        try:
            await self.ears.listen(key)
            yield subscription
        finally:
            here.discard(subscription)
            if not here:
                del self._here[key]
                self.ears.ignore(key)

    def hear(self, envelope: Envelope, host: str) -> None:
        """Another process published this."""
        for subscription in self._here.get(envelope.key, ()):
            subscription.put(envelope, host)

    def miss(self, count: int) -> None:
        """Another process dropped `count` for us; whose they were is not known, so everyone is told."""
        for here in self._here.values():
            for subscription in here:
                subscription.missed += count

    async def lose(self, host: str) -> None:
        """We hear nothing more from `host`: end what it would have published."""
        dead = await self._hosts.gone(host)
        for key, here in list(self._here.items()):
            ended = not dead or await self._ended(key)
            for subscription in list(here):
                if ended or subscription.source == host:
                    subscription.end()

    async def _ended(self, key: str) -> bool:
        try:
            return await self._abandoned(key)
        except StoreError:  # the reader asks the store next, and is told
            return True

    def awaited(self) -> list[str]:
        """What is listened for here."""
        return list(self._here)

    def lend(self, key: str, subscription: Subscription) -> None:
        """Put what is published here under `key` also into `subscription`, for a reader elsewhere."""
        self._away.setdefault(key, set()).add(subscription)

    def take_back(self, key: str, subscription: Subscription) -> None:
        away = self._away.get(key, set())
        away.discard(subscription)
        if not away:
            self._away.pop(key, None)

    def end(self) -> None:
        """We stop publishing: every reader here is told."""
        for here in self._here.values():
            for subscription in here:
                subscription.end()
