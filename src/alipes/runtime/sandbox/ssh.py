"""Backend `ssh`: commands run on another machine, over one shared connection.

The connection belongs to a client that is a child of this process. Its remote end waits for the end of its input and
then ends every command: when this process closes the backend, is killed, or loses the network.
"""

import asyncio
import logging
import os
import shlex
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import PurePosixPath
from typing import Any, Self

from msgspec import Struct

from alipes.runtime.processes.child import Child, Link, open_child
from alipes.runtime.processes.process_tree import OrphanGuard, scratch_directory
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.remote_commands import READY, CommandMarks, end_argv, hold_argv, run_argv
from alipes.runtime.sandbox.remote_folders import RemoteFolders, remove_script

log = logging.getLogger(__name__)
PASSED = ("TERM", "COLUMNS", "LINES", "NO_COLOR", "PAGER", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "LANG", "LC_ALL", "TZ")
"""Variables that commands get from here, besides those that are set; the others describe this machine."""
CONNECT_TIMEOUT_S, STOP_TIMEOUT_S, COPY_TIMEOUT_S = 20, 10.0, 60.0
_SOCKET = "./s"
"""Relative to the working directory of the clients: the path of a socket may have 100 characters only."""
_CHECK = "[ -r /proc/self/limits ] && command -v grep >/dev/null && ulimit -m 900000000000000"


class SshSettings(Struct, frozen=True):
    destination: str
    """As for the program `ssh`: a host of ssh_config, or `user@host`."""
    workdir: str
    """The directory on that machine that takes the place of the project. Empty: the home there."""
    environment: Mapping[str, str]
    """Variables of the client program itself: the agent's socket, the home with its configuration."""
    names: tuple[str, ...] = ()
    """Further variables to pass to commands."""
    options: tuple[str, ...] = ()
    """Further options of the client."""


class SshBackend:
    """Enter it before the first command; leaving it ends the connection and every command."""

    name, contains = "ssh", True

    def __init__(
        self,
        settings: SshSettings,
        guard: OrphanGuard | None = None,
        folders: Callable[[str], Sequence[str]] = lambda _workdir: (),
    ) -> None:
        """`folders`: folders of this machine that commands of a project may read; copied when a command names them."""
        self._settings, self._guard, self._list_folders = settings, guard, folders
        self._marks = CommandMarks()
        self._connecting = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._master: Child | None = None
        self._folder = "/"
        self._copies = RemoteFolders(folders, self._send)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._stack.aclose()

    async def check(self) -> str:
        host = self._settings.destination
        if shutil.which("ssh", path=self._settings.environment.get("PATH", os.defpath)) is None:
            return "ssh is not installed. Install it, or choose another `sandbox.backend`."
        if not host:
            return "no machine is set for the backend ssh. Set `sandbox.ssh` to user@host."
        try:
            await self._connect()
        except OSError as error:
            return f"{error}. `ssh {host}` must work without a question."
        if await self._run(["sh", "-c", _CHECK]):
            return f"{host} is not supported: commands there are ended with `sh`, `grep` and /proc, as on Linux."
        folder = self._settings.workdir or "."
        if await self._run(["sh", "-c", 'cd -- "$1"', "sh", folder]):
            return f"{folder} is not a directory on {host}. Create it, or change `sandbox.ssh_workdir`."
        return ""

    def open(
        self,
        command: str | Sequence[str],
        scope: CommandScope,
        *,
        cwd: str,
        env: Mapping[str, str],
        link: Link = "output",
    ) -> AbstractAsyncContextManager[Child]:
        return self._open(command, scope, cwd, env, link)

    def host_path(self, path: str, scope: CommandScope) -> str:
        """Empty: the files of commands are on the other machine."""
        return ""

    def scratch(self, scope: CommandScope) -> tuple[str, str]:
        raise OSError(f"commands run on {self._settings.destination}, which shares no directory with this machine")

    @asynccontextmanager
    async def _open(
        self, command: str | Sequence[str], scope: CommandScope, cwd: str, env: Mapping[str, str], link: Link
    ) -> AsyncIterator[Child]:
        await self._connect()
        command, copied = await self._copies.translate(command, cwd, scope.workdir)
        mark = self._marks.next()
        names = (*PASSED, *self._settings.names)
        variables = [f"{name}={env[name]}" for name in names if name in env]
        argv = ["env", *variables, *run_argv(command, mark, copied or self._remote_folder(cwd, scope.workdir))]
        options = ("-tt",) if link == "terminal" else ("-T",)
        async with self._client(argv, options, link) as child:
            try:
                yield child
            finally:
                if child.returncode is None and await self._run(end_argv(mark)):
                    log.warning("a command on %s could not be ended", self._settings.destination)

    async def _connect(self) -> None:
        """Connect unless connected. Raises OSError that says why not."""
        async with self._connecting:
            if self._master is not None and self._master.returncode is None:
                return
            await self._stack.aclose()
            async with AsyncExitStack() as stack:
                self._folder = str(stack.enter_context(scratch_directory(self._guard)))
                self._copies = RemoteFolders(self._list_folders, self._send)
                hold = hold_argv(self._marks.pattern, remove_script(self._copies.root))
                master = await stack.enter_async_context(self._client(hold, ("-M", "-T"), "pipes"))
                stack.push_async_callback(_close_connection, master)
                await _wait_until_ready(master, self._settings.destination)
                self._master, self._stack = master, stack.pop_all()

    async def _run(self, argv: Sequence[str]) -> int:
        """Run something there; returns its exit code."""
        try:
            async with self._client(argv, ("-T",), "output") as child, asyncio.timeout(STOP_TIMEOUT_S):
                return await child.wait()
        except (OSError, TimeoutError):
            return 255

    async def _send(self, argv: Sequence[str], data: bytes) -> None:
        """Run something there with this input. Raises OSError if it fails."""
        output, host = b"", self._settings.destination
        try:
            async with self._client(argv, ("-T",), "pipes") as child, asyncio.timeout(COPY_TIMEOUT_S):
                await child.input.write(data, COPY_TIMEOUT_S)
                await child.input.finish()
                while piece := await child.read():
                    output += piece
                code = await child.wait()
        except TimeoutError:
            raise OSError(f"files could not be copied to {host} within {COPY_TIMEOUT_S:.0f} seconds") from None
        if code:
            reason = (output.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise OSError(f"files could not be copied to {host}: {reason}")

    def _client(self, argv: Sequence[str], options: Sequence[str], link: Link) -> AbstractAsyncContextManager[Child]:
        fixed = ["-S", _SOCKET, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}"]
        fixed += [
            "-o",
            "ControlPersist=no",
            "-o",
            "ForwardAgent=no",
            "-o",
            "ForwardX11=no",
            "-o",
            "ClearAllForwardings=yes",
        ]
        fixed += ["-o", "LogLevel=ERROR", "-o", "ServerAliveInterval=15"]
        line = ["ssh", *fixed, *self._settings.options, *options, "--", self._settings.destination, shlex.join(argv)]
        return open_child(line, cwd=self._folder, env=self._settings.environment, link=link, keeper=self._guard)

    def _remote_folder(self, cwd: str, workdir: str) -> str:
        """The folder there for `cwd` here; outside of the project there is none, so it is the project itself."""
        there = self._settings.workdir or "."
        if workdir and PurePosixPath(cwd).is_relative_to(workdir):
            return str(PurePosixPath(there, os.path.relpath(cwd, workdir)))
        return there


async def _close_connection(master: Child) -> None:
    """Let the remote end finish its work."""
    master.input.close()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await master.wait()
    except TimeoutError:
        log.warning("the connection did not end within %.0f seconds", STOP_TIMEOUT_S)


async def _wait_until_ready(master: Child, destination: str) -> None:
    output = b""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S + STOP_TIMEOUT_S):
            while READY not in output:
                piece = await master.read()
                if not piece:
                    lines = output.decode(errors="replace").strip().splitlines() or ["the connection was closed"]
                    raise OSError(f"could not connect to {destination}: {lines[-1].strip().rstrip('.')}")
                output += piece
    except TimeoutError:
        raise OSError(f"could not connect to {destination}: no answer") from None
