"""Receives from Telegram by long poll or webhook; an update is confirmed after the gateway accepted it."""

import asyncio
import hmac
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import structs

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.messages import Image, image_type
from alipes.kernel.platform import IncomingMessage, OnMessage, OnStatus, ReceivedFile
from alipes.platforms.connection import ConnectionRetry
from alipes.platforms.files import Downloads, make_file_name, save_file
from alipes.platforms.messenger import Messenger
from alipes.platforms.telegram.api import (
    FAILURES,
    UPDATE_TYPES,
    InvalidApiResponse,
    RemoteFile,
    TelegramApi,
    TelegramError,
    TelegramFile,
    TelegramMessage,
    TelegramUser,
    Update,
    UpdateNumber,
    WebhookInfo,
    bad_token_error,
    translate_error,
)
from alipes.platforms.telegram.parse import ParseContext, list_attachments, parse_update
from alipes.platforms.telegram.settings import TelegramConfig
from alipes.runtime.tasks import backoff, unwrap_error_group

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 20 << 20
"""Telegram gives bots no larger files."""
MAX_IMAGE_BYTES = 4 << 20
"""Models accept no larger images."""
MAX_ATTEMPTS = 4
_SUFFIX = {"voice": ".ogg", "audio": ".mp3", "video": ".mp4"}


class TelegramFiles:
    """Downloads the files of a message. A failure is noted in the message's text."""

    def __init__(self, api: TelegramApi, folder: Path) -> None:
        self._api, self._folder = api, folder

    async def fetch(self, incoming: IncomingMessage, message: TelegramMessage) -> IncomingMessage:
        found = Downloads(self._folder, MAX_FILE_BYTES, MAX_IMAGE_BYTES)
        if message.photo:
            fitting = [size for size in message.photo if size.file_size <= MAX_IMAGE_BYTES] or [message.photo[0]]
            data = await self._get(max(fitting, key=lambda size: size.width), "photo", found.notes)
            found.images += [_image(data)] if data else []
        for file, kind in list_attachments(message):
            data = await self._get(file, file.file_name or kind, found.notes)
            if data is None:
                continue
            given = file.file_name or f"{kind}{_SUFFIX.get(kind, '')}"
            name = make_file_name(f"{message.chat.id}-{message.message_id}", given)
            try:
                path = await asyncio.to_thread(save_file, self._folder / name, data)
            except OSError as error:
                log.warning("saving a file failed: %s", error)
                found.notes.append(f"[{file.file_name or kind}: could not be saved, {error.strerror}]")
                continue
            found.files.append(ReceivedFile(path, kind, file.file_name or name, file.mime_type, len(data)))
            if kind == "image" and len(data) <= MAX_IMAGE_BYTES and image_type(data):
                found.images.append(_image(data))
        text = "\n".join(filter(None, (*found.notes, incoming.text)))
        return structs.replace(found.attach_to(incoming), text=text)

    async def _get(self, file: TelegramFile, name: str, notes: list[str]) -> bytes | None:
        if file.file_size > MAX_FILE_BYTES:
            notes.append(f"[{name}: {file.file_size >> 20} MB, more than Telegram lets a bot download]")
            return None
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                remote = await self._api.call("getFile", RemoteFile, {"file_id": file.file_id})
                return await self._api.download(remote.file_path, MAX_FILE_BYTES)
            except FAILURES as failure:
                error = translate_error(failure, "downloading a file")
                final = isinstance(failure, TelegramError | InvalidApiResponse) and isinstance(error, Undeliverable)
                if attempt == MAX_ATTEMPTS or final:
                    log.warning("downloading a file failed: %s", error)
                    break
                await asyncio.sleep(error.retry_after or backoff(attempt))
        notes.append(f"[{name}: could not be downloaded]")
        return None


def _image(data: bytes) -> Image:
    return Image(image_type(data) or "image/jpeg", data)


class _Lane:
    """A chat whose updates are being handled."""

    def __init__(self) -> None:
        self.running = 0
        self.album = ""
        self.waiting: deque[tuple[asyncio.Future[None], str]] = deque()
        self.fetching = asyncio.Lock()


class ChatOrder:
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
        with unwrap_error_group():
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._poll_once(tasks)

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
        with suppress(TimeoutError):
            async with asyncio.timeout(min(PAUSE * (1 + self._idle_polls), LONGEST_PAUSE)):
                await self._settled.wait()

    async def _delete_webhook(self) -> None:
        try:
            await self._api.call("deleteWebhook", bool, {})
        except FAILURES as failure:
            await self._retry.wait(failure)


SECRET = "x-telegram-bot-api-secret-token"


class TelegramReceiver:
    """Receives for one bot. One `listen` at a time."""

    def __init__(self, messenger: Messenger[TelegramConfig], api: TelegramApi) -> None:
        self._messenger, self._api, self._settings = messenger, api, messenger.settings
        settings = messenger.settings
        self._files = TelegramFiles(api, settings.data_folder)
        self.reader = ParseContext(TelegramUser(0), settings.group, settings.per_user)
        self._on_message: OnMessage | None = None
        self._on_webhook_ok: Callable[[], None] = lambda: None
        self._order = ChatOrder()

    async def poll(self, on_message: OnMessage, on_status: OnStatus) -> None:
        await self._register(ConnectionRetry("Telegram", on_status, classify_failure), "deleteWebhook", {})
        self._on_message = on_message
        try:
            await Poller(self._api, self._deliver, on_status, seconds=self._settings.poll).run()
        finally:
            self._on_message = None

    async def run_webhook(self, on_message: OnMessage, on_status: OnStatus, secret: str) -> None:
        """Receive by webhook. Telegram knows whether calls succeed, so it is asked regularly."""
        url = self._settings.webhook_url
        hook = {"url": url, "secret_token": secret, "allowed_updates": UPDATE_TYPES}
        retry = ConnectionRetry("Telegram", on_status, classify_failure)
        self._on_message, self._on_webhook_ok = on_message, retry.succeeded
        try:
            await self._register(retry, "setWebhook", hook)
            looked, before = time.time(), -1
            while True:
                info = await retry.until_success(lambda: self._api.call("getWebhookInfo", WebhookInfo, {}), *FAILURES)
                if info.url != url:
                    await self._register(retry, "setWebhook", hook)
                before = info.last_error_date if before < 0 else before  # the error is from before we were started
                failed = info.last_error_date >= looked - 1 and info.last_error_date > before
                if info.pending_update_count and failed:
                    retry.report(f"Telegram cannot reach our webhook: {info.last_error_message}")
                else:
                    retry.succeeded()
                looked = time.time()
                await asyncio.sleep(self._settings.poll)
        finally:
            self._on_message = None

    async def on_webhook(self, headers: Mapping[str, str], body: bytes, secret: str) -> int:
        given = next((value for name, value in headers.items() if name.lower() == SECRET), "")
        if not hmac.compare_digest(given.encode(), secret.encode()):
            return 403
        if self._on_message is None or not self.reader.me.id:
            return 503
        try:
            update = msgspec.json.decode(body, type=Update)
        except msgspec.MsgspecError as error:
            log.warning("skipped an invalid Telegram update: %s", error)
            return 200
        await self._deliver(update)
        self._on_webhook_ok()
        return 200

    async def _register(self, retry: ConnectionRetry, method: str, given: Mapping[str, object]) -> None:
        """Get our user and set where updates go; retries until that worked."""

        async def call() -> TelegramUser:
            me = await self._api.call("getMe", TelegramUser, {})
            await self._api.call(method, bool, given)
            return me

        self.reader = structs.replace(self.reader, me=await retry.until_success(call, *FAILURES))

    async def _deliver(self, update: Update) -> None:
        """Deliver an update in the order of its chat."""
        incoming, on_message = parse_update(update, self.reader), self._on_message
        if incoming is None or on_message is None:
            return
        async with self._order.turn(update.chat, incoming.album) as lock:
            async with lock:
                incoming = await self._with_files(update, incoming)
            await on_message(incoming)
        if update.callback_query is not None:
            await self._answer_button(update.callback_query.id)

    async def _with_files(self, update: Update, incoming: IncomingMessage) -> IncomingMessage:
        message = update.message or update.edited_message
        if message is None or not (message.photo or list_attachments(message)):
            return incoming
        if not await self._messenger.may_fetch(incoming):
            return incoming
        return await self._files.fetch(incoming, message)

    async def _answer_button(self, query: str) -> None:
        """Stop the button's spinner; a failure does not matter."""
        try:
            await self._api.call("answerCallbackQuery", bool, {"callback_query_id": query})
        except FAILURES as failure:
            log.debug("a pressed button was not answered: %s", translate_error(failure, "answering a button"))
