"""Discord as a surface: the loopback REST API, gateway and CDN, and `alipes serve` with discord.py on them."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conformance.markup import read
from tests.conformance.served import Messenger
from tests.conformance.surface import File, Room
from tests.world.discord_server import DiscordServer

GUESTS = 120
VERBS = {"send": "POST", "edit": "PATCH"}


class Discord(Messenger):
    name = platform = "discord"
    longest = 2000
    mention = "@alipes"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._guests = (f"guest{number}" for number in range(GUESTS))
        self._channels = itertools.count(1)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with DiscordServer() as self.server:
            yield

    def settings(self) -> list[str]:
        (self.home.path / ".env").write_text(f"DISCORD_BOT_TOKEN={self.server.token}\n")
        (self.home.path / ".env").chmod(0o600)
        names = (*(f"guest{number}" for number in range(GUESTS)), "ada", "grace")
        allowed = [self.server.world.person(name).id for name in names]
        return ["[discord]", f'base_url = "{self.server.base_url}"', f"allow = {allowed}"]

    async def room(self) -> "Channel":
        return Channel(self, next(self._guests))

    async def stranger(self) -> "Channel":
        return Channel(self, f"not {next(self._guests)}")

    async def group(self) -> "Channel":
        return Channel(self, "ada", f"channel-{next(self._channels)}")

    async def thread(self, group: Room, name: str) -> "Channel":
        assert isinstance(group, Channel)
        return Channel(self, "ada", f"{group.where}/{name}")

    def commands(self) -> list[str]:
        return [each["name"] for each in self.server.rest.commands]


class Channel(Room):
    """Direct messages with a person, a channel of the guild, or a thread in one."""

    def __init__(self, surface: Discord, who: str, where: str = "") -> None:
        self._surface, self._server = surface, surface.server
        self._who, self.where = who, where
        self._place = surface.server.place(where, who)

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        files = [(file.name, file.mime, file.data)] if file else []
        return self._server.say(text, who or self._who, self.where, files=files)

    async def press(self, label: str, *, who: str = "") -> None:
        asked = [post for post in self._posts() if post.buttons][-1]
        self._server.press(asked.id, dict(asked.buttons)[label], who or self._who)

    def seen(self) -> list[str]:
        return [read(post.text) for post in self._posts()]

    def _posts(self) -> list[Any]:
        return self._server.posts(self.where, self._who)

    async def until(self, fact: Callable[[], Any]) -> None:
        await self._server.until(fact)

    async def repeat(self, message: str) -> None:
        self._server.again(message)

    async def change(self, message: str, text: str) -> None:
        self._server.change(message, text)

    async def choose(self, command: str) -> None:
        chosen = self._server.slash(command, who=self._who, where=self.where)
        await self._server.until(lambda: self._server.interaction(chosen).answer is not None)

    def flood(self, verb: str, times: int = 1) -> None:
        path = f"/channels/{self._place}/messages"
        self._server.trouble("limit", VERBS[verb], path, retry_after=1.0, times=times)

    def lose(self, verb: str) -> None:
        self._server.trouble("late", VERBS[verb], f"/channels/{self._place}/messages")

    def files(self) -> list[tuple[str, bytes]]:
        return [(file.name, file.data) for post in self._posts() for file in post.files]

    def answers(self) -> list[str]:
        return [post.answers for post in self._posts()]
