"""IRC as a surface: a real ngircd, people with their own clients, and `alipes serve`."""

import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from tests.conformance.no_edits import NO_DRAFTS, NoEditsMessenger, NoEditsRoom
from tests.conformance.surface import File
from tests.world.irc_server import Ngircd, Person

GUESTS, CHANNELS = 120, 12
CALLED = re.compile(r"^(Ada|Grace|Stranger): ")


class Irc(NoEditsMessenger):
    name = platform = "irc"
    longest = 0
    remembers = False
    mention = "alipes:"
    cannot: ClassVar = {
        "drafts": NO_DRAFTS,
        "threads": "a channel is one conversation for all in it",
        "repeats": "lines have no id here; servers with ids: tests/unit/platforms/irc/test_connect.py",
        "edits": "a sent line cannot be changed",
        "limits": "a server reports no limit, it reads more slowly (tests/unit/platforms/irc/test_connect.py)",
        "menus": "there are none; `!help` lists the commands (tests/unit/platforms/irc/test_irc.py)",
        "files": "IRC transports only lines of text",
        "absence": "IRC servers keep no messages for absent people",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._guests = (f"Guest{number}" for number in range(GUESTS))
        self._channels = (f"#room{number}" for number in range(CHANNELS))
        self.people: dict[str, Person] = {}

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with Ngircd(self.folder / "irc") as self.server:
            yield
            for person in self.people.values():
                await person.leave()

    def settings(self) -> list[str]:
        names = (*(f"guest{number}" for number in range(GUESTS)), "ada", "grace")
        allowed = [f"{name}!~{name}@127.0.0.1" for name in names]
        channels = [f"#room{number}" for number in range(CHANNELS)]
        where = ["[irc]", 'host = "127.0.0.1"', f"port = {self.server.port}", "tls = false", "pace = 0"]
        return [*where, f"allow = {allowed}", f"channels = {channels}"]

    async def person(self, name: str) -> Person:
        if name not in self.people:
            self.people[name] = await self.server.enter(name)
        return self.people[name]

    async def room(self) -> "Query":
        return Query(self, await self.person(next(self._guests)))

    async def stranger(self) -> "Query":
        return Query(self, await self.person(f"Not{next(self._guests)}"))

    async def group(self) -> "Query":
        channel = next(self._channels)
        for name in ("Ada", "Grace", "Stranger"):
            await (await self.person(name)).join(channel)
        return Query(self, self.people["Ada"], channel)

    def asked(self, command: str) -> list[str]:
        why = "Approve? Why: a force-push can overwrite work on the remote."
        return [why, f"terminal: {command}", f"folder: {self.workdir}", "Answer yes (once), session or no, or always."]


class Query(NoEditsRoom):
    """A private conversation, or a channel, as one person sees it."""

    def __init__(self, surface: Irc, viewer: Person, channel: str = "") -> None:
        self._surface, self._viewer, self._channel = surface, viewer, channel
        self.fake_model = surface.fake_model
        self._numbers = itertools.count(1)
        self._sent: list[tuple[str, str, int]] = []

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        speaker = await self._surface.person(who.title()) if who else self._viewer
        id = f"{speaker.nick}-{next(self._numbers)}"
        self._sent.append((speaker.nick, id, len(self.seen())))
        speaker.say(self._channel or "alipes", text)
        await speaker.settled()
        return id

    def seen(self) -> list[str]:
        return [CALLED.sub("", each) for each in self._lines()]

    def _lines(self) -> list[str]:
        return self._viewer.heard("alipes", self._channel)

    def answers(self) -> list[str]:
        """The person whose nick precedes a line: the last one who wrote before."""
        found = []
        for number, line in enumerate(self._lines()):
            called = CALLED.match(line)
            theirs = [id for who, id, when in self._sent if called and who == called[1] and when <= number]
            found.append(theirs[-1] if theirs else "")
        return found
