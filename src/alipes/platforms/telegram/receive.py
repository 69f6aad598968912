"""Listening to Telegram, by long poll or webhook: an update is confirmed when the gateway has taken it."""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Mapping

import msgspec
from msgspec import structs

from alipes.kernel.platform import Arrival, Take, Tell, Welcome
from alipes.platforms.connection import Trouble
from alipes.platforms.files import anyone
from alipes.platforms.telegram.api import FAILURES, LISTENED, Api, Update, User, WebhookInfo, ours
from alipes.platforms.telegram.files import Fetcher
from alipes.platforms.telegram.parse import Reader, arrival, attached
from alipes.platforms.telegram.poll import Order, Poller, judged

log = logging.getLogger(__name__)

SECRET = "x-telegram-bot-api-secret-token"


class Listener:
    """One bot's ears. One `listen` at a time."""

    def __init__(self, api: Api, fetcher: Fetcher, reader: Reader, *, seconds: float) -> None:
        self._api, self._fetcher, self.reader, self._seconds = api, fetcher, reader, seconds
        self.welcome: Welcome = anyone
        self._take: Take | None = None
        self._reached: Callable[[], None] = lambda: None
        """Called when something was brought to the webhook."""
        self._order = Order()

    async def poll(self, take: Take, tell: Tell) -> None:
        await self._introduce(Trouble("Telegram", tell, judged), "deleteWebhook", {})
        self._take = take
        try:
            await Poller(self._api, self._bring, tell, seconds=self._seconds).run()
        finally:
            self._take = None

    async def watch(self, take: Take, tell: Tell, url: str, secret: str) -> None:
        """Be reached at `url`; Telegram knows whether it reaches us, so it is asked."""
        hook = {"url": url, "secret_token": secret, "allowed_updates": LISTENED}
        trouble = Trouble("Telegram", tell, judged)
        self._take, self._reached = take, trouble.over
        try:
            await self._introduce(trouble, "setWebhook", hook)
            looked, before = time.time(), -1
            while True:
                info = await self._look(trouble)
                if info.url != url:
                    await self._introduce(trouble, "setWebhook", hook)
                before = info.last_error_date if before < 0 else before  # it was not us who was not there
                failed = info.last_error_date >= looked - 1 and info.last_error_date > before
                if info.pending_update_count and failed:
                    trouble.told(f"Telegram does not reach our webhook: {info.last_error_message}")
                else:
                    trouble.over()
                looked = time.time()
                await asyncio.sleep(self._seconds)
        finally:
            self._take = None

    async def on_webhook(self, headers: Mapping[str, str], body: bytes, secret: str) -> int:
        given = next((value for name, value in headers.items() if name.lower() == SECRET), "")
        if not hmac.compare_digest(given.encode(), secret.encode()):
            return 403
        if self._take is None or not self.reader.me.id:
            return 503
        try:
            update = msgspec.json.decode(body, type=Update)
        except msgspec.MsgspecError as error:
            log.warning("an update of Telegram's is not understood and left out: %s", error)
            return 200
        await self._bring(update)
        self._reached()
        return 200

    async def _introduce(self, trouble: Trouble, method: str, given: Mapping[str, object]) -> None:
        """Learn who we are, and say where updates are to go; until it worked."""
        while True:
            try:
                me = await self._api.call("getMe", User, {})
                await self._api.call(method, bool, given)
            except FAILURES as theirs:
                await trouble.wait(theirs)
            else:
                self.reader = structs.replace(self.reader, me=me)
                return

    async def _look(self, trouble: Trouble) -> WebhookInfo:
        while True:
            try:
                return await self._api.call("getWebhookInfo", WebhookInfo, {})
            except FAILURES as theirs:
                await trouble.wait(theirs)

    async def _bring(self, update: Update) -> None:
        """Hand an update over, when it is its turn."""
        came, take = arrival(update, self.reader), self._take
        if came is None or take is None:
            return
        async with self._order.turn(update.chat, came.album) as lock:
            async with lock:
                came = await self._complete(update, came)
            await take(came)
        if update.callback_query is not None:
            await self._calm(update.callback_query.id)

    async def _complete(self, update: Update, came: Arrival) -> Arrival:
        message = update.message or update.edited_message
        if message is None or not (message.photo or attached(message)):
            return came
        if not await self.welcome(came):
            return came
        return await self._fetcher.fetch(came, message)

    async def _calm(self, query: str) -> None:
        """The button stops turning; nobody is the worse if it does not."""
        try:
            await self._api.call("answerCallbackQuery", bool, {"callback_query_id": query})
        except FAILURES as theirs:
            log.debug("a pressed button was not answered: %s", ours(theirs, "answering a button"))
