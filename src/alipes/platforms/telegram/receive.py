"""Receives from Telegram by long poll or webhook; an update is confirmed after the gateway accepted it."""

import asyncio
import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import structs

from alipes.kernel.errors import Undeliverable
from alipes.kernel.messages import Image, image_type
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import IncomingMessage, OnMessage, OnStatus, ReceivedFile
from alipes.platforms.connection import ConnectionRetry
from alipes.platforms.files import save_file
from alipes.platforms.messenger import Messenger
from alipes.platforms.settings import TelegramSettings
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
    WebhookInfo,
    translate_error,
)
from alipes.platforms.telegram.parse import ParseContext, list_attachments, parse_update
from alipes.platforms.telegram.poll import ChatOrder, Poller, classify_failure
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 20 << 20
"""Telegram gives bots no larger files."""
MAX_IMAGE_BYTES = 4 << 20
"""Models accept no larger images."""
MAX_ATTEMPTS = 4
_SUFFIX = {"voice": ".ogg", "audio": ".mp3", "video": ".mp4"}
_UNSAFE = re.compile(r"[^\w.+@ -]+")


class TelegramFiles:
    """Downloads the files of a message. A failure is noted in the message's text."""

    def __init__(self, api: TelegramApi, folder: Path) -> None:
        self._api, self._folder = api, folder

    async def fetch(self, incoming: IncomingMessage, message: TelegramMessage) -> IncomingMessage:
        notes: list[str] = []
        images: list[Image] = []
        files: list[ReceivedFile] = []
        if message.photo:
            fitting = [size for size in message.photo if size.file_size <= MAX_IMAGE_BYTES] or [message.photo[0]]
            data = await self._get(max(fitting, key=lambda size: size.width), "photo", notes)
            images += [_image(data)] if data else []
        for file, kind in list_attachments(message):
            name = _name(file, kind, message)
            data = await self._get(file, file.file_name or kind, notes)
            if data is None:
                continue
            try:
                path = await asyncio.to_thread(save_file, self._folder / name, data)
            except OSError as error:
                log.warning("saving a file failed: %s", error)
                notes.append(f"[{file.file_name or kind}: could not be saved, {error.strerror}]")
                continue
            files.append(ReceivedFile(path, kind, file.file_name or name, file.mime_type, len(data)))
            if kind == "image" and len(data) <= MAX_IMAGE_BYTES and image_type(data):
                images.append(_image(data))
        text = "\n".join([*notes, incoming.text] if incoming.text else notes)
        return structs.replace(incoming, images=tuple(images), files=tuple(files), text=text)

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


def _name(file: TelegramFile, kind: MediaKind, message: TelegramMessage) -> str:
    """A file name that is unique, the same for a second copy of the message, and never a path."""
    given = _UNSAFE.sub("_", os.path.basename(file.file_name.replace("\\", "/"))).strip(" .")
    given = given or f"{kind}{_SUFFIX.get(kind, '')}"
    stem, suffix = os.path.splitext(given)
    short = stem.encode()[:120].decode("utf-8", "ignore") + suffix.encode()[:40].decode("utf-8", "ignore")
    return f"{message.chat.id}-{message.message_id}-{short}".lstrip("-")


SECRET = "x-telegram-bot-api-secret-token"


class TelegramReceiver:
    """Receives for one bot. One `listen` at a time."""

    def __init__(self, messenger: Messenger[TelegramSettings], api: TelegramApi) -> None:
        self._messenger, self._api, self._settings = messenger, api, messenger.settings
        settings = messenger.settings
        self._files = TelegramFiles(api, settings.folder)
        self.reader = ParseContext(TelegramUser(0), settings.group, settings.per_user)
        self._on_message: OnMessage | None = None
        self._on_webhook_ok: Callable[[], None] = lambda: None
        """Called after a successful webhook call."""
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
