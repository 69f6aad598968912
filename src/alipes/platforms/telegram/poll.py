"""The long poll: asks for updates, hands them over, confirms what was taken. It does not read them."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec

from alipes.kernel.errors import DeliveryError
from alipes.kernel.platform import Tell
from alipes.platforms.connection import Trouble
from alipes.platforms.telegram.api import (
    FAILURES,
    LISTENED,
    Api,
    Numbered,
    Refusal,
    Update,
    bad_token,
    ours,
)


class _Lane:
    """One chat in which something is being taken in."""

    def __init__(self) -> None:
        self.running = 0
        self.album = ""
        self.waiting: deque[tuple[asyncio.Future[None], str]] = deque()
        self.fetching = asyncio.Lock()


class Order:
    """Whoever asks first for a chat is first there."""

    def __init__(self) -> None:
        self._lanes: dict[int, _Lane] = {}

    @asynccontextmanager
    async def turn(self, chat: int, album: str) -> AsyncIterator[asyncio.Lock]:
        """Inside, it is our turn. Parts of an album are inside together; the lock keeps them in order."""
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
            elif (place, album) in lane.waiting:  # else who was before us has passed us over
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

SLACK = 10.0
"""Seconds beyond the poll's own after which no answer is coming: the connection is dead."""
PAUSE = 0.2
"""Seconds between two looks while something is still being taken in; more, the longer it lasts."""
LONGEST_PAUSE = 2.0
CONFLICT = 5.0


def judged(theirs: Exception, count: int) -> DeliveryError:
    """What keeps us from listening, and how long. Raises ConfigError when waiting does not help."""
    match theirs:
        case Refusal(code=401 | 404):
            raise bad_token() from theirs
        case Refusal(code=409) if theirs.says("webhook"):
            return DeliveryError("Updates go to a webhook (409): it is being removed.", retry_after=PAUSE)
        case Refusal(code=409):
            why = "Another process listens with the same bot token (409): stop it, or use two bots."
            return DeliveryError(why, retry_after=min(CONFLICT, 0.5 * count))
    return ours(theirs, "waiting for messages")


class Poller:
    """Confirms in order: an update that is not taken yet holds back the confirming of those after it."""

    def __init__(
        self, api: Api, bring: Callable[[Update], Awaitable[None]], tell: Tell, *, seconds: float
    ) -> None:
        self._api, self._bring, self._seconds = api, bring, seconds
        self._trouble = Trouble("Telegram", tell, judged)
        self._next = 0
        """The offset behind everything seen."""
        self._pending: dict[int, None] = {}
        """Being taken in, in the order they came."""
        self._taken: set[int] = set()
        """Taken in, and not yet confirmed."""
        self._settled = asyncio.Event()
        self._well = False
        """The last poll went well; after one that did not, the next waits for nothing."""
        self._looks = 0
        """How often we looked in vain while something was still being taken in."""

    async def run(self) -> None:
        """Until cancelled, or until something cannot be taken in: that is raised."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._round(tasks)
        except ExceptionGroup as several:
            raise several.exceptions[0] from several

    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        try:
            found = await self._ask()
        except FAILURES as theirs:
            self._well = False
            await self._trouble.wait(theirs)
            if isinstance(theirs, Refusal) and theirs.code == 409 and theirs.says("webhook"):
                await self._unhook()
            return
        self._well = True
        self._trouble.over()
        fresh = [self._see(raw, tasks) for raw in found]
        self._looks = 0 if any(fresh) else self._looks + 1
        if self._pending:
            await self._settle()

    async def _ask(self) -> list[msgspec.Raw]:
        offset = next(iter(self._pending), self._next)
        # What is pending comes again at once: there is nothing to wait for.
        wait = max(1, int(self._seconds)) if self._well and not self._pending else 0
        given = {"offset": offset, "timeout": wait, "allowed_updates": LISTENED}
        patience = self._seconds + min(SLACK, self._seconds / 2)
        found = await self._api.call("getUpdates", list[msgspec.Raw], given, patience=patience)
        self._taken = {number for number in self._taken if number >= offset}
        return found

    def _see(self, raw: msgspec.Raw, tasks: asyncio.TaskGroup) -> bool:
        """Begin to take it in; False for what was seen before."""
        number = msgspec.json.decode(raw, type=Numbered).update_id
        if number in self._pending or number in self._taken:
            return False
        self._next = number + 1
        try:
            update = msgspec.json.decode(raw, type=Update)
        except msgspec.ValidationError as error:
            log.warning("an update of Telegram's is not understood and left out: %s", error)
            return True
        self._pending[number] = None
        self._settled.clear()
        tasks.create_task(self._hand_over(update))
        return True

    async def _hand_over(self, update: Update) -> None:
        await self._bring(update)
        del self._pending[update.update_id]
        self._taken.add(update.update_id)
        if not self._pending:
            self._settled.set()

    async def _settle(self) -> None:
        try:
            async with asyncio.timeout(min(PAUSE * (1 + self._looks), LONGEST_PAUSE)):
                await self._settled.wait()
        except TimeoutError:
            return

    async def _unhook(self) -> None:
        try:
            await self._api.call("deleteWebhook", bool, {})
        except FAILURES as theirs:
            await self._trouble.wait(theirs)
