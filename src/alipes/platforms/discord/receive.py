"""Receives from Discord: events become incoming messages, in order per chat; gaps are read afterwards."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import discord
from discord.http import Route

from alipes.kernel.platform import IncomingMessage, MayFetch, OnMessage
from alipes.platforms.connection import Lanes
from alipes.platforms.discord import parse
from alipes.platforms.discord.client import FAILURES, DiscordClient
from alipes.platforms.discord.payloads import escape
from alipes.platforms.discord.settings import DiscordConfig
from alipes.platforms.files import Downloads
from alipes.platforms.state_files import MAX_AGE, ReadPosition, ReadState
from alipes.runtime.tasks import backoff

EPOCH = 1_420_070_400_000
MAX_CHANNELS = 200


class DiscordReadPosition(ReadPosition[ReadState]):
    """The note of a place is its guild."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ReadState, MAX_CHANNELS)

    def since(self) -> int:
        """The id after which to read; zero if nothing was read before."""
        oldest = (int((time.time() - MAX_AGE) * 1000) - EPOCH) << 22
        return max(self.position, oldest) if self.position else 0

    async def visit(self, place: str, guild: str) -> None:
        if self.remember_place(place, guild):
            await self.save()


log = logging.getLogger(__name__)

READERS = 4
"""Channels whose gaps are read at the same time."""
MAX_BACKFILL = 500
MAX_NEW_CHANNELS = 50
"""Channels per guild that are read although nobody wrote to us there yet."""
MAX_ATTEMPTS = 6
GUILD_TIMEOUT = 5.0
"""Seconds to wait for a guild after the session started."""
EPHEMERAL = 64


class DiscordReceiver:
    """Handles events of the client. `on_event` never waits; the work happens in lanes."""

    def __init__(
        self, settings: DiscordConfig, position: DiscordReadPosition, on_message: OnMessage, may_fetch: MayFetch
    ) -> None:
        """`may_fetch`: whose files are downloaded; called with the message without its files."""
        self._settings, self._position, self._on_message, self._may_fetch = (settings, position, on_message, may_fetch)
        self.client: DiscordClient
        self.lanes: Lanes
        self._readers = asyncio.Semaphore(READERS)
        self._guilds: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._since = 0
        """Id up to which nothing was missed before the current session."""
        self._backfilled: set[str] = set()
        """Channels whose gap is read in this session, before anything else happens there."""

    def on_event(self, event: str, args: tuple[Any, ...]) -> None:
        match event, args:
            case "connect", _:
                self._read_gaps()
            case "guild_available", (guild,):
                self._guilds[str(guild.id)].set()
                self._find_new_channels(guild)
            case "message", (message,):
                self._on_message_event(message)
            case "raw_message_edit", (change,) if change.message.edited_at:
                self._on_message_event(change.message, edited=True)
            case "interaction", (interaction,):
                self._on_interaction(interaction)

    def _on_message_event(self, message: discord.Message, *, edited: bool = False) -> None:
        if parse.is_from_person(message):
            if message.guild is None and self._since and str(message.channel.id) not in self._backfilled:
                self._read({str(message.channel.id): ""})  # missed messages go first
            entry = self._position.start(message.id)
            self.lanes.put(str(message.channel.id), lambda: self._deliver(message, entry, edited))

    async def _deliver(self, message: discord.Message, entry: int, edited: bool = False) -> None:
        settings, me = self._settings, self.client.user
        assert me, "messages arrive after login"
        incoming = parse.parse_message(message, me, per_user=settings.per_user, edited=edited)
        if self._position.mark_delivered(incoming.id):
            if incoming.addressed or settings.group == "all":
                await self._position.visit(str(message.channel.id), str(message.guild.id) if message.guild else "")
                incoming = await self._with_files(incoming, message)
            await self._on_message(incoming)
        # not if it failed or was cancelled: then it is read again
        self._position.finish(entry)

    async def _with_files(self, incoming: IncomingMessage, message: discord.Message) -> IncomingMessage:
        if not parse.list_attachments(message) or not await self._may_fetch(incoming):
            return incoming
        settings = self._settings
        files = Downloads(settings.data_folder / "files", settings.largest, settings.picture)
        await parse.fetch_files(self.client.http, message, files)
        return files.attach_to(incoming)

    def _on_interaction(self, interaction: discord.Interaction[Any]) -> None:
        incoming = parse.parse_interaction(interaction, per_user=self._settings.per_user)
        if incoming is None:
            return
        # Discord expects an answer within three seconds, however long the lane is
        self.lanes.tasks.create_task(self._acknowledge(interaction, incoming))
        self.lanes.put(f"interactions of {interaction.channel_id}", lambda: self._on_message(incoming))

    async def _acknowledge(self, interaction: discord.Interaction[Any], incoming: IncomingMessage) -> None:
        """Stop the button's spinner, or confirm a slash command. The answer itself is a message."""
        heard = {"content": escape(incoming.text)[:500], "flags": EPHEMERAL, "allowed_mentions": {"parse": []}}
        answer: dict[str, Any] = {"type": 6} if incoming.pressed else {"type": 4, "data": heard}
        path = "/interactions/{interaction}/{token}/callback"
        try:
            route = Route("POST", path, interaction=interaction.id, token=interaction.token)
            await self.client.http.request(route, json=answer)
        except FAILURES as failure:
            log.warning("Discord rejected the answer to an interaction: %s", failure)

    def _read_gaps(self) -> None:
        """A new session does not repeat older messages: read them first in each lane."""
        self._since, self._backfilled = self._position.since(), set()
        self._guilds.clear()
        if self._since:
            self._read(self._position.places)

    def _find_new_channels(self, guild: discord.Guild) -> None:
        """Someone may have mentioned us in a channel that we did not know."""
        known = self._position.places
        channels: list[discord.TextChannel | discord.Thread] = [*guild.text_channels, *guild.threads]
        news = {
            str(channel.id): str(guild.id)
            for channel in channels
            if str(channel.id) not in known and (channel.last_message_id or 0) > self._since > 0
        }
        if news:
            self._read(dict(list(news.items())[:MAX_NEW_CHANNELS]))

    def _read(self, places: dict[str, str]) -> None:
        held, left, since = self._position.hold(), len(places), self._since
        self._backfilled |= places.keys()

        def finished() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                self._position.finish(held)

        if not places:
            finished()
        for place, guild in places.items():
            self.lanes.put(place, partial(self._backfill_channel, place, guild, since, finished))

    async def _backfill_channel(self, place: str, guild: str, since: int, finished: Callable[[], None]) -> None:
        async with self._readers:
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    await self._read_after(place, guild, since)
                    break
                except (discord.NotFound, discord.Forbidden):
                    self._position.forget(place)
                    break
                except discord.RateLimited as limited:
                    await asyncio.sleep(limited.retry_after)
                except FAILURES as failure:
                    log.warning("reading missed messages in %s failed: %s", place, failure)
                    await asyncio.sleep(backoff(attempt))
        finished()

    async def _read_after(self, place: str, guild: str, since: int) -> None:
        if guild:
            await self._wait_for_guild(guild)
        channel: Any = self.client.get_channel(int(place)) or await self.client.fetch_channel(int(place))
        if guild and (channel.last_message_id or since + 1) <= since:
            return
        after = discord.Object(since)
        async for message in channel.history(limit=MAX_BACKFILL, after=after, oldest_first=True):
            if parse.is_from_person(message):
                await self._deliver(message, self._position.start(message.id))

    async def _wait_for_guild(self, guild: str) -> None:
        try:
            async with asyncio.timeout(GUILD_TIMEOUT):
                await self._guilds[guild].wait()
        except TimeoutError:
            log.info("guild %s is not available yet; requesting its channels one by one", guild)
