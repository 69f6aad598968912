"""`terminal` runs shell commands, in the foreground or background; `process` controls the background ones."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from alipes.kernel.errors import ToolError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.kernel.turns import Turn
from alipes.runtime.processes.child import COLUMNS, ROWS, Child
from alipes.runtime.redaction import split_ready
from alipes.runtime.sandbox.backend import CommandBackend, CommandScope, ExpectsCommands, HostBackend
from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.sandbox.project import project_root
from alipes.tools.common import Places, int_argument, make_schema
from alipes.tools.shell.background import (
    BackgroundProcess,
    BackgroundProcesses,
    ForegroundCommand,
    MovedToBackground,
    describe_exit,
    send_replies,
    stop_processes,
)
from alipes.tools.shell.output import CommandOutput, SpillFolder, clean_piece, open_emulator

if TYPE_CHECKING:
    from alipes.tools.shell.pty import TerminalEmulator

PROGRESS_INTERVAL_S = 0.2
MAX_PROGRESS_BYTES = 2_000
DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S = 120, 600
DEFAULT_LINES = 200
ANSWER_POLL_S = 0.2
_NO_REPOSITORY = lazy_pattern(r"'([^'\n:]+)' does not appear to be a git repository")
_NO_FILE = lazy_pattern(
    r"([^\s:'\"]+)['\"]?: No such file or directory|[Nn]o such file or directory[^'\n]{0,20}'([^'\n]+)'"
)
_PARAMETERS = {
    "command": "string",
    "timeout": "integer: seconds, max 600",
    "workdir": "string",
    "background": "boolean: keep running, see process",
    "pty": "boolean: 80x24 terminal",
}
PTY_ENVIRONMENT = {"TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}


class OutputProgress:
    """Reads output and reports it as progress of the tool call."""

    def __init__(self, act: ToolContext, mask: Callable[[str], str]) -> None:
        self._act, self._mask = act, mask
        self._clock = asyncio.get_running_loop().time
        self._due = self._clock() + PROGRESS_INTERVAL_S
        self._unshown = bytearray()

    async def read_and_show(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the next piece of `read`; report progress while waiting."""
        while True:
            try:
                async with asyncio.timeout_at(self._due if self._unshown else None) as tick:
                    piece = await read()
            except TimeoutError:
                if not tick.expired():
                    raise
                await self._show()
                continue
            self._unshown = (self._unshown + piece)[-2 * MAX_PROGRESS_BYTES :]
            if self._unshown and self._clock() >= self._due:
                await self._show()
            return piece

    async def _show(self) -> None:
        # a secret whose rest is still to come is not shown in halves; masked before it is cut for the same reason
        ready, rest = split_ready(self._mask, clean_piece(self._unshown))
        text = self._mask(ready)
        glimpse = text[-MAX_PROGRESS_BYTES:]
        if len(text) > MAX_PROGRESS_BYTES and "\n" in glimpse:
            glimpse = glimpse[glimpse.index("\n") + 1 :]
        self._unshown = bytearray(rest.encode())
        self._due = self._clock() + PROGRESS_INTERVAL_S
        if glimpse:
            await self._act.progress(glimpse)


class OutputRewriter(Protocol):
    """Rewrites the output of commands, on behalf of plugins."""

    def is_active(self) -> bool: ...

    async def rewrite(self, output: str, command: str, status: int | None) -> str | None:
        """The new text; None if it is unchanged. No `status`: the command was stopped."""
        ...


_HOST_SPEC = ToolSpec(
    name="terminal",
    description="Run bash. Returns output and exit code; its processes end with it. No stdin.",
    schema=make_schema("command", **_PARAMETERS),
)
_SANDBOX_SPEC = structs.replace(
    _HOST_SPEC, schema=make_schema("command", **_PARAMETERS, outside="boolean: without sandbox; asks")
)


_OUTSIDE_ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}
"""For a command outside the sandbox: what it leaves in `__pycache__` would count as a change of what was approved."""


class TerminalTool:
    """The `terminal` tool. Every process of a foreground command has ended when it returns."""

    def __init__(  # noqa: PLR0913
        self,
        places: Places,
        env: Mapping[str, str],
        spill: SpillFolder,
        *,
        backend: CommandBackend | None = None,
        background: BackgroundProcesses | None = None,
        rewriter: OutputRewriter | None = None,
        check_start: Callable[[ToolContext], Awaitable[None]] | None = None,
    ) -> None:
        """`env` is the whole environment of commands. `check_start`: called right before a command starts; raises
        `ToolError` if it must not."""
        self._places, self._env, self._spill = places, env, spill
        self._backend, self._background = backend or HostBackend(), background
        self._rewriter, self._check_start = rewriter, check_start

    @property
    def spec(self) -> ToolSpec:
        return _SANDBOX_SPEC if self._backend.contains else _HOST_SPEC

    def prepare_call(self, turn: Turn) -> None:
        prepare_commands(self._backend, turn)

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        command = str(args["command"])
        if "\0" in command:
            raise ToolError("a command cannot contain a null byte")
        limit = parse_timeout(args.get("timeout"))
        outside = args.get("outside") is True or not self._backend.contains
        scope = CommandScope(act.session, act.workdir, act.turn, outside=outside, call=act.call_id)
        workdir = self._resolve_workdir(args.get("workdir"), scope)
        pty = args.get("pty") is True
        if self._check_start is not None:
            await self._check_start(act)
        if args.get("background") is True:
            return await self._start(command, workdir, scope, pty=pty)
        output = CommandOutput(self._spill)
        emulator = open_emulator() if pty else None
        env = self._environment(scope, pty=pty)
        child_scope = self._backend.open(command, scope, cwd=workdir, env=env, link="terminal" if pty else "output")
        progress = OutputProgress(act, self._spill.mask)
        if self._background is not None and not pty:
            done = await self._run_movable(child_scope, ForegroundRun(limit, progress, output), scope, command)
            if isinstance(done, str):
                return done
            child, in_time = done
        else:
            try:
                async with child_scope as child:
                    in_time = await read_until_exit(child, limit, progress, output, emulator)
            except OSError as error:
                raise ToolError(f"the command could not be started: {error}") from error
        if emulator:
            await output.feed(emulator.finish())
        if self._rewriter is not None and self._rewriter.is_active():
            code = child.returncode if in_time else None
            changed = await self._rewriter.rewrite(await output.full_text(), command, code)
            if changed is not None:
                output = CommandOutput(self._spill)
                await output.feed(changed.encode())
        text = (await output.text()).rstrip()
        status = describe_exit(child) if in_time else f"timed out after {limit} s and was killed"
        said = dict.fromkeys(filter(None, (*child.notes, child.refusal)))
        notes = "".join(f"\n[{note}]" for note in said if not (child.was_ended and note == child.refusal))
        notes += self._explain_missing_path(text, workdir, scope) if status != "exit code 0" else ""
        notes += self._background_notes(act.session, failed=status != "exit code 0")
        return f"{text or '(no output)'}\n[{status}]{notes}"

    async def _run_movable(
        self, child_scope: AbstractAsyncContextManager[Child], run: "ForegroundRun", scope: CommandScope, command: str
    ) -> "tuple[Child, bool] | str":
        """Run a command that a person may send to the background: the child and whether it ended in time, or the
        result of the call. It runs in a task of its own, which outlives the call then."""
        assert self._background is not None
        with self._background.foreground(scope, command) as running:
            task = self._background.run_task(run.work(child_scope, running, self._background), f"command: {command}")
            task.add_done_callback(lambda _: running.changed.set())
            try:
                await running.changed.wait()
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.wait({task})
                raise
        if (process := running.process) is not None:
            text = process.log.read_new().rstrip() or "(no output yet)"
            return f"{text}\n[{process.name} is running in the background, where the user moved it]"
        result = task.result()
        if isinstance(result, OSError):
            raise ToolError(f"the command could not be started: {result}") from result
        if isinstance(result, BaseException):
            raise result
        return result

    async def _start(self, command: str, workdir: str, scope: CommandScope, *, pty: bool) -> str:
        if self._background is None:
            raise ToolError("background processes are not available here")
        env = self._environment(scope, pty=pty)
        process = await self._background.start(scope, command, cwd=workdir, env=env, pty=pty)
        process.is_reported = process.is_finished
        output = process.log.read_new().rstrip() or "(no output yet)"
        state = process.status if process.is_finished else "is running in the background"
        return f"{output}\n[{process.name} {state}]"

    def _environment(self, scope: CommandScope, *, pty: bool) -> Mapping[str, str]:
        env = {**self._env, **PTY_ENVIRONMENT} if pty else self._env
        return {**env, **_OUTSIDE_ENVIRONMENT} if scope.outside and self._backend.contains else env

    def _background_notes(self, session: str, *, failed: bool) -> str:
        """Notes for the model: finished background processes, and after a failure the running ones."""
        if self._background is None:
            return ""
        running = self._background.describe_running(session) if failed else ""
        notes = self._background.report_finished(session), running and f"running {running}"
        return "".join(f"\n[{note}]" for note in notes if note)

    def _explain_missing_path(self, output: str, workdir: str, scope: CommandScope) -> str:
        """A note about a path in the home, outside of the project: commands in a sandbox see an empty home."""
        if remote := _explain_missing_repository(output, workdir, scope):
            return remote
        home = self._env.get("HOME", "")
        if self._backend.name != "sandbox" or scope.outside or not home:
            return ""
        for found in _NO_FILE.finditer(output):
            path = os.path.normpath(os.path.join(workdir, os.path.expanduser(found[1] or found[2])))
            name = path.removeprefix(home.rstrip("/") + "/")
            if name == path or name.startswith(".") or is_inside(path, project_root(scope.workdir, home, home)):
                continue
            return f"\n[{path} is in the home, outside of the project: the sandbox hides it. The file tools see it]"
        return ""

    def _resolve_workdir(self, given: Json, scope: CommandScope) -> str:
        """The working directory, as the command sees it."""
        named = self._places.join(str(given or "."), scope.workdir)
        path = Path(named if scope.outside else self._backend.host_path(named, scope))
        if not path.is_dir():
            raise ToolError(f"workdir {named} is {'not a directory' if path.exists() else 'missing'}")
        return named


def _explain_missing_repository(output: str, workdir: str, scope: CommandScope) -> str:
    """A note about a git remote that is a path outside of the project, which git misses in a sandbox."""
    found = None if scope.outside else _NO_REPOSITORY.search(output)
    path = os.path.normpath(os.path.join(workdir, found[1])) if found else ""
    if not path or not os.path.relpath(path, scope.workdir).startswith(os.pardir):
        return ""
    return f"\n[{path} is outside of the project: the sandbox hides it. With `outside` git sees it, after a question]"


def prepare_commands(backend: CommandBackend, turn: Turn) -> None:
    """The model begins to write a command: its sandbox is made meanwhile."""
    if isinstance(backend, ExpectsCommands):
        backend.expect(CommandScope(turn.session, turn.inbound.workdir, turn))


class ForegroundRun:
    """Reads a command until it exits or is sent to the background, and then to its end."""

    def __init__(self, limit: float, progress: OutputProgress, output: CommandOutput) -> None:
        self._limit, self._progress, self._output = limit, progress, output

    async def work(
        self,
        child_scope: AbstractAsyncContextManager[Child],
        running: ForegroundCommand,
        background: BackgroundProcesses,
    ) -> tuple[Child, bool]:
        """The child, and whether it ended in time."""
        async with child_scope as child:
            read = partial(running.read, child)
            try:
                return child, await read_until_exit(child, self._limit, self._progress, self._output, read=read)
            except MovedToBackground:
                process = await background.adopt(running, (await self._output.full_text()).encode())
                running.changed.set()
                try:
                    await process.read_output(child)
                finally:
                    await process.log.finish()
        return child, True


async def read_until_exit(
    child: Child,
    limit: float,
    progress: OutputProgress,
    output: CommandOutput,
    emulator: "TerminalEmulator | None" = None,
    *,
    read: Callable[[], Awaitable[bytes]] | None = None,
) -> bool:
    """Read its output until it exits. False if it timed out; waiting for a person does not count. It is ended if a
    person says no to a connection. `read`: instead of that of the child."""
    child.end_when_refused()
    while True:
        try:
            async with asyncio.timeout(limit) as clock:
                await _read_to_end(child, progress, output, emulator, read or child.read)
        except TimeoutError:
            if not clock.expired():
                raise
            if not child.is_waiting():
                return False
            await _wait_for_answer(child)
        else:
            return True


async def _read_to_end(
    child: Child,
    progress: OutputProgress,
    output: CommandOutput,
    emulator: "TerminalEmulator | None",
    read: Callable[[], Awaitable[bytes]],
) -> None:
    if emulator:
        await child.input.finish()  # no input: end of file at once
    while piece := await progress.read_and_show(read):
        if emulator:
            piece = emulator.feed(piece)
            await send_replies(child, emulator)
        await output.feed(piece)
    await child.wait()


async def _wait_for_answer(child: Child) -> None:
    while child.is_waiting():  # noqa: ASYNC110
        await asyncio.sleep(ANSWER_POLL_S)


def parse_timeout(given: Json) -> int:
    """The timeout in seconds, or the default. Raises `ToolError` if it is not positive."""
    if given is None:
        return DEFAULT_TIMEOUT_S
    if not isinstance(given, int | float) or given <= 0:
        raise ToolError(f"timeout must be between 1 and {MAX_TIMEOUT_S} seconds, not {given}")
    return max(1, int(min(given, MAX_TIMEOUT_S)))


class ProcessTool:
    """The `process` tool. A session sees only its own processes."""

    spec = ToolSpec(
        name="process",
        description="Background processes: poll (new output), log, wait, write and close (stdin), kill, list.",
        schema=make_schema(
            "action",
            action=["list", "poll", "log", "wait", "kill", "write", "close"],
            session_id="string: p1",
            data="string: end lines with \\n",
            timeout="integer",
            offset="integer: negative: from the end",
            limit="integer",
        ),
    )

    def __init__(
        self,
        background: BackgroundProcesses,
        *,
        mask: Callable[[str], str] = str,
        grace: float = 3.0,
        patience: float = 5.0,
    ) -> None:
        """`grace`: seconds between SIGTERM and SIGKILL; `patience`: seconds to read what is written."""
        self._background, self._mask = background, mask
        self._grace, self._patience = grace, patience

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        action = str(args["action"])
        if action == "list":
            titles = [f"{process.title} {process.status}" for process in self._background.processes_of(act.session)]
            return "\n".join(titles) or "(no background processes)"
        process = self._background.find(act.session, str(args.get("session_id") or ""))
        match action:
            case "poll":
                return _format_new_output(process)
            case "log":
                limit = max(1, int_argument(args, "limit") or DEFAULT_LINES)
                lines = await process.log.read_lines(int_argument(args, "offset"), limit)
                return f"{lines}\n{_format_status(process)}"
            case "wait":
                await self._wait(process, parse_timeout(args.get("timeout")), act)
            case "kill":
                await stop_processes([process], self._grace)
            case "write":
                await _write_input(process, str(args.get("data") or ""), self._patience)
            case "close":
                await _open_input(process).input.finish()
                await process.wait_for_output()
            case _:
                raise ToolError(f"unknown action {action}")
        return _format_new_output(process)

    async def _wait(self, process: BackgroundProcess, limit: float, act: ToolContext) -> None:
        progress = OutputProgress(act, self._mask)
        try:
            async with asyncio.timeout(limit) as clock:
                with process.subscribe() as next_piece:
                    while await progress.read_and_show(next_piece):
                        pass
        except TimeoutError:
            if not clock.expired():
                raise


async def _write_input(process: BackgroundProcess, data: str, patience: float) -> None:
    raw = data.encode(errors="replace")
    child = _open_input(process)
    if child.input.terminal:
        raw = raw.replace(b"\n", b"\r")  # as the Enter key; the terminal turns it into a newline
    try:
        taken = await child.input.write(raw, patience)
    except OSError as error:
        raise ToolError(f"{process.name} no longer reads its input: {error.strerror}") from error
    if taken < len(raw):
        raise ToolError(f"{process.name} read only {taken:,} of {len(raw):,} bytes")
    await process.wait_for_output()


def _open_input(process: BackgroundProcess) -> Child:
    """The child, if its input is open. Raises `ToolError`."""
    if process.is_finished or process.child is None:
        raise ToolError(f"{process.name} {process.status}")
    if process.child.input.closed:
        raise ToolError(f"the input of {process.name} is already closed")
    return process.child


def _format_new_output(process: BackgroundProcess) -> str:
    return f"{process.log.read_new().rstrip() or '(no new output)'}\n{_format_status(process)}"


def _format_status(process: BackgroundProcess) -> str:
    process.is_reported = process.is_finished
    return f"[{process.name} {process.status}]"
