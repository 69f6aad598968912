"""The event bus of a cluster: subscriptions in this worker and in the others. Fast and lossy."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from alipes.kernel.errors import StoreError
from alipes.kernel.turns import Envelope
from alipes.runtime.subscription import Subscription
from alipes.store.postgres.notifications import (
    AddedFrame,
    ConfirmedFrame,
    Frame,
    JoinedFrame,
    Notifications,
    RemovedFrame,
    SubscriptionsFrame,
)
from alipes.store.postgres.workers import Workers
from alipes.store.sqlite.peers import MissedFrame, PublishedFrame

log = logging.getLogger(__name__)


class _Confirmations:
    """The workers whose answer one request waits for."""

    def __init__(self, hosts: set[str]) -> None:
        self._hosts = hosts
        self.done = asyncio.Event()
        self.discard("")

    def discard(self, host: str) -> None:
        self._hosts.discard(host)
        if not self._hosts:
            self.done.set()


class PostgresBus:
    """Each worker says which keys it subscribes to, and events are sent only to those.

    `list_orphans()`: the keys with work that no worker holds.
    """

    def __init__(
        self, workers: Workers, notifications: Notifications, list_orphans: Callable[[], Awaitable[tuple[str, ...]]]
    ) -> None:
        self._workers, self._notifications, self._list_orphans = workers, notifications, list_orphans
        self._local: dict[str, set[Subscription]] = {}
        self._remote: dict[str, set[str]] = {}
        """By key, the workers that subscribe to it."""
        self._joined: set[str] = set()
        """Workers that said so themselves; their rows may not have been read yet."""
        self._requests: dict[int, _Confirmations] = {}
        self._number = 0

    def publish(self, envelope: Envelope) -> None:
        self._on_event(envelope, self._workers.own_name)
        if hosts := self._remote.get(envelope.key):
            self._notifications.send_event(hosts, PublishedFrame(envelope))

    def has_subscribers(self, key: str) -> bool:
        return bool(self._local.get(key) or self._remote.get(key))

    @asynccontextmanager
    async def subscribe(self, key: str, into: Subscription | None = None) -> AsyncIterator[Subscription]:
        subscription: Subscription = into or Subscription()
        local = self._local.setdefault(key, set())
        local.add(subscription)
        try:
            await self._announce_key(key)
            yield subscription
        finally:
            local.discard(subscription)
            if not local and self._local.get(key) is local:
                del self._local[key]
                for host in self.list_hosts():
                    self._notifications.send(host, RemovedFrame(key))

    def list_hosts(self) -> set[str]:
        """The other workers, also those that have just said hello."""
        known = self._joined | {peer.host for peer in self._workers.list_peers()}
        return {host for host in known if self._workers.is_alive(host)}

    async def _announce_key(self, key: str) -> None:
        self._number += 1
        number = self._number
        peers = self.list_hosts()
        request = self._requests[number] = _Confirmations(set(peers))
        for host in peers:
            self._notifications.send(host, AddedFrame(key, number))
        try:
            await self._wait_confirmed(request)
        finally:
            del self._requests[number]

    async def join(self) -> None:
        """Say that we may publish, and wait until the subscriptions of the other workers are known."""
        await self._notifications.listens.wait()
        peers = self.list_hosts()
        request = self._requests[0] = _Confirmations(set(peers))
        for host in peers:
            self._notifications.send(host, JoinedFrame(tuple(self._local)))
        try:
            await self._wait_confirmed(request)
        finally:
            self._requests.pop(0, None)

    async def _wait_confirmed(self, request: _Confirmations) -> None:
        try:
            async with asyncio.timeout(self._workers.timeout_s):
                await request.done.wait()
        except TimeoutError:
            log.warning("a worker does not answer; its events may be missed")

    def handle(self, host: str, frame: Frame) -> None:
        """The worker `host` sent this."""
        match frame:
            case PublishedFrame(envelope):
                self._on_event(envelope, host)
            case MissedFrame(count):
                self._on_missed(count)
            case AddedFrame(key, number):
                self._remote.setdefault(key, set()).add(host)
                self._notifications.send(host, ConfirmedFrame(number))
            case RemovedFrame(key):
                self._remove_remote(key, host)
            case ConfirmedFrame(number):
                if number in self._requests:
                    self._requests[number].discard(host)
            case JoinedFrame(keys) | SubscriptionsFrame(keys):
                self._on_subscriptions(host, keys)
                if isinstance(frame, JoinedFrame):
                    self._notifications.send(host, SubscriptionsFrame(tuple(self._local)))

    def _on_subscriptions(self, host: str, keys: tuple[str, ...]) -> None:
        """All keys of `host`. It knows ours by now, or asks for them next: nothing else is awaited from it."""
        for key in list(self._remote):
            self._remove_remote(key, host)
        for key in keys:
            self._remote.setdefault(key, set()).add(host)
        self._joined.add(host)
        self._workers.on_joined(host)
        for request in list(self._requests.values()):
            request.discard(host)

    def _remove_remote(self, key: str, host: str) -> None:
        remote = self._remote.get(key, set())
        remote.discard(host)
        if not remote:
            self._remote.pop(key, None)

    def _on_event(self, envelope: Envelope, host: str) -> None:
        for subscription in self._local.get(envelope.key, ()):
            subscription.put(envelope, host)

    def _on_missed(self, count: int) -> None:
        """`count` envelopes were lost. Their keys are not known, so it counts for everyone."""
        for local in self._local.values():
            for subscription in local:
                subscription.missed += count

    def on_interrupted(self) -> None:
        """Our notifications were interrupted: count it as missed, and ask again who subscribes to what."""
        self._on_missed(1)
        for host in self.list_hosts():
            self._notifications.send(host, JoinedFrame(tuple(self._local)))

    async def on_gone(self, host: str) -> None:
        """The worker `host` is gone: close the subscriptions whose events it would have published."""
        self._joined.discard(host)
        for key in list(self._remote):
            self._remove_remote(key, host)
        for request in list(self._requests.values()):
            request.discard(host)
        self._notifications.forget(host)
        if not self._local:
            return
        try:
            ended = set(await self._list_orphans())
        except StoreError:  # the subscribers ask the store next and get this error themselves
            ended = set(self._local)
        for key, local in list(self._local.items()):
            for subscription in list(local):
                if key in ended or subscription.source == host:
                    subscription.close()

    def close(self) -> None:
        """Nothing more is published here: close all subscriptions."""
        for local in self._local.values():
            for subscription in local:
                subscription.close()
