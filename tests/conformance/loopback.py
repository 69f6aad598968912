"""Common code of surfaces whose loopback server knows people and channels by name: see `tests/world`."""

import itertools
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from tests.conformance.messenger import Messenger
from tests.conformance.surface import File, Room

GUESTS = 120


class Loopback(Messenger):
    mention = "@alipes"
    makes: ClassVar[type[Any]]
    """The server."""
    places: ClassVar[type["Channel"]]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._guests = (f"guest{number}" for number in range(GUESTS))
        self._channels = itertools.count(1)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with self.makes() as self.server:
            yield

    @abstractmethod
    def tokens(self) -> str:
        """The tokens in `.env`."""

    def settings(self) -> list[str]:
        (self.home.path / ".env").write_text(self.tokens())
        (self.home.path / ".env").chmod(0o600)
        names = (*(f"guest{number}" for number in range(GUESTS)), "ada", "grace")
        allowed = [self.server.world.person(name).id for name in names]
        return [f"[{self.platform}]", f'base_url = "{self.server.base_url}"', f"allow = {allowed}"]

    async def room(self) -> "Channel":
        return self.places(self.server, next(self._guests))

    async def stranger(self) -> "Channel":
        return self.places(self.server, f"not {next(self._guests)}")

    async def group(self) -> "Channel":
        return self.places(self.server, "ada", f"channel-{next(self._channels)}")

    async def thread(self, group: Room, name: str) -> "Channel":
        assert isinstance(group, Channel)
        return self.places(self.server, "ada", f"{group.where}/{name}")


class Channel(Room):
    """Direct messages with a person, a channel, or a thread in one."""

    def __init__(self, server: Any, who: str, where: str = "") -> None:
        self._server, self._who, self.where = server, who, where
        self._place = server.place(where, who)

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        files = [(file.name, file.mime, file.data)] if file else []
        said: str = self._server.say(text, who or self._who, self.where, files=files)
        return said

    async def press(self, label: str, *, who: str = "") -> None:
        asked = [post for post in self._posts() if post.buttons][-1]
        self._server.press(self._id(asked), dict(asked.buttons)[label], who or self._who)

    def _posts(self) -> list[Any]:
        return list(self._server.posts(self.where, self._who))

    @abstractmethod
    def _id(self, post: Any) -> str:
        """Texts of the messages here."""

    async def until(self, fact: Callable[[], Any]) -> None:
        await self._server.until(fact)

    async def change(self, message: str, text: str) -> None:
        self._server.change(message, text)

    def files(self) -> list[tuple[str, bytes]]:
        return [(file.name, file.data) for post in self._posts() for file in post.files]

    def answers(self) -> list[str]:
        return [post.answers for post in self._posts()]
