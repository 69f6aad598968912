"""Telegram as a surface: the loopback Bot API, and `alipes serve` that polls it."""

import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conformance.messenger import Messenger
from tests.conformance.surface import File, Room
from tests.world.telegram_server import Fault, Media, TelegramServer

FIRST, LAST = 1001, 1200
"""Ids of people with access."""
VERBS = {"send": "sendMessage", "edit": "editMessage"}


class Telegram(Messenger):
    name = platform = "telegram"
    longest = 4096
    remembers = False
    mention = "@alipes_bot"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._numbers = itertools.count(FIRST)
        self._groups = itertools.count(1)
        self.people: dict[str, int] = {}

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with TelegramServer() as self.server:
            yield

    def settings(self) -> list[str]:
        (self.home.path / ".env").write_text(f"TELEGRAM_BOT_TOKEN={self.server.token}\n")
        (self.home.path / ".env").chmod(0o600)
        allowed = list(range(FIRST, LAST))
        return ["[telegram]", f'base_url = "{self.server.url}"', "poll = 10", f"allow = {allowed}"]

    async def room(self) -> "Chat":
        return Chat(self, next(self._numbers))

    async def stranger(self) -> "Chat":
        return Chat(self, next(self._numbers) + LAST)

    async def group(self) -> "Chat":
        return Chat(self, self.server.chats.group(-(10**12) - next(self._groups), forum=True))

    async def thread(self, group: Room, name: str) -> "Chat":
        assert isinstance(group, Chat)
        return Chat(self, group.chat, self.server.chats.topic(group.chat, name))

    def person(self, who: str) -> int:
        """By name; only a `stranger` has no access."""
        if who not in self.people:
            number = next(self._numbers) + (LAST if who == "stranger" else 0)
            self.people[who] = self.server.chats.person(number, who.title())["id"]
        return self.people[who]

    def commands(self) -> list[str]:
        return [each["command"] for each in self.server.commands]


class Webhook(Telegram):
    """The same with a webhook."""

    name = "webhook"

    def settings(self) -> list[str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.words = ("--port", str(port))
        self.server.behind = f"http://127.0.0.1:{port}/telegram"
        return [*super().settings(), 'mode = "webhook"', 'webhook_url = "https://bot.example/telegram"']


class Chat(Room):
    """A private chat, a group, or a topic of one."""

    def __init__(self, surface: Telegram, chat: int, thread: int = 0) -> None:
        self._surface, self._server, self._town = surface, surface.server, surface.server.chats
        self.chat, self._thread = chat, thread

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        user = self._surface.person(who) if who else None
        kind = "photo" if file and file.mime.startswith("image/") else "document"
        media = Media(kind, file.data, file.name, file.mime) if file else None
        said = self._town.say(text, self.chat, user, thread=self._thread, media=media)
        return str(said["message_id"])

    async def press(self, label: str, *, who: str = "") -> None:
        asked = [kept for kept in self._mine() if kept.wire.get("reply_markup")]
        user = self._surface.person(who) if who else None
        self._town.press(self.chat, asked[-1].wire["message_id"], label, user)

    def seen(self) -> list[str]:
        return [kept.text for kept in self._mine()]

    def _mine(self) -> list[Any]:
        here = self._town.mine(self.chat)
        return [kept for kept in here if kept.wire.get("message_thread_id", 0) == self._thread]

    async def until(self, fact: Callable[[], Any]) -> None:
        await self._server.until(fact)

    async def repeat(self, message: str) -> None:
        self._town.again(self.chat, int(message))
        await self._server.confirmed()

    async def change(self, message: str, text: str) -> None:
        self._town.revise(self.chat, int(message), text)

    async def choose(self, command: str) -> None:
        assert command in self._surface.commands()
        await self.say(f"/{command}")

    def flood(self, verb: str, times: int = 1) -> None:
        self._server.fault(Fault("flood", (VERBS[verb],), self.chat, times))

    def lose(self, verb: str) -> None:
        self._server.fault(Fault("hang", (VERBS[verb],), self.chat, accepted=True))

    def files(self) -> list[tuple[str, bytes]]:
        sent = [kept.wire["document"] for kept in self._mine() if "document" in kept.wire]
        return [(file["file_name"], self._town.files[file["file_id"]][1]) for file in sent]

    def answers(self) -> list[str]:
        return [str(kept.wire.get("reply_to_message", {}).get("message_id", "")) for kept in self._mine()]
