"""Slack as a surface: the loopback Web API and Socket Mode, and `alipes serve` with slack_sdk on them."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conformance.served import Messenger
from tests.conformance.surface import File, Room
from tests.world.slack_server import SlackServer

GUESTS = 120
VERBS = {"send": "chat.postMessage", "edit": "chat.update"}
PREFIX = "/alipes-"


class Slack(Messenger):
    name = platform = "slack"
    longest = 4000
    mention = "@alipes"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._guests = (f"guest{number}" for number in range(GUESTS))
        self._channels = itertools.count(1)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with SlackServer() as self.server:
            yield

    def settings(self) -> list[str]:
        tokens = f"SLACK_BOT_TOKEN={self.server.token}\nSLACK_APP_TOKEN={self.server.app_token}\n"
        (self.home.path / ".env").write_text(tokens)
        (self.home.path / ".env").chmod(0o600)
        names = (*(f"guest{number}" for number in range(GUESTS)), "ada", "grace")
        allowed = [self.server.world.person(name).id for name in names]
        return ["[slack]", f'base_url = "{self.server.base_url}"', f"allow = {allowed}"]

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
        return [each.removeprefix(PREFIX) for each in self.server.commands]


class Channel(Room):
    """Direct messages with a person, a channel of the workspace, or a thread in one."""

    def __init__(self, surface: Slack, who: str, where: str = "") -> None:
        self._server, self._who, self.where = surface.server, who, where
        self._channel, _ = surface.server.place(where, who)

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        files = [(file.name, file.mime, file.data)] if file else []
        return self._server.say(text, who or self._who, self.where, files=files)

    async def press(self, label: str, *, who: str = "") -> None:
        asked = [post for post in self._posts() if post.buttons][-1]
        self._server.press(asked.ts, dict(asked.buttons)[label], who or self._who)

    def seen(self) -> list[str]:
        return [post.shown for post in self._posts()]

    def _posts(self) -> list[Any]:
        return self._server.posts(self.where, self._who)

    async def until(self, fact: Callable[[], Any]) -> None:
        await self._server.until(fact)

    async def repeat(self, message: str) -> None:
        brought = self._server.again(message)
        await self._server.until(lambda: brought.acked)

    async def change(self, message: str, text: str) -> None:
        self._server.change(message, text)

    async def choose(self, command: str) -> None:
        chosen = self._server.slash(f"{PREFIX}{command}", who=self._who, where=self.where)
        await self._server.until(lambda: chosen.acked)

    def flood(self, verb: str, times: int = 1) -> None:
        self._server.trouble("limit", VERBS[verb], self._channel, times=times)

    def lose(self, verb: str) -> None:
        self._server.trouble("late", VERBS[verb], self._channel)

    def files(self) -> list[tuple[str, bytes]]:
        return [(file.name, file.data) for post in self._posts() for file in post.files]

    def answers(self) -> list[str]:
        return [post.answers for post in self._posts()]
