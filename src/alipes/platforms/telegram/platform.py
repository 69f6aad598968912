"""Telegram as a platform: receives by long poll or webhook, sends by the Bot API."""

import asyncio
import hashlib
from collections.abc import Mapping

from msgspec import structs

from alipes.kernel.errors import ConfigError
from alipes.kernel.platform import Capabilities, OnMessage, OnStatus, Platform
from alipes.platforms.messenger import ALL_MEDIA, Messenger
from alipes.platforms.telegram.api import CALL_TIMEOUT, TelegramApi, bad_token_error
from alipes.platforms.telegram.markup import LONGEST, format_markdown
from alipes.platforms.telegram.parse import NAME
from alipes.platforms.telegram.receive import TelegramReceiver
from alipes.platforms.telegram.send import TelegramSender
from alipes.platforms.telegram.settings import TelegramConfig
from alipes.runtime.http.clients import ClientScope


class TelegramPlatform(Messenger[TelegramConfig]):
    """A bot on the connections of `scope`."""

    name, title = NAME, "Telegram"
    capabilities = Capabilities(
        LONGEST,
        can_edit=True,
        edit_interval=1.0,
        typing_seconds=5.0,
        buttons=True,
        media=ALL_MEDIA,
        can_delete=True,
        sends_alone=True,
    )
    format_message = staticmethod(format_markdown)

    def __init__(self, settings: TelegramConfig, scope: ClientScope) -> None:
        super().__init__(settings)
        http = scope.http("telegram", base_url=settings.base_url, stall=settings.poll + 4 * CALL_TIMEOUT)
        api = TelegramApi(http, settings.token, settings.base_url)
        # the same after every start; the token cannot be derived from it
        self._secret = hashlib.sha256(f"alipes webhook {settings.token.reveal()}".encode()).hexdigest()
        self.webhook_path = "/telegram" if settings.mode == "webhook" else ""
        self.sender = self._sender = TelegramSender(api, settings.patience)
        self._receiver = TelegramReceiver(self, api)

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        if self.settings.mode == "webhook":
            await self._receiver.run_webhook(on_message, on_status, self._secret)
        else:
            await self._receiver.poll(on_message, on_status)

    async def run_sender(self, on_status: OnStatus) -> None:
        """The Bot API needs no connection of its own."""
        on_status("ready", "")
        await asyncio.get_running_loop().create_future()

    async def on_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        return await self._receiver.on_webhook(headers, body, self._secret)

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        await self._sender.menu(commands)
        self._receiver.reader = structs.replace(self._receiver.reader, commands=self._sender.commands)


def open_platform(settings: TelegramConfig, scope: ClientScope) -> Platform:
    if not settings.token:
        raise bad_token_error()
    if settings.problem:
        raise ConfigError("The webhook mode needs telegram.webhook_url: the public address of the webhook.")
    return TelegramPlatform(settings, scope)
