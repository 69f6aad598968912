"""The long poll: requests updates, handles them in order per chat and confirms them."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import OnStatus
from alipes.platforms.connection import ConnectionRetry
from alipes.platforms.telegram.api import (
    FAILURES,
    UPDATE_TYPES,
    TelegramApi,
    TelegramError,
    Update,
    UpdateNumber,
    bad_token_error,
    translate_error,
)


class _Lane:
    """A chat whose updates are being handled."""

    def __init__(self) -> None:
        self.running = 0
        self.album = ""
        self.waiting: deque[tuple[asyncio.Future[None], str]] = deque()
        self.fetching = asyncio.Lock()


class ChatOrder:
    """Orders the updates of each chat."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}

    @asynccontextmanager
    async def turn(self, chat: int, album: str) -> AsyncIterator[asyncio.Lock]:
        """Inside, the update may be handled. Parts of an album run together; the lock keeps them in order."""
        lane = self._lanes.setdefault(chat, _Lane())
        if lane.running and (lane.waiting or not album or album != lane.album):
            await self._wait(chat, lane, album)
        else:
            lane.running, lane.album = lane.running + 1, album
        try:
            yield lane.fetching
        finally:
            self._leave(chat, lane)

    async def _wait(self, chat: int, lane: _Lane, album: str) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.waiting.append((place, album))
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it became our turn in the same moment
                self._leave(chat, lane)
            elif (place, album) in lane.waiting:  # otherwise the one before us already removed us
                lane.waiting.remove((place, album))
            raise

    def _leave(self, chat: int, lane: _Lane) -> None:
        lane.running -= 1
        while lane.waiting and (not lane.running or (lane.album and lane.waiting[0][1] == lane.album)):
            place, album = lane.waiting.popleft()
            if place.done():  # cancelled together with us
                continue
            lane.running, lane.album = lane.running + 1, album
            place.set_result(None)
        if not lane.running:
            self._lanes.pop(chat, None)


log = logging.getLogger(__name__)

POLL_GRACE = 10.0
"""Seconds beyond the poll time after which the connection counts as dead."""
PAUSE = 0.2
"""Seconds between two polls while updates are being handled; grows with each poll."""
LONGEST_PAUSE = 2.0
CONFLICT = 5.0


def classify_failure(failure: Exception, count: int) -> DeliveryError:
    """Translate a failure while polling. Raises ConfigError if waiting cannot help."""
    match failure:
        case TelegramError(code=401 | 404):
            raise bad_token_error() from failure
        case TelegramError(code=409) if failure.mentions("webhook"):
            return DeliveryError("Updates go to a webhook (409): it is being removed.", retry_after=PAUSE)
        case TelegramError(code=409):
            why = "Another process uses the same bot token (409): stop it, or use two bots."
            return DeliveryError(why, retry_after=min(CONFLICT, 0.5 * count))
    return translate_error(failure, "waiting for messages")


class Poller:
    """Confirms in order: an unhandled update also holds back the confirmation of later ones."""

    def __init__(
        self, api: TelegramApi, on_update: Callable[[Update], Awaitable[None]], on_status: OnStatus, *, seconds: float
    ) -> None:
        self._api, self._on_update, self._seconds = api, on_update, seconds
        self._retry = ConnectionRetry("Telegram", on_status, classify_failure)
        self._next = 0
        """Offset after everything received."""
        self._pending: dict[int, None] = {}
        """Updates being handled, in order."""
        self._taken: set[int] = set()
        """Handled but not yet confirmed."""
        self._settled = asyncio.Event()
        self._last_poll_ok = False
        """True if the last poll succeeded; after a failure the next one does not wait."""
        self._idle_polls = 0
        """Polls without new updates while some are being handled."""

    async def run(self) -> None:
        """Poll until cancelled, or until an update fails: that error is raised."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._poll_once(tasks)
        except ExceptionGroup as several:
            raise several.exceptions[0] from several

    async def _poll_once(self, tasks: asyncio.TaskGroup) -> None:
        try:
            found = await self._call()
        except FAILURES as failure:
            self._last_poll_ok = False
            await self._retry.wait(failure)
            if isinstance(failure, TelegramError) and failure.code == 409 and failure.mentions("webhook"):
                await self._delete_webhook()
            return
        self._last_poll_ok = True
        self._retry.succeeded()
        fresh = [self._start(raw, tasks) for raw in found]
        self._idle_polls = 0 if any(fresh) else self._idle_polls + 1
        if self._pending:
            await self._wait_settled()

    async def _call(self) -> list[msgspec.Raw]:
        offset = next(iter(self._pending), self._next)
        # pending updates are returned at once, so there is nothing to wait for
        wait = max(1, int(self._seconds)) if self._last_poll_ok and not self._pending else 0
        given = {"offset": offset, "timeout": wait, "allowed_updates": UPDATE_TYPES}
        patience = self._seconds + min(POLL_GRACE, self._seconds / 2)
        found = await self._api.call("getUpdates", list[msgspec.Raw], given, patience=patience)
        self._taken = {number for number in self._taken if number >= offset}
        return found

    def _start(self, raw: msgspec.Raw, tasks: asyncio.TaskGroup) -> bool:
        """Start handling an update; returns False if it was received before."""
        number = msgspec.json.decode(raw, type=UpdateNumber).update_id
        if number in self._pending or number in self._taken:
            return False
        self._next = number + 1
        try:
            update = msgspec.json.decode(raw, type=Update)
        except msgspec.ValidationError as error:
            log.warning("skipped an invalid Telegram update: %s", error)
            return True
        self._pending[number] = None
        self._settled.clear()
        tasks.create_task(self._deliver(update))
        return True

    async def _deliver(self, update: Update) -> None:
        await self._on_update(update)
        del self._pending[update.update_id]
        self._taken.add(update.update_id)
        if not self._pending:
            self._settled.set()

    async def _wait_settled(self) -> None:
        try:
            async with asyncio.timeout(min(PAUSE * (1 + self._idle_polls), LONGEST_PAUSE)):
                await self._settled.wait()
        except TimeoutError:
            return

    async def _delete_webhook(self) -> None:
        try:
            await self._api.call("deleteWebhook", bool, {})
        except FAILURES as failure:
            await self._retry.wait(failure)
