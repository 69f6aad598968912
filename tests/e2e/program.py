"""Runs the real program in a child process, with its own home and a controlled environment."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.world.environment import LIMIT_S, OPTIONAL, ROOT, environment
from tests.world.model_server import ModelServer

__all__ = ["ROOT", "Finished", "Home", "children", "wait_finished", "read_until"]


class Finished(Struct):
    """Exit status and output of a run."""

    status: int
    out: str
    err: str


class Home:
    """An alipes home folder, and `alipes` run on it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def environ(self, *, programs: tuple[str, ...] = OPTIONAL, **more: str) -> dict[str, str]:
        """`programs`: the optional programs that are installed."""
        ours = {"ALIPES_HOME": str(self.path), "PYTHONWARNINGS": "error"}
        ours["ALIPES_DEBUGGABLE"] = "true"  # lets tests count its objects without being root
        return environment(self.path.parent, programs=programs, **ours | more)

    def use(self, server: ModelServer, **settings: object) -> None:
        """Make `server` the model that answers."""
        self.path.mkdir(exist_ok=True, mode=0o700)
        lines = ['model = "test/scripted"', *(f"{name} = {value!r}" for name, value in settings.items())]
        lines += ["[providers.test]", 'api = "openai-chat"', f'base_url = "{server.url("openai-chat")}"']
        (self.path / "config.toml").write_text("\n".join(lines) + "\n")

    @property
    def command(self) -> tuple[str, ...]:
        """The words that start alipes."""
        return (sys.executable, "-m", "alipes")

    @asynccontextmanager
    async def started(
        self, *words: str, stdin: int | None = asyncio.subprocess.DEVNULL, under: tuple[str, ...] = (), **more: Any
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """`alipes WORDS` while it runs; killed at the end if it still does. `under`: a program that starts it."""
        process = await asyncio.create_subprocess_exec(
            *(*under, *self.command, *words),
            env=self.environ(**more),
            cwd=self.path.parent,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            async with asyncio.timeout(LIMIT_S):  # hangs only if a leftover process holds its pipes
                await process.communicate()

    async def run(self, *words: str, stdin: bytes | None = None, **more: Any) -> Finished:
        given = asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE
        async with self.started(*words, stdin=given, **more) as process:
            return await wait_finished(process, stdin)


async def wait_finished(process: asyncio.subprocess.Process, stdin: bytes | None = None) -> Finished:
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


async def read_until(stream: asyncio.StreamReader | None, text: str) -> str:
    """Read until `text` was received."""
    assert stream is not None
    said = b""
    while text.encode() not in said:
        piece = await stream.read(1000)
        assert piece, f"ended without saying {text!r}: {said!r}"
        said += piece
    return said.decode()


def children(pid: int) -> list[int]:
    """The running children of a process, from /proc."""
    found: list[int] = []
    with suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # threads come and go
                found += map(int, (task / "children").read_text().split())
    return found
