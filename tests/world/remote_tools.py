"""An app with the remote tools plugin, and a client that sends exactly what a test wants."""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from msgspec import structs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.config.settings import CheckpointsConfig
from alipes.core.app import App
from alipes.kernel.turns import Address, Event, Inbound, Said, Stop, TurnEnded
from alipes.sessions.commands import registry as commands
from tests.world.environment import LIMIT_S

EXAMPLE = Path(__file__).parents[2] / "examples" / "remote_tools"
NAME = "remote_tools"
_IDS = count(1)


class RemoteTools:
    def __init__(self, app: App, folder: Path) -> None:
        self.app, self.folder = app, folder
        self.url = ""
        """The token file of the page."""

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    @property
    def token_file(self) -> Path:
        return self.app.settings.home / "plugin-data" / NAME / "token"

    @property
    def socket(self) -> str:
        return self.url.replace("http://", "ws://") + "ws"

    async def command(self, text: str, chat: str = "me", platform: str = "terminal") -> str:
        message = inbound(text, chat, platform)
        context = self.app.context(message)
        parsed = commands.parse(text, context.contributions)
        assert parsed is not None, f"{text} is no command"
        return (await commands.run(context, parsed)).text

    async def ask(self, text: str, chat: str = "me") -> "ReceivedEvents":
        """Send a message and follow the turn to its end."""
        heard = ReceivedEvents()
        async with self.app.sessions.ask(inbound(text, chat)) as following:
            async for event in following:
                heard.append(event)
        return heard

    async def stop(self, chat: str = "me") -> None:
        await self.app.sessions.post(Address("terminal", chat).key, Stop("user_stop", "stop_command"))


class ReceivedEvents(list[Event]):
    @property
    def text(self) -> str:
        """The last message."""
        return [event.message.text for event in self if isinstance(event, Said)][-1]

    @property
    def ending(self) -> str:
        assert isinstance(self[-1], TurnEnded)
        return self[-1].ending


def inbound(text: str, chat: str = "me", platform: str = "terminal") -> Inbound:
    return Inbound(f"remote-{next(_IDS)}", Address(platform, chat), "me", text)


def install_plugin(home: Path, **config: Any) -> Path:
    """A home in which the plugin is installed and enabled, on any free port."""
    folder = home / "plugins" / NAME
    shutil.copytree(EXAMPLE / "plugin", folder, ignore=shutil.ignore_patterns("__pycache__"))
    entries = {NAME: {"port": 0, **config}}
    settings = {"model": "scripted/echo", "plugins": {"enabled": [NAME], "entries": entries}}
    (home / "config.toml").write_text(tomlkit.dumps(settings))
    return folder


@asynccontextmanager
async def open_remote(home: Path, **config: Any) -> AsyncIterator[RemoteTools]:
    folder = home / "plugins" / NAME
    if not folder.exists():
        install_plugin(home, **config)
    settings = structs.replace(load_settings(home), checkpoints=CheckpointsConfig(enabled=False))
    async with open_app(settings) as app:
        remote = RemoteTools(app, folder)
        await find_address(remote)
        yield remote


async def find_address(remote: RemoteTools) -> None:
    """Return the address it listens on."""
    words = (await remote.command("/remote")).split("#token=")
    remote.url = words[0].split()[-1]


class RemoteClient:
    """A connection and everything received on it."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.heard: list[dict[str, Any]] = []

    async def send(self, type: str, **words: Any) -> None:
        await self.connection.send(json.dumps({"type": type, **words}))

    async def until(self, type: str, **fields: Any) -> dict[str, Any]:
        """The next message of this kind."""
        while True:
            words = json.loads(await self.connection.recv())
            self.heard.append(words)
            if words["type"] == type and fields.items() <= words.items():
                return words

    async def register(self, name: str, **more: Any) -> dict[str, Any]:
        """The server's reply."""
        tool = {"name": name, "description": f"Does {name}.", **more}
        await self.send("register", id=name, tool=tool)
        while True:
            words = json.loads(await self.connection.recv())
            self.heard.append(words)
            if words.get("id") == name:
                return words

    async def settle(self) -> None:
        """Wait until everything sent by the server so far is received."""
        mark = f"mark {len(self.heard)}"
        await self.send("ping", id=mark)
        await self.until("pong", id=mark)

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [words for words in self.heard if words["type"] in types]


@asynccontextmanager
async def open_client(
    remote: RemoteTools, *tools: str, name: str = "hand", **hello: Any
) -> AsyncIterator[RemoteClient]:
    """A client that said hello and registered `tools`."""
    async with connect(remote.socket, compression=None, proxy=None) as connection:
        wire = RemoteClient(connection)
        await wire.send("hello", **{"protocol": 1, "token": remote.token, "name": name} | hello)
        await wire.until("welcome")
        for tool in tools:
            assert (await wire.register(tool))["type"] == "registered"
        yield wire


async def closed(connection: ClientConnection) -> tuple[int, str]:
    """The close code and reason."""
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            await connection.recv()
    return caught.value.rcvd.code, caught.value.rcvd.reason


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def wait_until(true: Any, *, within: float = LIMIT_S) -> None:
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.005)
