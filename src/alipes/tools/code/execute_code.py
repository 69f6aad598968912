"""`execute_code`: Python in a child process that may use tools; what it prints comes back, nothing else."""

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec
from alipes.runtime.processes.child import Child, open_child
from alipes.runtime.processes.orphans import Keeper, scratch
from alipes.runtime.unix_socket_path import short
from alipes.tools.code import child as code_child
from alipes.tools.shell.background import ending
from alipes.tools.shell.output import Spill, Transcript
from alipes.tools.shell.terminal import Progress

log = logging.getLogger(__name__)
LINE = 16 * 2**20
"""Bytes of one question of the code's."""
COMPLAINT = 4_000
"""Characters that are told of what went to the standard error, where the code failed."""


class Limits(msgspec.Struct, frozen=True):
    seconds: float = 300.0
    calls: int = 50
    """Uses of tools."""


class ExecuteCode:
    """The `execute_code` tool: all it started is gone when it returns."""

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        env: Mapping[str, str],
        spill: Spill,
        *,
        keeper: Keeper | None = None,
        mask: Callable[[str], str] = str,
        limits: Limits | None = None,
    ) -> None:
        """`tools`: those the code may use. `env`: its whole environment. `mask` takes out secrets."""
        limits = limits or Limits()
        self._tools = {spec.name: list(_properties(spec)) for spec in tools}
        self._env, self._spill, self._keeper, self._mask = env, spill, keeper, mask
        self._seconds, self._calls = limits.seconds, limits.calls
        names = ", ".join(f"{name}({', '.join(given)})" for name, given in self._tools.items())
        self.spec = ToolSpec(
            name="execute_code",
            description="Run Python, for work of many steps or much data. Only what it prints comes back. "
            f"These are there as functions that return text or raise ToolError: {names}.",
            schema={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        )

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        transcript = Transcript(self._spill, self._mask)
        with scratch(self._keeper) as folder:
            (folder / "code.py").write_text(str(args["code"]), encoding="utf-8", errors="surrogatepass")
            (folder / "tools.json").write_text(json.dumps(self._tools))
            async with _serving(folder / "socket", _Uses(act, self._tools, self._calls)):
                child, in_time = await self._follow(folder, act, transcript)
            complaint = await asyncio.to_thread(_complaint, folder / "stderr") if child.returncode else ""
        text = (await transcript.text()).rstrip() or "(it printed nothing)"
        status = ending(child) if in_time else f"timed out after {self._seconds:g} s and was ended"
        return f"{text}\n{self._mask(complaint)}[{status}]"

    async def _follow(self, folder: Path, act: Act, transcript: Transcript) -> tuple[Child, bool]:
        """The child, and whether it ended in time."""
        argv = (sys.executable, "-u", "-I", code_child.__file__, str(folder))
        progress = Progress(act, self._mask)
        try:
            scope = open_child(argv, cwd=act.workdir or os.getcwd(), env=self._env, keeper=self._keeper)
            async with scope as child:
                try:
                    async with asyncio.timeout(self._seconds):
                        while piece := await progress.reading(child.read):
                            await transcript.feed(piece)
                        await child.wait()
                except TimeoutError:
                    return child, False
                return child, True
        except OSError as error:
            raise ToolError(f"the code could not be started: {error}") from error


class _Uses:
    """What the code asks for: each call past the same gates as the model's own."""

    def __init__(self, act: Act, tools: Mapping[str, list[str]], limit: int) -> None:
        self._act, self._tools, self._left, self._limit = act, tools, limit, limit

    async def answer(self, line: bytes) -> dict[str, Json]:
        try:
            asked = msgspec.json.decode(line)
            name, args = str(asked["tool"]), dict(asked["args"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            return {"ok": False, "text": "this is no question for a tool"}
        if name not in self._tools:
            return {"ok": False, "text": f"there is no tool {name} here"}
        if self._left <= 0:
            return {"ok": False, "text": f"more than {self._limit} uses of tools: do the rest in another way"}
        self._left -= 1
        result = await self._act.use(name, args)
        return {"ok": result.outcome == "ok", "text": result.text}


@asynccontextmanager
async def _serving(path: Path, uses: _Uses) -> AsyncIterator[None]:
    """Answer at a socket while entered; whoever is being answered then is let go.

    asyncio's own server loses a connection that comes in the moment in which it is closed.
    """
    loop, talks, fresh = asyncio.get_running_loop(), set[asyncio.Task[None]](), set[socket.socket]()

    async def talk(line: socket.socket) -> None:
        fresh.discard(line)
        reader, writer = await asyncio.open_unix_connection(sock=line, limit=LINE)
        try:
            while question := await reader.readline():
                writer.write(msgspec.json.encode(await uses.answer(question)) + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # it ended, or says more than a line holds
        finally:
            writer.close()

    def admit() -> None:
        try:
            line, _ = door.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # whoever it was is gone
        except OSError as error:
            loop.remove_reader(door)
            log.warning("code that runs cannot reach its tools: %s", error)
            return
        line.setblocking(False)
        fresh.add(line)
        talks.add(group.create_task(talk(line), name="execute_code"))

    async with asyncio.TaskGroup() as group:
        with socket.socket(socket.AF_UNIX) as door:
            with short(path) as name:
                door.bind(name)
            door.setblocking(False)
            door.listen()
            loop.add_reader(door, admit)
            try:
                yield
            finally:
                loop.remove_reader(door)
                for each in talks:
                    each.cancel()
                for line in fresh:
                    line.close()


def _properties(spec: ToolSpec) -> list[str]:
    found = spec.schema.get("properties")
    return [*found] if isinstance(found, dict) else []


def _complaint(path: Path) -> str:
    text = path.read_text(errors="replace") if path.exists() else ""
    if len(text) > COMPLAINT:
        text = f"[...]\n{text[-COMPLAINT:]}"
    return f"{text.rstrip()}\n" if text.strip() else ""
