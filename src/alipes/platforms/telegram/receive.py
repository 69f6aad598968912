"""Receives from Telegram by long poll or webhook; an update is confirmed after the gateway accepted it."""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec import structs

from alipes.kernel.platform import IncomingMessage, MayFetch, OnMessage, OnStatus
from alipes.platforms.connection import ConnectionRetry
from alipes.platforms.files import fetch_for_anyone
from alipes.platforms.telegram.api import (
    FAILURES,
    UPDATE_TYPES,
    TelegramApi,
    TelegramUser,
    Update,
    WebhookInfo,
    translate_error,
)
from alipes.platforms.telegram.files import TelegramFiles
from alipes.platforms.telegram.parse import ParseContext, list_attachments, parse_update
from alipes.platforms.telegram.poll import ChatOrder, Poller, classify_failure

log = logging.getLogger(__name__)

SECRET = "x-telegram-bot-api-secret-token"


class TelegramReceiver:
    """Receives for one bot. One `listen` at a time."""

    def __init__(
        self, api: TelegramApi, files: TelegramFiles, context: ParseContext, *, seconds: float
    ) -> None:
        self._api, self._fetcher, self.reader, self._seconds = api, files, context, seconds
        self.welcome: MayFetch = fetch_for_anyone
        self._on_message: OnMessage | None = None
        self._on_webhook_ok: Callable[[], None] = lambda: None
        """Called after a successful webhook call."""
        self._order = ChatOrder()

    async def poll(self, on_message: OnMessage, on_status: OnStatus) -> None:
        await self._register(ConnectionRetry("Telegram", on_status, classify_failure), "deleteWebhook", {})
        self._on_message = on_message
        try:
            await Poller(self._api, self._deliver, on_status, seconds=self._seconds).run()
        finally:
            self._on_message = None

    async def run_webhook(self, on_message: OnMessage, on_status: OnStatus, url: str, secret: str) -> None:
        """Receive by webhook at `url`. Telegram knows whether calls succeed, so it is asked regularly."""
        hook = {"url": url, "secret_token": secret, "allowed_updates": UPDATE_TYPES}
        retry = ConnectionRetry("Telegram", on_status, classify_failure)
        self._on_message, self._on_webhook_ok = on_message, retry.succeeded
        try:
            await self._register(retry, "setWebhook", hook)
            looked, before = time.time(), -1
            while True:
                info = await self._webhook_info(retry)
                if info.url != url:
                    await self._register(retry, "setWebhook", hook)
                before = (
                    info.last_error_date if before < 0 else before
                )  # the error is from before we were started
                failed = info.last_error_date >= looked - 1 and info.last_error_date > before
                if info.pending_update_count and failed:
                    retry.report(f"Telegram cannot reach our webhook: {info.last_error_message}")
                else:
                    retry.succeeded()
                looked = time.time()
                await asyncio.sleep(self._seconds)
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
        while True:
            try:
                me = await self._api.call("getMe", TelegramUser, {})
                await self._api.call(method, bool, given)
            except FAILURES as failure:
                await retry.wait(failure)
            else:
                self.reader = structs.replace(self.reader, me=me)
                return

    async def _webhook_info(self, retry: ConnectionRetry) -> WebhookInfo:
        while True:
            try:
                return await self._api.call("getWebhookInfo", WebhookInfo, {})
            except FAILURES as failure:
                await retry.wait(failure)

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
        if not await self.welcome(incoming):
            return incoming
        return await self._fetcher.fetch(incoming, message)

    async def _answer_button(self, query: str) -> None:
        """Stop the button's spinner; a failure does not matter."""
        try:
            await self._api.call("answerCallbackQuery", bool, {"callback_query_id": query})
        except FAILURES as failure:
            log.debug("a pressed button was not answered: %s", translate_error(failure, "answering a button"))
