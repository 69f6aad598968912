"""Discord as a platform, on discord.py: one connection per `listen`, one attempt per call."""

import asyncio
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from alipes.kernel.errors import ConfigError, DeliveryError, Undeliverable
from alipes.kernel.platform import MessagePart, OnMessage, OnStatus, Platform
from alipes.kernel.turns import Address
from alipes.platforms.connection import Lanes, optional_library
from alipes.platforms.discord.settings import DiscordConfig
from alipes.platforms.files import read_outgoing
from alipes.platforms.messenger import CHAT, Messenger
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.tasks import first_error, run_to_completion

with optional_library("Discord", "discord.py", "discord"):
    from discord.http import Route

    from alipes.platforms.discord import payloads
    from alipes.platforms.discord.client import FAILURES, DiscordClient
    from alipes.platforms.discord.receive import DiscordReadPosition, DiscordReceiver

MESSAGES = "/channels/{channel_id}/messages"
MESSAGE = "/channels/{channel_id}/messages/{message_id}"


class DiscordPlatform(Messenger[DiscordConfig]):
    """Sends while `listen` or `run_sender` runs, also while the gateway is disconnected."""

    name, title = "discord", "Discord"
    capabilities = replace(CHAT, max_length=payloads.LONGEST, edit_interval=1.2, typing_seconds=9.0, sends_alone=True)
    format_message = staticmethod(payloads.format_markdown)

    def __init__(self, settings: DiscordConfig) -> None:
        super().__init__(settings)
        self._client: DiscordClient | None = None
        self._commands: list[dict[str, Any]] = []
        """Our commands as registered last; Discord keeps them."""

    async def listen(self, on_message: OnMessage, on_status: OnStatus) -> None:
        settings = self.settings
        position = DiscordReadPosition(settings.data_folder / "seen.json")
        receiver = DiscordReceiver(settings, position, on_message, self.may_fetch)
        client = receiver.client = DiscordClient(settings, receiver.on_event)
        try:
            async with asyncio.TaskGroup() as tasks:
                client.tasks, receiver.lanes = tasks, Lanes(tasks)
                tasks.create_task(position.save_periodically())
                self._client = client
                await client.serve(settings.token.reveal(), on_status)
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            self._client = None
            await run_to_completion(client.shut_down)
            position.flush()

    async def run_sender(self, on_status: OnStatus) -> None:
        """Log in to the REST interface only."""
        client = DiscordClient(self.settings, lambda _event, _arguments: None)
        try:
            await client.log_in(self.settings.token.reveal(), on_status)
            self._client = client
            on_status("ready", "")
            await asyncio.get_running_loop().create_future()
        finally:
            self._client = None
            await run_to_completion(client.shut_down)

    async def send(self, address: Address, part: MessagePart) -> str:
        body = payloads.message_body(part)
        content: dict[str, Any] = {"json": body}
        if part.media:
            data = await asyncio.to_thread(read_outgoing, part.media)
            content = {"form": payloads.file_form(part.media, body, data)}
        sent = await self._call("sending", Route("POST", MESSAGES, channel_id=_channel(address)), **content)
        return str(sent["id"])

    async def edit(self, address: Address, message: str, part: MessagePart) -> None:
        route = Route("PATCH", MESSAGE, channel_id=_channel(address), message_id=message)
        await self._call("editing a message", route, json=payloads.message_body(part, fresh=False))

    async def delete(self, address: Address, message: str) -> None:
        route = Route("DELETE", MESSAGE, channel_id=_channel(address), message_id=message)
        with suppress(Undeliverable):
            await self._call("deleting a message", route)

    async def typing(self, address: Address) -> None:
        await self._call("typing", Route("POST", "/channels/{channel_id}/typing", channel_id=_channel(address)))

    async def set_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        wanted = payloads.slash_commands(commands)
        if wanted != self._commands:
            application = self._client.application_id if self._client else None
            route = Route("PUT", "/applications/{application}/commands", application=application or 0)
            await self._call("registering the commands", route, json=wanted)
            self._commands = wanted

    async def _call(self, doing: str, route: Route, **content: Any) -> Any:
        if self._client is None or not self._client.http.open:
            raise DeliveryError("Discord is not connected yet.")
        try:
            return await self._client.http.request(route, **content)
        except FAILURES as failure:
            raise payloads.translate_error(failure, doing) from failure


def _channel(address: Address) -> str:
    """A Discord thread is a channel of its own."""
    return address.thread or address.chat


def open_platform(settings: DiscordConfig, scope: ClientScope) -> Platform:
    if not settings.token:
        raise ConfigError("Discord needs the bot's token: set the variable that [discord] token_env names.")
    return DiscordPlatform(settings)
