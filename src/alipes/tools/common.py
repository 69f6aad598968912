"""Shared by tools: cancellable work in a thread, the environment of commands, paths and secret files."""

import asyncio
import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from alipes.config.display import is_secret_name, looks_secret
from alipes.config.paths import all_homes
from alipes.config.protected_paths import is_secret_in_home, is_secret_in_project, is_secret_in_system
from alipes.config.settings import Settings
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Tool, ToolContext, ToolOutput, ToolSpec

T = TypeVar("T")
NONINTERACTIVE = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    **dict.fromkeys(("PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER"), "cat"),
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
}
"""Switches off colours, pagers and prompts."""
Secrecy: TypeAlias = Literal["", "ours", "personal"]
"""`ours`: no tool may read it; `personal`: only with approval."""
_KERNEL = r"/proc/(?:[^/]+/(?:task/[^/]+/)?(?:environ|mem)|kcore|kmsg|vmcore)$"
_OURS = (
    r"(?:(?:run|browser)/.*|(?:checkpoints|memory|profiles)(?:/.*)?|\.env.*"
    r"|.*\.(?:db|db-wal|db-shm|db-journal|key|pem|sock)(?:\.[^/]*)?)$"
)


class WorkCancelled(Exception):
    """Raised inside the worker thread after a stop; nobody waits for it."""


class CommitGate:
    """Separates preparing from committing. A stop closes it unless the commit has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed = self._closed = False

    def enter(self) -> None:
        """Start the commit; it can no longer be cancelled. Raises `WorkCancelled` after a stop."""
        with self._lock:
            if self._closed:
                raise WorkCancelled
            self._passed = True

    def close(self) -> bool:
        """Cancel the work. False if the commit has already started."""
        with self._lock:
            self._closed = not self._passed
            return self._closed


class LazyTool:
    """A tool that is made, and its module imported, with its first call."""

    def __init__(self, spec: ToolSpec, make: Callable[[], Tool]) -> None:
        self.spec, self._make = spec, make
        self._tool: Tool | None = None

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        self._tool = self._tool or self._make()
        return await self._tool.run(args, act)


async def run_in_thread(work: Callable[[CommitGate], T]) -> T:
    """Run `work` in a thread. Cancelled before the gate, it changes nothing; after it, it is waited for."""
    gate = CommitGate()
    future = asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, work, gate))
    stopped: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as cancelled:
            stopped = cancelled
            if gate.close():
                future.cancel()  # the thread discards what it is still preparing
                raise
    if stopped is not None:
        future.exception()
        raise stopped
    return future.result()


def is_secret_variable(name: str, value: str, secrets: Collection[str]) -> bool:
    """True if the name or the value looks like a secret, or the value is one of `secrets`."""
    return is_secret_name(name) or value in secrets or looks_secret(value)


def child_environment(environ: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """`environ` for a command, without anything that looks like a secret or is one of `secrets`."""
    hidden = set(secrets)
    kept = {name: value for name, value in environ.items() if not is_secret_variable(name, value, hidden)}
    return {**kept, **NONINTERACTIVE}


class Places(Struct, frozen=True):
    """Resolves paths, and knows which files hold secrets."""

    home: str
    alipes_home: str
    """Directory of this program: configuration, database, sockets."""
    alipes_root: str = ""
    """The default home, if `alipes_home` is that of a profile: everything else in it belongs to other profiles."""
    shared: tuple[str, ...] = ()
    """Folders of ours outside of `alipes_root`, those in `cluster.folder`, without links."""
    readable: tuple[str, ...] = ()
    """Those of them that may be read: the skills of this profile, files of chats, and files for chats."""
    scratch: tuple[str, ...] = ("/tmp", "/var/tmp", "/dev/shm")
    """Directories for temporary files."""

    map_path: Callable[[str, str], str] | None = None
    """Where an absolute path that commands of a project see is on this machine."""

    def resolve(self, path: str, workdir: str) -> Path:
        """Absolute path for the `path` that the model gave; links are not followed. Raises `ToolError`.

        Commands in a sandbox have a home of their own. A path in the home is there only if they made more of it there
        than the user has: `~/notes.txt` is that of the user unless a command wrote it.
        """
        named = self.join(path, workdir)
        if self.map_path is None:
            return Path(named)
        mapped = self.map_path(named, workdir)
        is_users = _is_inside(named, (self.home,)) and _count_missing(mapped) >= _count_missing(named)
        return Path(named if is_users else mapped)

    def join(self, path: str, workdir: str) -> str:
        """Absolute path as commands see it. Raises `ToolError`."""
        if "\0" in path:
            raise ToolError("a path cannot contain a null byte")
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return os.path.join(workdir or os.getcwd(), path)

    @property
    def root(self) -> str:
        """The directory with the homes of all profiles."""
        return self.alipes_root or self.alipes_home

    @property
    def own_folders(self) -> tuple[str, ...]:
        """Everything that belongs to alipes, without links."""
        return os.path.realpath(self.root), *self.shared

    def secrecy(self, real: str) -> Secrecy:
        """Whether this real path holds secrets. Follow links first, and check again after opening."""
        inside = _relative_to(real, self.alipes_home)
        if re.compile(_KERNEL).match(real) or (inside and re.compile(_OURS).match(inside)):
            return "ours"
        if not inside and self.root != self.alipes_home and _relative_to(real, self.root):
            return "ours"
        if _is_inside(real, self.shared) and not _is_inside(real, self.readable):
            return "ours"
        if is_secret_in_system(real) or is_secret_in_project(real) or is_secret_in_home(_relative_to(real, self.home)):
            return "personal"
        return ""

    def is_withheld(self, real: str) -> bool:
        """True if this file must never be sent to anybody."""
        try:
            return bool(self.secrecy(real)) or self.is_linked_env_file(os.stat(real))
        except OSError:
            return True

    def is_linked_env_file(self, facts: os.stat_result) -> bool:
        """True if it is a hard link to our .env file, or to that of another profile."""
        if facts.st_nlink < 2:
            return False
        for home in all_homes(Path(self.alipes_home)):
            with suppress(OSError):
                if os.path.samestat(facts, os.stat(home / ".env")):
                    return True
        return False


def make_places(settings: Settings) -> Places:
    paths = settings.paths
    return Places(
        home=os.path.expanduser("~"),
        alipes_home=str(settings.home),
        alipes_root=str(paths.root),
        shared=tuple(map(os.path.realpath, paths.shared)),
        readable=tuple(map(os.path.realpath, (paths.skills, paths.files, paths.outgoing))) if paths.shared else (),
    )


def _count_missing(path: str) -> int:
    """How many parts at the end of a path do not exist."""
    count = 0
    while not os.path.lexists(path) and path not in ("", "/"):
        path, count = os.path.dirname(path.rstrip("/")), count + 1
    return count


def _is_inside(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in folders)


def _relative_to(path: str, folder: str) -> str:
    """`path` relative to `folder`; empty if it is not inside."""
    start = os.path.realpath(folder).rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else ""


def describe_file_type(mode: int) -> str:
    """Name of a file type other than a regular file."""
    names = {"d": "a directory", "p": "a pipe", "s": "a socket", "b": "a disk"}
    return names.get(stat.filemode(mode)[0], "a device")


def int_argument(args: Mapping[str, Json], name: str, default: int = 0) -> int:
    """An optional integer argument of a tool call."""
    given = args.get(name)
    return given if isinstance(given, int) else default


def common_prefix(one: Sequence[str], other: Sequence[str]) -> int:
    """How many items, or characters, are equal at the start."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def make_schema(required: str, /, **parameters: str | list[str] | dict[str, Json]) -> dict[str, Json]:
    """JSON schema of the arguments of a tool; `required` are names with spaces between them.

    A parameter is its type, `type: description`, a list of allowed strings, or a schema of its own. The type
    `strings` is an array of strings.
    """
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {name: _parameter_schema(given) for name, given in parameters.items()},
    }
    return schema | {"required": [*required.split()]} if required else schema


def _parameter_schema(given: str | list[str] | dict[str, Json]) -> dict[str, Json]:
    if isinstance(given, dict):
        return given
    if isinstance(given, list):
        return {"type": "string", "enum": [*given]}
    kind, _, description = given.partition(": ")
    schema: dict[str, Json] = {"type": "array", "items": {"type": "string"}} if kind == "strings" else {"type": kind}
    return schema | {"description": description} if description else schema
