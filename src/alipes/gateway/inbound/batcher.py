"""Collects messages that are not complete yet: pictures that belong together, voice notes to transcribe.

Later messages of the same conversation wait behind them, so that the order is kept. Everything is stored,
so that the platform may forget it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec import structs

from alipes.gateway.policy import LateTaskGroup
from alipes.kernel.platform import IncomingMessage
from alipes.store.sql.inbox import InboxStore, WaitingMessage

OnBatch: TypeAlias = Callable[[Sequence[IncomingMessage]], Awaitable[None]]
"""Called with the messages of one batch; batches of a conversation come in order."""


class _Queue:
    """Waiting messages of one conversation."""

    def __init__(self) -> None:
        self.waiting: list[WaitingMessage] = []
        self.joined = asyncio.Event()


class Batcher:
    """Makes one batch of pictures that follow each other within the batch window."""

    def __init__(
        self,
        inbox: InboxStore,
        on_batch: OnBatch,
        *,
        window: float,
        tasks: LateTaskGroup,
        is_receiving: Callable[[str], bool] = lambda _platform: True,
    ) -> None:
        """`window`: seconds that a picture waits for the next one. `is_receiving`: whether this process is the one
        that receives the messages of a platform; a webhook may still reach any other."""
        self._is_receiving = is_receiving
        self._inbox, self._on_batch, self._window, self._tasks = inbox, on_batch, window, tasks
        self._queues: dict[str, _Queue] = {}
        self._recovered: set[str] = set()
        """Platforms of which all messages of an earlier process are queued."""

    async def recover(self, platform: str) -> None:
        """Queue the messages of a platform that an earlier process left, or that another one received meanwhile."""
        for waiting in await self._inbox.list_waiting(platform):
            if not self._is_queued(waiting.message):
                self._enqueue(waiting)
        self._recovered.add(platform)

    def wants(self, message: IncomingMessage) -> bool:
        """True if a message has to wait: it is incomplete, or something of its conversation is ahead."""
        return message.address.key in self._queues or _has_pictures(message) or is_voice(message)

    async def add(self, message: IncomingMessage) -> None:
        """Store and queue a message. A second copy is ignored unless the first was never queued."""
        platform = message.address.platform
        fresh = await self._inbox.add(message)
        lost = platform in self._recovered and not fresh and not self._is_queued(message)
        if self._is_receiving(platform) and (
            fresh or (lost and await self._inbox.is_waiting(platform, message.id))
        ):  # else the receiving process finds it in the store
            self._enqueue(WaitingMessage(message, ""))

    async def amend(self, edit: IncomingMessage) -> bool:
        """Apply an edit to a waiting message. Returns False if that message does not wait here."""
        queue = self._queues.get(edit.address.key)
        for index, waiting in enumerate(queue.waiting if queue is not None else ()):
            if queue is not None and waiting.message.id == edit.edits and not waiting.batch:
                changed = structs.replace(waiting.message, text=edit.text, quoted=edit.quoted)
                queue.waiting[index] = WaitingMessage(changed, "")
                await self._inbox.replace(changed)
                return True
        return False

    def _is_queued(self, message: IncomingMessage) -> bool:
        queue = self._queues.get(message.address.key)
        return queue is not None and any(each.message.id == message.id for each in queue.waiting)

    def _enqueue(self, waiting: WaitingMessage) -> None:
        key = waiting.message.address.key
        queue = self._queues.get(key)
        if queue is None:
            queue = _Queue()
            if not self._tasks.start(self._serve(key, queue), f"batch {key}"):
                return  # shutting down: the next start recovers it from the store
            self._queues[key] = queue
        queue.waiting.append(waiting)
        queue.joined.set()

    async def _serve(self, key: str, queue: _Queue) -> None:
        while queue.waiting:
            batch = await self._collect(queue)
            ids = tuple(each.message.id for each in batch)
            platform = batch[0].message.address.platform
            if len(ids) > 1 and not batch[0].batch:
                await self._inbox.set_batch(platform, ids[0], ids)
            for index in range(len(ids)):
                queue.waiting[index] = structs.replace(batch[index], batch=ids[0])
            await self._on_batch([each.message for each in batch])
            await self._inbox.mark_handled(platform, *ids)
            del queue.waiting[: len(ids)]
        del self._queues[key]

    async def _collect(self, queue: _Queue) -> list[WaitingMessage]:
        """The first message and those that belong to it; waits as long as more keep coming."""
        while True:
            first = queue.waiting[0]
            batch = [first]
            for each in queue.waiting[1:]:
                if not _belongs(each, first):
                    return batch
                batch.append(each)
            if first.batch or not _has_pictures(first.message):
                return batch
            queue.joined.clear()
            try:
                async with asyncio.timeout(self._window):
                    await queue.joined.wait()
            except TimeoutError:
                return queue.waiting[: len(batch)]  # some may have been edited meanwhile


def is_voice(message: IncomingMessage) -> bool:
    return any(file.kind == "voice" for file in message.files)


def _has_pictures(message: IncomingMessage) -> bool:
    files = any(file.kind in ("image", "video") for file in message.files)
    return bool(message.album or message.images or files)


def _belongs(each: WaitingMessage, first: WaitingMessage) -> bool:
    if each.batch or first.batch:
        return each.batch == first.batch
    one, other = each.message, first.message
    if one.sender != other.sender or one.album != other.album:
        return False
    return _has_pictures(one) and _has_pictures(other) and not (one.edits or one.quoted)
