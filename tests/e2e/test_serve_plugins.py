"""Platform plugins in the real program: the one of the docs, and one written for Hermes."""

import asyncio
import re
import socket
from pathlib import Path
from textwrap import dedent

import pytest

from tests.e2e.program import ROOT, Home
from tests.e2e.service import open_serve, write_settings
from tests.world.model_server import ModelServer, Say

pytestmark = pytest.mark.deadline(90)
PAGE = Path(ROOT, "docs", "plugin-platforms.md").read_text()
LINES = re.search(r"```python\n# lines/__init__\.py\n(.*?)```", PAGE, re.DOTALL)[1]
OLD = """
import asyncio
from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, SendResult

class Tube(BasePlatformAdapter):
    def __init__(self, config):
        super().__init__(config, Platform("tube"))
        self.writers, self.number = {}, 0

    async def connect(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", int(self.config.extra["port"]))
        self._mark_connected()
        return True

    async def disconnect(self):
        self.server.close()
        self._mark_disconnected()

    async def serve(self, reader, writer):
        self.writers["42"] = writer
        while line := (await reader.readline()).decode().strip():
            user, _, rest = line.partition(" ")
            number, _, text = rest.partition(" ")
            if text == "BREAK":
                self._set_fatal_error("broken", "asked to break", retryable=True)
                continue
            source = self.build_source(chat_id="42", user_id=user)
            asyncio.create_task(self.handle_message(MessageEvent(text=text, source=source, message_id=number)))
        writer.close()

    async def send(self, chat_id, content, reply_to=None, metadata=None):
        self.writers[chat_id].write(f"{content}\\n".encode())
        await self.writers[chat_id].drain()
        self.number += 1
        return SendResult(success=True, message_id=str(self.number))

    async def get_chat_info(self, chat_id):
        return {"name": chat_id, "type": "dm"}

def register(ctx):
    ctx.register_platform("tube", "Tube", Tube, lambda: True, allowed_users_env="TUBE_USERS")
"""


def a_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


def plant(home, name, source, *, manifest=""):
    (folder := home.path / "plugins" / name).mkdir(parents=True)
    (folder / "__init__.py").write_text(dedent(source))
    if manifest:
        (folder / "plugin.yaml").write_text(manifest)


def add(home, *lines):
    with (home.path / "config.toml").open("a") as file:
        file.write("\n".join(lines) + "\n")


async def connected(port):
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)


async def heard(reader, *words):
    """The first line that contains these."""
    while line := (await reader.readline()).decode():
        if all(word in line for word in words):
            return line.strip()
    raise AssertionError(f"hung up before {words}")


async def test_the_platform_plugin_of_the_docs_is_served(home):
    port = a_port()
    async with ModelServer([Say("hello yourself")]) as model:
        write_settings(home, model)
        plant(home, "lines", LINES)
        add(home, "[plugins]", 'enabled = ["lines"]', "[platforms.lines]", 'allow = ["127.0.0.1"]')
        async with open_serve(home, LINES_PORT=str(port)) as served:
            await served.ready()
            reader, writer = await connected(port)
            writer.write(b"hello\n")
            assert await heard(reader, "hello") == "hello yourself"
            writer.write(b"/platforms\n")
            assert "ready" in await heard(reader, "lines")
            assert 'alipes_messages_total{platform="lines",fate="in"} 2' in (await served.get("/metrics")).text
            writer.close()
            assert await served.left() == 0


async def test_an_old_style_adapter_is_served_and_restarted_when_it_breaks(home):
    port = a_port()
    async with ModelServer([Say("one"), Say("two")]) as model:
        write_settings(home, model)
        plant(home, "tubes", OLD, manifest="name: tubes\nversion: 1.0.0\n")
        add(home, "[plugins]", 'enabled = ["tubes"]', "[plugins.entries.tubes]", f"port = {port}")
        (home.path / ".env").write_text("TUBE_USERS=7\n")
        async with open_serve(home) as served:
            await served.ready()
            reader, writer = await connected(port)
            writer.write(b"66 a1 let me in\n7 a2 hello\n7 a2 hello\n")
            assert "code is" in await heard(reader, "You don't have access yet")
            await heard(reader, "one")
            writer.write(b"7 a3 BREAK\n")
            await asyncio.sleep(0)
            writer.close()
            while await served.metric('alipes_platform_ready{platform="tube"}'):
                await asyncio.sleep(0.01)
            reader, writer = await connected(port)
            await served.ready()
            writer.write(b"7 a2 hello\n7 a4 again\n")
            await heard(reader, "two")
            writer.write(b"7 a5 /platforms\n")
            assert "ready" in await heard(reader, "tube")
            assert len(model.requests) == 2, "the second copy is nothing"
            writer.close()
            assert await served.left() == 0
