"""`execute_code`: runs Python in a child process that can call tools; only printed output is returned."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.kernel.turns import Turn
from alipes.runtime.processes.child import Child, ChildInput
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope, HostBackend
from alipes.tools import code_child
from alipes.tools.common import make_schema
from alipes.tools.shell.background import describe_exit
from alipes.tools.shell.output import CommandOutput, SpillFolder
from alipes.tools.shell.terminal import OutputProgress, prepare_commands, read_until_exit

PROGRAM = "code_child.py"
MAX_REQUEST_BYTES = 16 * 2**20
ANSWER_TIMEOUT_S = 60.0
"""How long the code may leave an answer unread."""
MAX_STDERR_CHARS = 4_000
"""Characters of stderr shown when the code fails."""


class CodeLimits(msgspec.Struct, frozen=True):
    seconds: float = 300.0
    calls: int = 50


class ExecuteCode:
    """The `execute_code` tool. Every process it started has ended when it returns."""

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        env: Mapping[str, str],
        spill: SpillFolder,
        *,
        backend: CommandBackend | None = None,
        limits: CodeLimits | None = None,
    ) -> None:
        """`tools`: those the code may call. `env`: its whole environment."""
        limits = limits or CodeLimits()
        found = {spec.name: spec.schema.get("properties") for spec in tools}
        self._tools = {name: [*given] if isinstance(given, dict) else [] for name, given in found.items()}
        self._env, self._spill, self._backend = env, spill, backend or HostBackend()
        self._seconds, self._calls = limits.seconds, limits.calls
        names = ", ".join(self._tools)
        self.spec = ToolSpec(
            name="execute_code",
            description="Run Python for multi-step work or large data; returns only printed output. These tools are"
            f" functions with the same arguments, which return text or raise ToolError: {names}.",
            schema=make_schema("code", code="string"),
        )

    def prepare_call(self, turn: Turn) -> None:
        prepare_commands(self._backend, turn)

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        output = CommandOutput(self._spill)
        title = "Python code of execute_code"
        scope = CommandScope(act.session, act.workdir, act.turn, call=act.call_id, title=title)
        try:
            here, seen = self._backend.scratch(scope)
        except OSError as error:
            raise ToolError(str(error)) from error
        with tempfile.TemporaryDirectory(prefix="code-", dir=here) as name:
            folder = Path(name)
            self._write_files(folder, str(args["code"]))
            async with _serve_tools(folder, _ToolServer(act, self._tools, self._calls)):
                child, in_time = await self._run_child(os.path.join(seen, folder.name), scope, act, output)
            complaint = await asyncio.to_thread(_read_stderr, folder / "stderr") if child.returncode else ""
        text = (await output.text()).rstrip() or "(no output)"
        status = describe_exit(child) if in_time else f"timed out after {self._seconds:g} s and was killed"
        return f"{text}\n{self._spill.mask(complaint)}[{status}]"

    def _write_files(self, folder: Path, code: str) -> None:
        (folder / "code.py").write_text(code, encoding="utf-8", errors="surrogatepass")
        (folder / "tools.json").write_text(json.dumps(self._tools))
        (folder / PROGRAM).write_bytes(Path(code_child.__file__).read_bytes())

    async def _run_child(
        self, folder: str, scope: CommandScope, act: ToolContext, output: CommandOutput
    ) -> tuple[Child, bool]:
        """Run the code in `folder`, a path as it sees it; returns the child, and whether it ended in time."""
        argv = (sys.executable, "-u", "-I", os.path.join(folder, PROGRAM), folder)
        progress = OutputProgress(act, self._spill.mask)
        try:
            child_scope = self._backend.open(argv, scope, cwd=act.workdir or os.getcwd(), env=self._env)
            async with child_scope as child:
                return child, await read_until_exit(child, self._seconds, progress, output, None)
        except OSError as error:
            raise ToolError(f"the code could not be started: {error}") from error


class _ToolServer:
    """Runs the tool calls of the code, with the same approval checks as calls of the model."""

    def __init__(self, act: ToolContext, tools: Mapping[str, list[str]], limit: int) -> None:
        self._act, self._tools, self._left, self._limit = act, tools, limit, limit

    async def answer(self, line: bytes) -> dict[str, Json]:
        try:
            asked = msgspec.json.decode(line)
            name, args = str(asked["tool"]), dict(asked["args"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            return {"ok": False, "text": "not a valid tool request"}
        if name not in self._tools:
            return {"ok": False, "text": f"unknown tool {name}"}
        if self._left <= 0:
            return {"ok": False, "text": f"tool call limit ({self._limit}) reached; do the rest without tools"}
        self._left -= 1
        result = await self._act.run_tool(name, args)
        return {"ok": result.outcome == "ok", "text": result.text}


@asynccontextmanager
async def _serve_tools(folder: Path, server: _ToolServer) -> AsyncIterator[None]:
    """Serve tool calls over two named pipes in `folder` while entered; a call still running at the end is cancelled.

    No socket: with Landlock alone, sandboxed processes have none.
    """
    with ExitStack() as stack:
        handles = list[int]()
        for name in (code_child.REQUESTS, code_child.ANSWERS):
            os.mkfifo(folder / name, 0o600)
            # for both directions: nobody waits for the other side, and there is no end before ours
            handles.append(os.open(folder / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            stack.callback(os.close, handles[-1])
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_answer_all(handles[0], handles[1], server), name="execute_code")
            try:
                yield
            finally:
                task.cancel()


async def _answer_all(requests: int, answers: int, server: _ToolServer) -> None:
    """Answer the lines of one pipe in the other, until a line is too long or an answer is not read."""
    loop, text, output = asyncio.get_running_loop(), bytearray(), ChildInput(answers, terminal=False)
    while len(text) <= MAX_REQUEST_BYTES:
        line, end, rest = text.partition(b"\n")
        if end:
            text = rest
            answer = msgspec.json.encode(await server.answer(bytes(line))) + b"\n"
            if await output.write(answer, ANSWER_TIMEOUT_S) < len(answer):
                return
            continue
        readable = asyncio.Event()
        loop.add_reader(requests, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(requests)
        text += os.read(requests, 65536)


def _read_stderr(path: Path) -> str:
    text = path.read_text(errors="replace") if path.exists() else ""
    if len(text) > MAX_STDERR_CHARS:
        text = f"[...]\n{text[-MAX_STDERR_CHARS:]}"
    return f"{text.rstrip()}\n" if text.strip() else ""
