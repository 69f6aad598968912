"""The messenger port on discord.py: one connection per `listen`, and every call out tried once."""

import asyncio
from contextlib import suppress
from typing import Any

from discord.http import Route
from yarl import URL

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.platform import Piece, Take, Talents, Tell, Welcome
from alipes.kernel.turns import Address
from alipes.platforms import files
from alipes.platforms.connection import Lanes
from alipes.platforms.discord import payloads
from alipes.platforms.discord.client import TROUBLE, Client
from alipes.platforms.discord.http import Http
from alipes.platforms.discord.receive import Listening, Seen
from alipes.platforms.discord.settings import DiscordSettings
from alipes.runtime.http.proxies import is_loopback
from alipes.runtime.tasks import first, to_the_end

MESSAGES = "/channels/{channel_id}/messages"
MESSAGE = "/channels/{channel_id}/messages/{message_id}"
TALENTS = Talents(
    longest=payloads.LONGEST,
    edits=True,
    pace=1.2,
    typing=9.0,
    buttons=True,
    media=("image", "audio", "voice", "video", "file"),
    remembers=True,
    deletes=True,
)


class Discord:
    """Sends while `listen` runs, whether or not the gateway's connection stands at the moment."""

    name = "discord"
    talents = TALENTS

    def __init__(self, settings: DiscordSettings) -> None:
        self._settings = settings
        self._client: Client | None = None
        self._welcome: Welcome = files.anyone
        self._shown: list[dict[str, Any]] = []
        """Our commands as Discord was told them last; it keeps them."""

    def fetch_only_for(self, welcome: Welcome) -> None:
        """Files are fetched for those of whom this is true; it is asked with the arrival as it is without."""
        self._welcome = welcome

    async def listen(self, take: Take, tell: Tell) -> None:
        settings = self._settings
        seen = Seen(settings.folder / "seen.json")
        listening = Listening(settings, seen, take, self._welcome)
        client = listening.client = Client(
            self._http, listening.hear, grace=settings.grace, calm=settings.calm
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                client.tasks, listening.lanes = tasks, Lanes(tasks)
                tasks.create_task(seen.keep())
                self._client = client
                await client.serve(settings.token.reveal(), tell)
        except BaseExceptionGroup as errors:
            raise first(errors) from None
        finally:
            self._client = None
            await to_the_end(client.end)
            seen.flush()

    def pieces(self, text: str) -> tuple[Piece, ...]:
        return payloads.pieces(text)

    async def send(self, address: Address, piece: Piece) -> str:
        told = payloads.body(piece)
        content: dict[str, Any] = {"json": told}
        if piece.media:
            data = await asyncio.to_thread(files.content, piece.media.path)
            content = {"form": payloads.form(piece, told, data)}
        sent = await self._call("sending", Route("POST", MESSAGES, channel_id=_channel(address)), **content)
        return str(sent["id"])

    async def edit(self, address: Address, message: str, piece: Piece) -> None:
        route = Route("PATCH", MESSAGE, channel_id=_channel(address), message_id=message)
        await self._call("changing a message", route, json=payloads.body(piece, fresh=False))

    async def delete(self, address: Address, message: str) -> None:
        route = Route("DELETE", MESSAGE, channel_id=_channel(address), message_id=message)
        with suppress(Gone):
            await self._call("deleting a message", route)

    async def typing(self, address: Address) -> None:
        await self._call(
            "typing", Route("POST", "/channels/{channel_id}/typing", channel_id=_channel(address))
        )

    async def menu(self, commands: tuple[tuple[str, str], ...]) -> None:
        wanted = payloads.slash_commands(commands)
        if wanted != self._shown:
            application = self._client.application_id if self._client else None
            route = Route("PUT", "/applications/{application}/commands", application=application or 0)
            await self._call("showing the menu", route, json=wanted)
            self._shown = wanted

    async def _call(self, doing: str, route: Route, **content: Any) -> Any:
        if self._client is None or not self._client.http.open:
            raise DeliveryError("Discord is not connected yet.")
        try:
            return await self._client.http.request(route, **content)
        except TROUBLE as theirs:
            raise payloads.ours(theirs, doing) from theirs

    def _http(self, loop: Any) -> Http:
        settings = self._settings
        proxy = "" if is_loopback(URL(settings.base_url).host or "") else settings.proxy
        return Http(loop, settings.base_url, deadline=settings.deadline, proxy=proxy)


def _channel(address: Address) -> str:
    """For Discord a thread is a channel."""
    return address.thread or address.chat
