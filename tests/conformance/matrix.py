"""Matrix as a surface: a real Synapse behind our proxy, and `alipes serve` with matrix-nio."""

import html
import itertools
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from tests.conformance.messenger import Messenger
from tests.conformance.surface import File, Room
from tests.world.matrix_clients import Person, RoomMessage, open_homeserver
from tests.world.matrix_proxy import open_fault_proxy
from tests.world.synapse_server import NAME, synapse

GUESTS = 120


class Matrix(Messenger):
    name = platform = "matrix"
    longest = 8000
    cannot: ClassVar = {"menus": "Matrix has no menu of commands; they are typed, as /stop or !stop"}

    def __init__(self, folder: Path) -> None:
        synapse()  # or it is skipped before anything is created
        super().__init__(folder)
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with open_fault_proxy(synapse()) as self.gate, open_homeserver(synapse()) as self.town:
            self.us = await self.town.register("alipes")
            self.mention = self.us.id
            yield

    def settings(self) -> list[str]:
        (self.home.path / ".env").write_text("MATRIX_PASSWORD=secret\n")
        (self.home.path / ".env").chmod(0o600)
        names = (*(f"guest{number}" for number in range(1, GUESTS)), "ada", "grace")
        allowed = [f"@{name}-{self.town.tag}:{NAME}" for name in names]
        return ["[matrix]", f'base_url = "{self.gate.url}"', f'user = "{self.us.id}"', f"allow = {allowed}"]

    async def room(self) -> "Chamber":
        guest = await self.town.person(f"guest{next(self._numbers)}")
        return Chamber(self, guest, await guest.room(self.us, direct=True))

    async def stranger(self) -> "Chamber":
        person = await self.town.person(f"stranger{next(self._numbers)}")
        return Chamber(self, person, await person.room(self.us, direct=True))

    async def group(self) -> "Chamber":
        ada, grace, other = [await self.town.person(name) for name in ("ada", "grace", "stranger")]
        room = await ada.room(grace, other, self.us)
        for each in (grace, other):
            await each.join(room)
        return Chamber(self, ada, room)

    async def thread(self, group: Room, name: str) -> "Chamber":
        assert isinstance(group, Chamber)
        ada = await self.town.person("ada")
        return Chamber(self, ada, group.id, await ada.say(group.id, name))


class Chamber(Room):
    """A direct chat, a room, or a thread in one, as its person sees it."""

    def __init__(self, surface: Matrix, person: Person, id: str, thread: str = "") -> None:
        self._surface, self._gate, self.person = surface, surface.gate, person
        self.id, self._thread = id, thread

    async def _who(self, who: str) -> Person:
        return await self._surface.town.person(who) if who else self.person

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        speaker = await self._who(who)
        content = await _attached(speaker, text, file) if file else _worded(text, self._surface.us)
        if self._thread:
            falls = {"is_falling_back": True, "m.in_reply_to": {"event_id": self._thread}}
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": self._thread, **falls}
        return await speaker.send(self.id, content)

    async def press(self, label: str, *, who: str = "") -> None:
        def asked() -> list[str]:
            keys = {key: post.id for post in self._mine() for _, key in post.reactions.values()}
            return [keys[label]] if label in keys else []

        await self.until(asked)
        await (await self._who(who)).react(self.id, asked()[0], label)

    def seen(self) -> list[str]:
        return [_read(post) for post in self._mine()]

    def _mine(self) -> list[RoomMessage]:
        posts = self.person.chat(self.id).posts.values()
        return [post for post in posts if post.sender == self._surface.us.id and post.thread == self._thread]

    async def until(self, fact: Callable[[], Any]) -> None:
        await self.person.until(fact)

    async def repeat(self, message: str) -> None:
        await self.person.until(lambda: message in self.person.chat(self.id).events)
        self._gate.again(self.id, self.person.chat(self.id).events[message])

    async def change(self, message: str, text: str) -> None:
        await self.person.change(self.id, message, text)

    def flood(self, verb: str, times: int = 1) -> None:
        self._gate.fault("limit", verb, self.id, times)

    def lose(self, verb: str) -> None:
        self._gate.fault("lose", verb, self.id)

    def files(self) -> list[tuple[str, bytes]]:
        """Files of received messages, downloaded like a person's client does."""
        files = [post for post in self._mine() if post.content["msgtype"] == "m.file"]
        return [(post.content["filename"], self._fetched(post.content["url"])) for post in files]

    def _fetched(self, mxc: str) -> bytes:
        return self.person.fetched.get(mxc, b"")

    def answers(self) -> list[str]:
        return [post.answers for post in self._mine()]


def _worded(text: str, us: Person) -> dict[str, Any]:
    """As Element writes it: a mention is a pill, and a name in the plain text."""
    content: dict[str, Any] = {"msgtype": "m.text", "body": text, "m.mentions": {}}
    if us.id in text:
        pill = f'<a href="https://matrix.to/#/{us.id}">Alipes</a>'
        content["body"] = text.replace(us.id, "Alipes")
        content["format"] = "org.matrix.custom.html"
        content["formatted_body"] = html.escape(text).replace(us.id, pill)
        content["m.mentions"] = {"user_ids": [us.id]}
    return content


async def _attached(person: Person, text: str, file: File) -> dict[str, Any]:
    url = await person.upload(file.data, file.mime)
    kind = "m.image" if file.mime.startswith("image/") else "m.file"
    info = {"mimetype": file.mime, "size": len(file.data)}
    return {"msgtype": kind, "body": text, "filename": file.name, "url": url, "info": info}


def _read(post: RoomMessage) -> str:
    """As it is shown: the HTML if there is any; both must say the same."""
    shown = post.content.get("formatted_body")
    if shown is not None:
        text = re.sub(r"<br>|</?(?:pre|blockquote)[^>]*>", "\n", shown)
        text = html.unescape(re.sub(r"<[^>]+>", "", text))
        assert text.split() == post.body.split(), (text, post.body)
    return post.body
