"""Telegram as a platform: receives by long poll or webhook, sends by the Bot API."""

import hashlib
from collections.abc import Mapping

from msgspec import structs

from alipes.kernel.models import Secret
from alipes.kernel.platform import Capabilities, MayFetch, MessagePart, OnMessage, OnStatus
from alipes.kernel.turns import Address
from alipes.platforms.telegram.api import CALL_TIMEOUT, TelegramApi, TelegramUser
from alipes.platforms.telegram.markup import LONGEST, format_markdown
from alipes.platforms.telegram.parse import NAME, ParseContext
from alipes.platforms.telegram.receive import TelegramFiles, TelegramReceiver
from alipes.platforms.telegram.send import TelegramSender
from alipes.platforms.telegram.settings import TelegramSettings
from alipes.runtime.http.clients import ClientScope

CAPABILITIES = Capabilities(
    max_length=LONGEST,
    can_edit=True,
    edit_interval=1.0,
    typing_seconds=5.0,
    buttons=True,
    media=("image", "audio", "voice", "video", "file"),
    can_delete=True,
)


def make_telegram(settings: TelegramSettings, scope: ClientScope) -> "TelegramPlatform":
    """A bot on the connections of `scope`."""
    http = scope.http("telegram", base_url=settings.base_url, stall=settings.poll + 4 * CALL_TIMEOUT)
    return TelegramPlatform(settings, TelegramApi(http, settings.token, settings.base_url))


class TelegramPlatform:
    """A `Platform` with `on_webhook` for the HTTP server."""

    def __init__(self, settings: TelegramSettings, api: TelegramApi) -> None:
        self._settings = settings
        self._secret = settings.webhook_secret.reveal() or _derived(settings.token)
        context = ParseContext(TelegramUser(0), settings.group, settings.per_user)
        self._sender = TelegramSender(api, settings.patience)
        self._receiver = TelegramReceiver(api, TelegramFiles(api, settings.folder), context, seconds=settings.poll)

    @property
    def name(self) -> str:
        return NAME

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def set_fetch_policy(self, may_fetch: MayFetch) -> None:
        self._receiver.welcome = may_fetch

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        if self._settings.mode == "webhook":
            await self._receiver.run_webhook(on_message, on_status, self._settings.webhook_url, self._secret)
        else:
            await self._receiver.poll(on_message, on_status)

    async def on_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a webhook call; returns the HTTP status. 200 only after the message was accepted."""
        return await self._receiver.on_webhook(headers, body, self._secret)

    def format_message(self, text: str) -> tuple[MessagePart, ...]:
        return format_markdown(text)

    async def send(self, address: Address, part: MessagePart) -> str:
        return await self._sender.send(address, part)

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        await self._sender.edit(address, message, part)

    async def delete(self, address: Address, message: str) -> None:
        await self._sender.delete(address, message)

    async def typing(self, address: Address) -> None:
        await self._sender.typing(address)

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        await self._sender.menu(commands)
        self._receiver.reader = structs.replace(self._receiver.reader, commands=self._sender.commands)


def _derived(token: Secret) -> str:
    """The same after every start; the token cannot be derived from it."""
    return hashlib.sha256(f"alipes webhook {token.reveal()}".encode()).hexdigest()
