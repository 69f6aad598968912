"""The event bus of a home: subscriptions in this process and in the others. Fast and lossy."""

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
from alipes.store.peers.peers import Peer, Processes

log = logging.getLogger(__name__)

MAX_BACKLOG = 4096
"""Envelopes kept for one subscriber; after that the oldest are dropped, so that the ending always arrives."""
Spawn = Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]


class PeerListener(Protocol):
    """Receives what other processes send."""

    def on_event(self, envelope: Envelope, host: str) -> None: ...
    def on_missed(self, count: int) -> None: ...
    async def on_disconnect(self, host: str) -> None: ...
    def subscribed_keys(self) -> list[str]: ...


class _PeerConnection:
    """A connection to one process, the keys subscribed there, and the requests not answered yet."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.keys: set[str] = set()
        self.task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[peers.RequestFrame] = []
        self._unanswered: deque[asyncio.Future[None]] = deque()

    def send(self, request: peers.RequestFrame) -> "asyncio.Future[None]":
        """Send now, or once connected. The future is done when it is answered or the connection ends."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unanswered.append(done)
        if self._writer is None:
            self._unsent.append(request)
        else:
            self._writer.write(peers.encode_line(request))
        return done

    async def run(self, listener: PeerListener) -> None:
        """Read until the connection ends, then resolve the requests that are still open."""
        try:
            async with peers.open_connection(self.peer.socket) as (reader, self._writer):
                self._writer.write(b"".join(map(peers.encode_line, self._unsent)))
                while line := await reader.readline():
                    self._handle_line(line, listener)
        except (OSError, ValueError) as error:
            log.debug("the connection to process %s closed: %s", self.peer.pid, error)
        finally:
            while self._unanswered:
                self._resolve_request()

    def _handle_line(self, line: bytes, listener: PeerListener) -> None:
        try:
            answer = peers.answer_decoder.decode(line)
        except msgspec.DecodeError:  # an event that only a newer alipes knows
            listener.on_missed(1)
            return
        match answer:
            case peers.DoneFrame():
                self._resolve_request()
            case peers.PublishedFrame(envelope):
                listener.on_event(envelope, self.peer.host)
            case peers.MissedFrame(count):
                listener.on_missed(count)

    def _resolve_request(self) -> None:
        if self._unanswered and not (done := self._unanswered.popleft()).done():
            done.set_result(None)


class PeerSubscriptions:
    """Our subscriptions at the other processes: at each of them, since any may claim the session of a key."""

    def __init__(self, processes: Processes, spawn: Spawn, listener: PeerListener) -> None:
        self._processes, self._spawn, self._listener = processes, spawn, listener
        self._connections: dict[str, _PeerConnection] = {}

    async def subscribe(self, key: str) -> None:
        """Return when every running process has confirmed the subscription."""
        sent = [(peer, self._send_subscribe(peer, key)) for peer in self._processes.list_peers()]
        await self._wait_confirmed([done for peer, done in sent if not self._processes.is_suspended(peer)])

    async def subscribe_all_at(self, host: str) -> None:
        """A new process: subscribe there to everything that we are subscribed to."""
        if (peer := self._processes.find_peer(host)) is not None:
            keys = self._listener.subscribed_keys()
            await self._wait_confirmed([self._send_subscribe(peer, key) for key in keys])

    def unsubscribe(self, key: str) -> None:
        for host, connection in list(self._connections.items()):
            connection.keys.discard(key)
            if connection.keys:
                connection.send(peers.UnsubscribeFrame(key))
            elif connection.task is not None:
                del self._connections[host]
                connection.task.cancel()

    def _send_subscribe(self, peer: Peer, key: str) -> "asyncio.Future[None]":
        connection = self._connections.get(peer.host)
        if connection is None:
            connection = self._connections[peer.host] = _PeerConnection(peer)
            connection.task = self._spawn(self._run(connection))
        connection.keys.add(key)
        return connection.send(peers.SubscribeFrame(key))

    async def _run(self, connection: _PeerConnection) -> None:
        await connection.run(self._listener)
        host = connection.peer.host
        if self._connections.get(host) is connection:
            del self._connections[host]
        await self._listener.on_disconnect(host)

    async def _wait_confirmed(self, requests: "list[asyncio.Future[None]]") -> None:
        if requests:
            _, unanswered = await asyncio.wait(requests, timeout=self._processes.timeout_s)
            if unanswered:
                log.warning("a process of this home does not answer; its events may be missed")


class Subscription:
    """The unread envelopes of one subscriber: an async iterator that ends when the publisher is gone."""

    def __init__(self, backlog: int = MAX_BACKLOG) -> None:
        self._unread: deque[Envelope] = deque(maxlen=backlog)
        self._ready = asyncio.Event()
        self._closed = False
        self.missed = 0
        """How many were dropped because they were not read in time; read the journal again then."""
        self.source = ""
        """The process that published last."""

    def put(self, envelope: Envelope, source: str) -> None:
        if len(self._unread) == self._unread.maxlen:
            self.missed += 1
        self._unread.append(envelope)
        self.source = source
        self._ready.set()

    def close(self) -> None:
        """No more will come; the rest can still be read."""
        self._closed = True
        self._ready.set()

    async def take_all(self) -> list[Envelope]:
        """Wait for at least one envelope and take all there are; empty once closed."""
        while not self._unread and not self._closed:
            self._ready.clear()
            await self._ready.wait()
        taken = list(self._unread)
        self._unread.clear()
        return taken

    def __aiter__(self) -> AsyncIterator[Envelope]:
        return self

    async def __anext__(self) -> Envelope:
        while not self._unread:
            if self._closed:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        return self._unread.popleft()


class LocalBus:
    """Events between the processes of one home: fast and lossy. Readers that miss some read the journal.

    `is_abandoned(key)`: it has work that no running process holds.
    """

    def __init__(self, processes: Processes, spawn: Spawn, is_abandoned: Callable[[str], Awaitable[bool]]) -> None:
        self._processes, self._is_abandoned = processes, is_abandoned
        self.peers = PeerSubscriptions(processes, spawn, self)
        self._local: dict[str, set[Subscription]] = {}
        self._remote: dict[str, set[Subscription]] = {}

    def publish(self, envelope: Envelope) -> None:
        """Pass it to every subscriber of its key; never waits, and drops events of slow readers."""
        for subscription in self._local.get(envelope.key, ()):
            subscription.put(envelope, self._processes.own_name)
        for subscription in self._remote.get(envelope.key, ()):
            subscription.put(envelope, self._processes.own_name)

    def has_subscribers(self, key: str) -> bool:
        """True if someone subscribes to `key`, here or in another process."""
        return bool(self._local.get(key) or self._remote.get(key))

    @asynccontextmanager
    async def subscribe(self, key: str, into: Subscription | None = None) -> AsyncIterator[Subscription]:
        """Events published under `key` from now on, by this process or by the session's holder. The iterator
        ends when the publishing process exits; read the store then.

        `into`: a subscription of the caller's own class, whose `put` is called for each envelope."""
        subscription = into or Subscription()
        local = self._local.setdefault(key, set())
        local.add(subscription)  # before the peers are listed: a process that starts later asks us (`HelloFrame`)
        try:
            await self.peers.subscribe(key)
            yield subscription
        finally:
            local.discard(subscription)
            if not local:
                del self._local[key]
                self.peers.unsubscribe(key)

    def on_event(self, envelope: Envelope, host: str) -> None:
        """Another process published this."""
        for subscription in self._local.get(envelope.key, ()):
            subscription.put(envelope, host)

    def on_missed(self, count: int) -> None:
        """Another process dropped `count` envelopes. Their keys are not known, so it counts for everyone."""
        for local in self._local.values():
            for subscription in local:
                subscription.missed += count

    async def on_disconnect(self, host: str) -> None:
        """The connection to `host` ended: close the subscriptions whose events it would have published."""
        gone = await self._processes.wait_until_gone(host)
        for key, local in list(self._local.items()):
            ended = not gone or await self._has_ended(key)
            for subscription in list(local):
                if ended or subscription.source == host:
                    subscription.close()

    async def _has_ended(self, key: str) -> bool:
        try:
            return await self._is_abandoned(key)
        except StoreError:  # the subscriber asks the store next and gets this error itself
            return True

    def subscribed_keys(self) -> list[str]:
        return list(self._local)

    def add_remote(self, key: str, subscription: Subscription) -> None:
        """Also put what is published here under `key` into `subscription`, for another process."""
        self._remote.setdefault(key, set()).add(subscription)

    def remove_remote(self, key: str, subscription: Subscription) -> None:
        remote = self._remote.get(key, set())
        remote.discard(subscription)
        if not remote:
            self._remote.pop(key, None)

    def close(self) -> None:
        """Nothing more is published here: close all subscriptions."""
        for local in self._local.values():
            for subscription in local:
                subscription.close()
