"""Telegram, as the gateway sees it: a bot that listens by long poll or webhook and speaks by the Bot API."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Secret
from alipes.kernel.platform import Piece, Take, Talents, Tell, Welcome
from alipes.kernel.turns import Address
from alipes.platforms.telegram.api import PATIENCE, Api, User, bad_token
from alipes.platforms.telegram.files import Fetcher
from alipes.platforms.telegram.markup import LONGEST, pieces
from alipes.platforms.telegram.parse import NAME, Reader
from alipes.platforms.telegram.receive import Listener
from alipes.platforms.telegram.send import Speaker
from alipes.runtime.http.clients import ClientScope

TALENTS = Talents(
    longest=LONGEST,
    edits=True,
    pace=1.0,
    typing=5.0,
    buttons=True,
    media=("image", "audio", "voice", "video", "file"),
    deletes=True,
)


class TelegramSettings(Struct, frozen=True, kw_only=True):
    token: Secret
    folder: Path
    """Where files that people send are saved."""
    base_url: str = "https://api.telegram.org"
    mode: Literal["poll", "webhook"] = "poll"
    webhook_url: str = ""
    webhook_secret: Secret = Secret()
    """What Telegram shows at the webhook to be known; made from the token when empty."""
    group: Literal["mention", "all"] = "mention"
    """`all`: what is said in a group means us also without our name."""
    per_user: bool = False
    poll: float = 50.0
    """Seconds that a long poll lasts, or between two looks whether the webhook is well."""
    patience: float = PATIENCE
    """Seconds in which a message must be answered, or nobody knows whether it arrived."""


def open_telegram(settings: TelegramSettings, scope: ClientScope) -> "Telegram":
    """A bot on the scope's connections. Nothing is asked of Telegram yet."""
    if not settings.token:
        raise bad_token()
    if settings.mode == "webhook" and not settings.webhook_url:
        raise ConfigError("A webhook needs telegram.webhook_url: the address at which Telegram reaches us.")
    http = scope.http("telegram", base_url=settings.base_url, stall=settings.poll + 4 * PATIENCE)
    return Telegram(settings, Api(http, settings.token, settings.base_url))


class Telegram:
    """A `Platform`; and `on_webhook` for whoever answers HTTP."""

    def __init__(self, settings: TelegramSettings, api: Api) -> None:
        self._settings = settings
        self._secret = settings.webhook_secret.reveal() or _derived(settings.token)
        reader = Reader(User(0), settings.group, settings.per_user)
        self._speaker = Speaker(api, settings.patience)
        self._listener = Listener(api, Fetcher(api, settings.folder), reader, seconds=settings.poll)

    @property
    def name(self) -> str:
        return NAME

    @property
    def talents(self) -> Talents:
        return TALENTS

    def fetch_only_for(self, welcome: Welcome) -> None:
        """Files are fetched for those of whom this is true; it is asked with the arrival as it is without."""
        self._listener.welcome = welcome

    async def listen(self, take: Take, tell: Tell) -> None:
        if self._settings.mode == "webhook":
            await self._listener.watch(take, tell, self._settings.webhook_url, self._secret)
        else:
            await self._listener.poll(take, tell)

    async def on_webhook(self, headers: Mapping[str, str], body: bytes) -> int:
        """What Telegram pushes; the status to answer it with. 200 only after it was taken."""
        return await self._listener.on_webhook(headers, body, self._secret)

    def pieces(self, text: str) -> tuple[Piece, ...]:
        return pieces(text)

    async def send(self, address: Address, piece: Piece) -> str:
        return await self._speaker.send(address, piece)

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        await self._speaker.edit(address, message, piece)

    async def delete(self, address: Address, message: str) -> None:
        await self._speaker.delete(address, message)

    async def typing(self, address: Address) -> None:
        await self._speaker.typing(address)

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        await self._speaker.menu(commands)
        self._listener.reader = structs.replace(self._listener.reader, commands=self._speaker.commands)


def _derived(token: Secret) -> str:
    """The same after every start, and no way back to the token."""
    return hashlib.sha256(f"alipes webhook {token.reveal()}".encode()).hexdigest()
