"""A platform of a Hermes plugin as a surface: a loopback server, and the plugin in `alipes serve`."""

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from tests.conformance.markup import read
from tests.conformance.messenger import Messenger
from tests.conformance.surface import File, Room

ALLOWED = ("ada", "grace", *(f"guest{number}" for number in range(100)))
SOURCE = Path(__file__).with_name("echo_plugin.py")
Wire = dict[str, Any]


class Post(Struct):
    """A message of the plugin."""

    id: str
    chat: str
    thread: str
    text: str
    reply_to: str = ""
    session_key: str = ""
    file: Wire | None = None


class EchoServer:
    """The chat server. Unconfirmed messages are sent again to the next connection."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.said: dict[str, Wire] = {}
        self.faults: list[tuple[str, str, str]] = []
        """What happens to the next call: verb, chat, and `flood` or `lose`."""
        self._untaken: dict[str, Wire] = {}
        self._ids = itertools.count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        self.port: int = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            if self._writer is not None:
                self._writer.transport.abort()

    def tell(self, seen: Wire) -> str:
        """Send something to the plugin until it is confirmed."""
        id = seen["id"] = seen.get("id") or f"m{next(self._ids)}"
        self.said[id] = self._untaken[id] = seen
        if self._writer is not None:
            self._writer.write(msgspec.json.encode(seen) + b"\n")
        return str(id)

    async def until(self, fact: Callable[[], Any]) -> None:
        while not fact():
            self._changed.clear()
            await self._changed.wait()

    @property
    def taken(self) -> bool:
        return not self._untaken

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        for seen in self._untaken.values():
            writer.write(msgspec.json.encode(seen) + b"\n")
        try:
            while line := await reader.readline():
                self._hear(msgspec.json.decode(line), writer)
                self._changed.set()
        except ConnectionError:
            pass
        finally:
            writer.close()
            if self._writer is writer:
                self._writer = None

    def _hear(self, seen: Wire, writer: asyncio.StreamWriter) -> None:
        if "took" in seen:
            self._untaken.pop(seen["took"], None)
            return
        fault = next((each for each in self.faults if each[:2] == (seen["verb"], seen["chat"])), None)
        if fault is not None:
            self.faults.remove(fault)
        result: Wire = {"success": False, "error": "too many", "retryable": True, "retry_after": 1.0}
        if fault is None or fault[2] == "lose":
            result = self._do(seen)
        if fault is None or fault[2] == "flood":
            writer.write(msgspec.json.encode({"done": seen["call"], "result": result}) + b"\n")

    def _do(self, seen: Wire) -> Wire:
        known = next((post for post in self.posts if post.id == seen.get("message")), None)
        match seen["verb"]:
            case "send":
                fields = {name: seen[name] for name in Post.__struct_fields__ if name in seen}
                known = Post(id=f"p{next(self._ids)}", **fields)
                self.posts.append(known)
            case "edit" if known is not None:
                known.text, known.session_key = seen["text"], ""
            case "delete" if known is not None:
                self.posts.remove(known)
            case _:
                return {"success": False, "error": "message not found"}
        return {"success": True, "message_id": known.id}


class Plugin(Messenger):
    name = platform = "echo"
    mention = "@echo"
    longest = 4096
    remembers = False
    cannot: ClassVar = {
        "edits": "an adapter has no word for a message that was changed",
        "menus": "an adapter has no word for a menu",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.echo = EchoServer()
        self._guests = (name for name in ALLOWED if name.startswith("guest"))
        self._groups = itertools.count(1)

    @asynccontextmanager
    async def world(self) -> AsyncIterator[None]:
        async with self.echo.open():
            yield

    def settings(self) -> list[str]:
        (folder := self.home.path / "plugins" / "echo").mkdir(parents=True)
        (folder / "__init__.py").write_text(SOURCE.read_text())
        (folder / "plugin.yaml").write_text("name: echo\nversion: 1.0.0\n")
        entry = [f"port = {self.echo.port}", "group_sessions_per_user = false", f"people = {list(ALLOWED)}"]
        return ["[plugins]", 'enabled = ["echo"]', "[plugins.entries.echo]", *entry,
                "[platforms.echo]", f"allow = {list(ALLOWED)}"]  # fmt: skip

    async def room(self) -> "Corner":
        who = next(self._guests)
        return Corner(self, who, who)

    async def stranger(self) -> "Corner":
        who = f"not {next(self._guests)}"
        return Corner(self, who, who)

    async def group(self) -> "Corner":
        return Corner(self, f"group{next(self._groups)}", "")

    async def thread(self, group: Room, name: str) -> "Corner":
        assert isinstance(group, Corner)
        return Corner(self, group.chat, "", name)


class Corner(Room):
    def __init__(self, surface: Plugin, chat: str, who: str, thread: str = "") -> None:
        self._echo = surface.echo
        self.chat, self._who, self._thread = chat, who, thread

    async def say(self, text: str, *, who: str = "", file: File | None = None) -> str:
        user = who or self._who
        data = base64.b64encode(file.data).decode() if file else ""
        filed = {"name": file.name, "mime": file.mime, "data": data} if file else None
        seen = {"chat": self.chat, "thread": self._thread, "user": user, "name": user.title()}
        return self._echo.tell({**seen, "text": text, "group": not self._who, "file": filed})

    async def press(self, label: str, *, who: str = "") -> None:
        asked = [post for post in self._mine() if post.session_key][-1]
        self._echo.tell({"press": label, "session_key": asked.session_key, "user": who or self._who})

    def seen(self) -> list[str]:
        return [read(post.text) for post in self._mine()]

    def _mine(self) -> list[Post]:
        return [post for post in self._echo.posts if (post.chat, post.thread) == (self.chat, self._thread)]

    async def until(self, fact: Callable[[], Any]) -> None:
        await self._echo.until(fact)

    async def repeat(self, message: str) -> None:
        self._echo.tell(self._echo.said[message])
        await self._echo.until(lambda: self._echo.taken)

    def flood(self, verb: str, times: int = 1) -> None:
        self._echo.faults += [(verb, self.chat, "flood")] * times

    def lose(self, verb: str) -> None:
        self._echo.faults.append((verb, self.chat, "lose"))

    def files(self) -> list[tuple[str, bytes]]:
        sent = [post.file for post in self._mine() if post.file]
        return [(file["name"], base64.b64decode(file["data"])) for file in sent]

    def answers(self) -> list[str]:
        return [post.reply_to for post in self._mine()]
