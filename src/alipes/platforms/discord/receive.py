"""One time of listening to Discord: events become arrivals, in order per chat; gaps are read afterwards."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import discord
import msgspec
from discord.http import Route
from msgspec import Struct
from msgspec.structs import replace

from alipes.kernel.platform import Arrival, Take, Welcome
from alipes.platforms.connection import Lanes
from alipes.platforms.discord import parse
from alipes.platforms.discord.client import TROUBLE, Client
from alipes.platforms.discord.payloads import escape
from alipes.platforms.discord.settings import DiscordSettings
from alipes.platforms.state_files import Progress, put, read
from alipes.runtime.tasks import backoff

EPOCH = 1_420_070_400_000
OLDEST = 86_400.0
"""Seconds after which a message that nobody heard is not answered any more."""
PLACES = 200
HANDED = 2000


class Kept(Struct):
    mark: int = 0
    """Everything up to this message has been handed over."""
    places: dict[str, str] = {}
    """Channels and threads where someone spoke to us, with their guild; the latest last."""


class Seen(Progress):
    """And where people write to us."""

    def __init__(self, path: Path) -> None:
        self._kept = read(path, Kept)
        super().__init__(path, self._kept.mark)
        self._handed: dict[str, None] = {}

    @property
    def places(self) -> dict[str, str]:
        return dict(self._kept.places)

    def since(self) -> int:
        """The id after which to read; zero when there was nothing before."""
        oldest = (int((time.time() - OLDEST) * 1000) - EPOCH) << 22
        return max(self.mark, oldest) if self.mark else 0

    def first(self, name: str) -> bool:
        """Whether this one was not handed over before, by us and lately."""
        if name in self._handed:
            return False
        put(self._handed, name, None, HANDED)
        return True

    async def visit(self, place: str, guild: str) -> None:
        """A place that is new is written down at once: after a kill nobody else would tell us of it."""
        new = place not in self._kept.places
        put(self._kept.places, place, guild, PLACES)
        self.changed.set()
        if new:
            await self.write()

    def forget(self, place: str) -> None:
        self._kept.places.pop(place, None)
        self.changed.set()

    def _encoded(self) -> bytes:
        return msgspec.json.encode(Kept(self.mark, self._kept.places))


log = logging.getLogger(__name__)

READERS = 4
"""Places whose gaps are read at once."""
FAR_BACK = 500
AROUND = 50
"""Channels of a guild, at most, that are read though nobody spoke to us there yet."""
TRIES = 6
GUILD = 5.0
"""Seconds that a guild has to introduce itself after the session began."""
EPHEMERAL = 64


class Listening:
    """`hear` is called by the client at once and never waits; the rest happens in lanes."""

    def __init__(self, settings: DiscordSettings, seen: Seen, take: Take, welcome: Welcome) -> None:
        """`welcome`: whose files are fetched; asked with the arrival as it is without."""
        self._settings, self._seen, self._take, self._welcome = settings, seen, take, welcome
        self.client: Client
        self.lanes: Lanes
        self._few = asyncio.Semaphore(READERS)
        self._guilds: dict[str, asyncio.Event] = {}
        self._since = 0
        """Up to which message nothing was missed before the present session."""
        self._sought: set[str] = set()
        """Places that are read since it began, before anything else happens there."""

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        match event, args:
            case "connect", _:
                self._read_gaps()
            case "guild_available", (guild,):
                self._guild(str(guild.id)).set()
                self._look_around(guild)
            case "message", (message,):
                self._message(message)
            case "raw_message_edit", (change,) if change.message.edited_at:
                self._message(change.message, edited=True)
            case "interaction", (told,):
                self._interaction(told)

    def _message(self, message: discord.Message, *, edited: bool = False) -> None:
        if parse.spoken(message):
            if message.guild is None and self._since and str(message.channel.id) not in self._sought:
                self._read({str(message.channel.id): ""})  # what was missed there goes before it
            begun = self._seen.begin(message.id)
            self.lanes.put(str(message.channel.id), lambda: self._hand_over(message, begun, edited))

    async def _hand_over(self, message: discord.Message, begun: int, edited: bool = False) -> None:
        settings, me = self._settings, self.client.user
        assert me, "messages come after the greeting"
        made = parse.arrival(message, me, per_user=settings.per_user, edited=edited)
        if self._seen.first(made.id):
            if made.addressed or settings.group == "all":
                await self._seen.visit(
                    str(message.channel.id), str(message.guild.id) if message.guild else ""
                )
                made = await self._with_files(made, message)
            await self._take(made)
        # Not if it failed or was cut off: then it is read again.
        self._seen.done(begun)

    async def _with_files(self, made: Arrival, message: discord.Message) -> Arrival:
        if not parse.attached(message) or not await self._welcome(made):
            return made
        images, files, missing = await parse.files(
            self.client.http,
            message,
            self._settings.folder / "files",
            largest=self._settings.largest,
            picture=self._settings.picture,
        )
        text = "\n".join(filter(None, (made.text, *missing)))
        return replace(made, images=images, files=files, text=text)

    def _interaction(self, told: discord.Interaction[Any]) -> None:
        made = parse.interaction(told, per_user=self._settings.per_user)
        if made is None:
            return
        # Discord gives us three seconds, however long the lane is.
        self.lanes.tasks.create_task(self._acknowledge(told, made))
        self.lanes.put(f"interactions of {told.channel_id}", lambda: self._take(made))

    async def _acknowledge(self, told: discord.Interaction[Any], made: Arrival) -> None:
        """The button stops spinning; who chose a command sees it was heard. The answer is a message."""
        heard = {"content": escape(made.text)[:500], "flags": EPHEMERAL, "allowed_mentions": {"parse": []}}
        answer: dict[str, Any] = {"type": 6} if made.pressed else {"type": 4, "data": heard}
        path = "/interactions/{interaction}/{token}/callback"
        try:
            route = Route("POST", path, interaction=told.id, token=told.token)
            await self.client.http.request(route, json=answer)
        except TROUBLE as trouble:
            log.warning("Discord did not take the answer to an interaction: %s", trouble)

    def _guild(self, id: str) -> asyncio.Event:
        return self._guilds.setdefault(id, asyncio.Event())

    def _read_gaps(self) -> None:
        """A new session tells nothing of what was said before it. First in each lane: old before new."""
        self._since, self._guilds, self._sought = self._seen.since(), {}, set()
        if self._since:
            self._read(self._seen.places)

    def _look_around(self, guild: discord.Guild) -> None:
        """Where nobody spoke to us before, someone may have called us meanwhile."""
        known = self._seen.places
        channels: list[discord.TextChannel | discord.Thread] = [*guild.text_channels, *guild.threads]
        news = {
            str(channel.id): str(guild.id)
            for channel in channels
            if str(channel.id) not in known and (channel.last_message_id or 0) > self._since > 0
        }
        if news:
            self._read(dict(list(news.items())[:AROUND]))

    def _read(self, places: dict[str, str]) -> None:
        held, left, since = self._seen.hold(), len(places), self._since
        self._sought |= places.keys()

        def finished() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                self._seen.done(held)

        if not places:
            finished()
        for place, guild in places.items():
            self.lanes.put(place, partial(self._read_gap, place, guild, since, finished))

    async def _read_gap(self, place: str, guild: str, since: int, finished: Callable[[], None]) -> None:
        async with self._few:
            for attempt in range(1, TRIES + 1):
                try:
                    await self._read_after(place, guild, since)
                    break
                except (discord.NotFound, discord.Forbidden):
                    self._seen.forget(place)
                    break
                except discord.RateLimited as limited:
                    await asyncio.sleep(limited.retry_after)
                except TROUBLE as trouble:
                    log.warning("reading what was said in %s meanwhile failed: %s", place, trouble)
                    await asyncio.sleep(backoff(attempt))
        finished()

    async def _read_after(self, place: str, guild: str, since: int) -> None:
        if guild:
            await self._introduced(guild)
        channel: Any = self.client.get_channel(int(place)) or await self.client.fetch_channel(int(place))
        if guild and (channel.last_message_id or since + 1) <= since:
            return
        after = discord.Object(since)
        async for message in channel.history(limit=FAR_BACK, after=after, oldest_first=True):
            if parse.spoken(message):
                await self._hand_over(message, self._seen.begin(message.id))

    async def _introduced(self, guild: str) -> None:
        try:
            async with asyncio.timeout(GUILD):
                await self._guild(guild).wait()
        except TimeoutError:
            log.info("guild %s is not there yet; its channels are asked for one by one", guild)
