"""`alipes setup`: the whole dialogue in a real terminal of 80 by 24."""

import asyncio
import fcntl
import os
import pty
import re
import stat
import struct
import sys
import termios
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pyte
import pytest

from tests.e2e.program import Home
from tests.world.environment import LIMIT_S
from tests.world.model_server import Fail, ModelServer, Say, Stall

COLUMNS, LINES = 80, 24
KEY = "sk-canary-0123456789"
UP, DOWN, ENTER, CTRL_C, CTRL_D, ERASE = "\x1b[A", "\x1b[B", "\r", "\x03", "\x04", "\x15"
pytestmark = pytest.mark.deadline(60)


class Seat:
    """A terminal: its screen, everything sent to it, and its keyboard."""

    def __init__(self, master: int, child: asyncio.subprocess.Process) -> None:
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.sent = b""
        self.child = child
        self._stream = pyte.ByteStream(self.screen)
        self._master = master

    def read(self) -> None:
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the child has exited
            asyncio.get_running_loop().remove_reader(self._master)
            return
        self.sent += data
        self._stream.feed(data)
        if b"\x1b[6n" in data:  # a cursor position request, which any terminal answers
            cursor = self.screen.cursor
            os.write(self._master, b"\x1b[%d;%dR" % (cursor.y + 1, cursor.x + 1))

    @property
    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def until(self, true: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                while not true():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail("\n".join(["it shows:", *self.shown]))

    async def sees(self, *words: str) -> None:
        """Wait until every one of `words` is on the screen."""
        await self.until(lambda: all(any(word in line for line in self.shown) for word in words))

    async def asked(self, topic: str) -> None:
        """Wait until the cursor is behind `topic`."""
        await self.until(lambda: self.screen.display[self.screen.cursor.y].startswith((f"{topic}: ", f"{topic} ")))

    async def answer(self, topic: str, *keys: str) -> None:
        await self.asked(topic)
        for key in keys:
            self.type(key)
            await asyncio.sleep(0.05)
        self.type(ENTER)

    async def status(self) -> int:
        status = await self.child.wait()
        while b"\n" not in self.sent[-3:]:
            await asyncio.sleep(0.01)
        return status


@asynccontextmanager
async def seated(home: Home, *words: str, term: str = "xterm-256color", **more: str) -> AsyncIterator[Seat]:
    """`alipes setup WORDS` in a terminal, killed at the end if it still runs."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "alipes", "setup", *words),
        env=home.environ(TERM=term, **more),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        start_new_session=True,
    )
    os.close(slave)
    seat = Seat(master, child)
    loop = asyncio.get_running_loop()
    loop.add_reader(master, seat.read)
    try:
        yield seat
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        loop.remove_reader(master)
        os.close(master)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def files(home: Home) -> dict[str, str]:
    names = ("config.toml", ".env")
    return {name: (home.path / name).read_text() for name in names if (home.path / name).exists()}


def models(*names: str) -> ModelServer:
    return ModelServer(lambda body: Say("ok"), key=KEY, models=names or ("big-model", "small-model", "text-embed"))


async def test_a_custom_provider_is_set_up_and_saved(home):
    async with models() as server, seated(home) as seat:
        await seat.asked("Provider")
        await seat.sees("> anthropic", "  ollama", "  embedded", "  other")
        assert len(seat.shown) < LINES
        await seat.answer("Provider", "oth")
        await seat.answer("Address", f"127.0.0.1:{server.port}/v1")
        await seat.answer("API", DOWN, UP)
        await seat.answer("Name", ERASE, "openai")
        await seat.sees("openai is a known provider")
        await seat.answer("Name", ERASE, "mine")
        await seat.answer("Key (Enter for none)", KEY)
        await seat.answer("Model", "small")
        await seat.sees("Test passed (", "    MINE_API_KEY=***", "(only you can read it)")
        assert files(home) == {}
        await seat.answer("Save?")
        assert await seat.status() == 0
        await seat.sees("Done: using mine/small-model")
        assert KEY.encode() not in seat.sent
        assert [body["messages"][-1]["content"] for body in server.bodies] == ["Say ok."]
    assert tomllib.loads(files(home)["config.toml"]) == {
        "model": "mine/small-model",
        "providers": {"mine": {"api": "openai-chat", "base_url": server.url("openai-chat"), "key_env": "MINE_API_KEY"}},
    }
    assert files(home)[".env"] == f"MINE_API_KEY={KEY}\n"
    assert stat.S_IMODE((home.path / ".env").stat().st_mode) == 0o600


async def test_a_pasted_key_is_never_shown_and_a_wrong_one_is_asked_for_again(home):
    async with models() as server:
        url = f"--base-url={server.url('anthropic')}"
        async with seated(home, "--provider", "anthropic", url) as seat:
            await seat.asked("Key")
            seat.type("\x1b[200~wrong-key\n\x1b[201~")
            await seat.sees("characters)")
            seat.type(ENTER)
            await seat.answer("Model", "big")
            await seat.sees("rejected the key in ANTHROPIC_API_KEY (401)", "platform.claude.com", "> another key")
            await seat.answer("What next?")
            await seat.answer("Key (Enter to use ANTHROPIC_API_KEY)", KEY)
            await seat.sees("Test passed (")
            await seat.answer("Save?")
            assert await seat.status() == 0
            assert b"wrong-key" not in seat.sent and KEY.encode() not in seat.sent
    assert tomllib.loads(files(home)["config.toml"]) == {
        "model": "anthropic/big-model",
        "providers": {"anthropic": {"base_url": server.url("anthropic")}},
    }


async def test_existing_settings_are_preselected(home):
    async with models() as server:
        home.path.mkdir()
        (home.path / "config.toml").write_text(
            f'# mine\nmodel = "xai/small-model"\n[providers.xai]\nbase_url = "{server.url("openai-chat")}"\n'
        )
        (home.path / ".env").write_text(f"XAI_API_KEY={KEY}\n")
        (home.path / ".env").chmod(0o600)
        before = files(home)
        async with seated(home) as seat:
            await seat.sees("> xai", "Grok models, by xAI; key found in .env")
            await seat.answer("Provider")
            await seat.answer("Key (Enter to use XAI_API_KEY)")
            await seat.sees("> small-model")
            await seat.answer("Model")
            await seat.answer("Save?")
            assert await seat.status() == 0
    assert files(home) == before


@pytest.mark.parametrize("question", ["Provider", "Key", "Model", "What next?", "Save?"])
async def test_ctrl_c_at_any_question_changes_nothing(home, question):
    replies = [Fail(402, "no money")] if question == "What next?" else [Say("ok")]
    async with ModelServer(replies, models=("grok-4.7",)) as server:
        words = [] if question == "Provider" else ["--provider", "xai", "--base-url", server.url("openai-chat")]
        async with seated(home, *words) as seat:
            for topic, keys in (("Provider", ""), ("Key", KEY), ("Model", "")):
                if question == topic:
                    break
                if topic != "Provider":
                    await seat.answer(topic, keys)
            await seat.asked(question)
            seat.type(CTRL_D if question == "Model" else CTRL_C)
            assert await seat.status() == 130
            await seat.sees("Nothing changed.")
    assert files(home) == {}


async def test_ctrl_c_during_the_model_check_changes_nothing(home):
    async with ModelServer(lambda body: Stall(None), models=("grok-4.7",)) as server:
        flags = ("--provider", "xai", "--base-url", server.url("openai-chat"), "--model", "grok-4.7")
        async with seated(home, *flags) as seat:
            await seat.answer("Key", KEY)
            await seat.sees("· testing")
            await server.asked()
            seat.type(CTRL_C)
            assert await seat.status() == 130
            await seat.sees("Nothing changed.")
            await server.disconnected()
    assert files(home) == {}


async def test_answering_no_changes_nothing(home):
    async with models() as server:
        flags = ("--provider", "mine", "--base-url", server.url("openai-chat"), "--model", "big-model")
        async with seated(home, *flags, "--key-env", "MINE", MINE=KEY) as seat:
            await seat.answer("Save?", DOWN)
            assert await seat.status() == 130
    assert files(home) == {}


async def test_an_unreachable_server_can_be_retried_abandoned_or_saved(home):
    async with models() as server:
        port, url = server.port, server.url("openai-chat")
    async with seated(home, "--base-url", url, "--api", "openai-chat") as seat:
        await seat.answer("Name")
        await seat.answer("Key (Enter for none)")
        await seat.sees("local: no connection to", "> try again", "another address", "another provider", "save anyway")
        again = models()
        again.port, again.key = port, ""
        async with again:
            await seat.answer("What next?")
            await seat.answer("Model")
            await seat.answer("Save?")
            assert await seat.status() == 0
    assert tomllib.loads(files(home)["config.toml"])["model"] == "local/big-model"


async def test_without_colour_the_selected_option_is_marked(home):
    async with seated(home, NO_COLOR="1") as seat:
        await seat.sees("> anthropic")
        seat.type(DOWN)
        await seat.sees("> openai")
        seat.type(CTRL_C)
        await seat.status()
        styles = set(re.findall(rb"\x1b\[([\d;]*)m", seat.sent))
        assert {code for style in styles for code in style.split(b";")} <= {b"", b"0"}


async def test_a_dumb_terminal_is_asked_by_numbers(home):
    async with models() as server, seated(home, "--base-url", server.url("openai-chat"), term="dumb") as seat:
        await seat.sees("  1  openai-chat", "API (number or name; Enter: openai-chat):")
        seat.type("2\n")
        await seat.sees("Name (Enter: local):")
        seat.type("mine\n")
        await seat.sees("Key (Enter for none):")
        seat.type(f"{KEY}\n")
        await seat.sees("Model (number or name):")
        seat.type("model\n")
        await seat.until(lambda: sum("Model (number" in line for line in seat.shown) == 2)
        seat.type("small\n")
        await seat.sees("Save?")
        seat.type("yes\n")
        assert await seat.status() == 0
        assert KEY.encode() not in seat.sent and b"\x1b" not in seat.sent
    written = tomllib.loads(files(home)["config.toml"])
    assert written["model"] == "mine/small-model" and written["providers"]["mine"]["api"] == "openai-responses"


async def test_a_dumb_terminal_can_cancel(home):
    for leave in (CTRL_C, CTRL_D):
        async with seated(home, term="dumb") as seat:
            await seat.sees("Provider (number")
            seat.type(leave)
            assert await seat.status() == 130
    assert files(home) == {}
