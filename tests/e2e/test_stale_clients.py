"""Clients left on closed loops do not disturb a real prompt in a real terminal."""

import asyncio
import fcntl
import json
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyte
import pytest

from tests.world.tls import ca_file, open_loopback

ROOT = Path(__file__).parents[2]
COLUMNS, LINES = 100, 30


class Terminal:
    """A child in a pty: its screen, and its report file."""

    def __init__(self, folder: Path) -> None:
        self.screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self.screen)
        self.log, self._report = folder / "log.jsonl", folder / "report.jsonl"
        self._report.touch()
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.typed = ""

    def read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the child has exited
            asyncio.get_running_loop().remove_reader(self._master)
            return
        self._stream.feed(data)
        if b"\x1b[6n" in data:  # a cursor position request, which any terminal answers
            cursor = self.screen.cursor
            os.write(self._master, b"\x1b[%d;%dR" % (cursor.y + 1, cursor.x + 1))

    def type(self, text: str) -> None:
        self.typed += text
        os.write(self._master, text.encode())

    def press_enter(self) -> None:
        os.write(self._master, b"\r")

    @property
    def shown(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]

    @property
    def reported(self) -> list[object]:
        return [json.loads(line) for line in self._report.read_text().splitlines()]

    def logged(self, level: str) -> list[dict[str, str]]:
        records = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [record for record in records if record["level"] == level]

    async def until(self, true) -> None:
        while not true():
            await asyncio.sleep(0.02)

    async def type_until(self, word: str) -> None:
        """Type letters, as fast as a person, until the child reports `word`."""
        letters = 0
        while word not in self.reported:
            if letters < 60:
                self.type("abcdefghij"[letters % 10])
                letters += 1
            await asyncio.sleep(0.03)

    @asynccontextmanager
    async def running(self, plan: dict[str, object], *options: str, ca: str = "") -> AsyncIterator[None]:
        plan = {"log": str(self.log), "report": str(self._report), "kinds": [], "urls": [], **plan}
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        environment |= {"SSL_CERT_FILE": ca} if ca else {}
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *options,
            "-m",
            "tests.e2e.stale_prompt",
            json.dumps(plan),
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
        )
        os.close(self.slave)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._master, self.read)
        try:
            yield
            self.press_enter()
            assert await child.wait() == 0
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
            loop.remove_reader(self._master)
            os.close(self._master)


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path)


NAMES = {
    "openai": "openai._base_client.AsyncHttpxClientWrapper",
    "anthropic": "anthropic._base_client.AsyncHttpxClientWrapper",
    "httpx2": "httpx2.AsyncClient",
    "httpx": "httpx.AsyncClient",
}


@pytest.mark.deadline(120)
@pytest.mark.parametrize(
    ("kinds", "options"),
    [(list(NAMES), ()), (["httpx", "httpx2", "openai"], ("-X", "dev")), (["httpx2", "openai"], ("-W", "error"))],
    ids=["as users run it", "development mode", "warnings as errors"],
)
async def test_stale_clients_print_nothing_and_lose_no_key(terminal, tmp_path, kinds, options):
    async with open_loopback() as plain, open_loopback(tls=True) as secure:
        plan = {"mode": "stale", "kinds": kinds, "urls": [plain.url, secure.url]}
        async with terminal.running(plan, *options, ca=str(ca_file(tmp_path))):
            await terminal.until(lambda: terminal.shown[:1] == ["you>"])
            await terminal.type_until("done")
            await terminal.until(lambda: terminal.shown == [f"you> {terminal.typed}"])
        assert len(plain.connections) == len(secure.connections) == len(kinds)
    assert terminal.reported == ["ready", "done", [terminal.typed]]
    assert terminal.shown == [f"you> {terminal.typed}"]
    said = [record["message"] for record in terminal.logged("debug")]
    for kind in kinds:
        assert sum(f"collected: {NAMES[kind]}" in line for line in said) == 2, kind
    assert terminal.logged("error") == []


@pytest.mark.deadline(60)
async def test_other_uncaught_exceptions_are_shown_and_the_prompt_stays(terminal):
    async with terminal.running({"mode": "other"}):
        await terminal.until(lambda: terminal.shown[:1] == ["you>"])
        await terminal.type_until("done")
        line = "Error in the background: {} of a plugin (see the log)".format
        shown = [line("ValueError: the task"), line("LookupError: the callback"), f"you> {terminal.typed}"]
        await terminal.until(lambda: terminal.shown == shown)
    assert terminal.reported[-1] == [terminal.typed]
    traces = [record["trace"] for record in terminal.logged("error")]
    assert len(traces) == 2
    assert "in unlucky" in traces[0]
    assert "in worse" in traces[1]


@pytest.mark.deadline(60)
async def test_without_the_guard_the_prompt_stops_which_this_test_would_notice(terminal):
    async with (
        open_loopback() as server,
        terminal.running({"mode": "unguarded", "kinds": ["openai"], "urls": [server.url]}),
    ):
        await terminal.until(lambda: any("Press ENTER" in line for line in terminal.shown))
        terminal.press_enter()
        await terminal.until(lambda: "done" in terminal.reported)
        await terminal.until(lambda: terminal.shown[-1].startswith("you>"))
