"""The boundary of the file tools: opens a path once, says where it leads, and hands out what was opened.

What is judged is the descriptor, and the tool acts at the same descriptor: a name that leads elsewhere a moment later
changes nothing.
"""

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import did_you_mean
from alipes.runtime import beneath
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.mounts import SYSTEM
from alipes.runtime.sandbox.policy import SandboxPolicy, is_inside
from alipes.runtime.sandbox.starter import DEVICES
from alipes.tools.common import Places

READABLE = (*SYSTEM, *DEVICES)
"""Programs, libraries and settings of this machine, which commands in a sandbox see too."""
MAX_HELD = 200
"""Paths of one call that may be open at a time."""
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""Without O_NONBLOCK, opening a pipe without a writer would block."""


class OpenedPath:
    """A path and what it led to when it was opened. The one that opened it closes it."""

    def __init__(self, path: str) -> None:
        """Open the absolute `path`; neither the file nor its last folders have to exist. Raises OSError."""
        self.folder, self.name = -1, ""
        self.handle: int | None = None
        """The file itself; None if there is none."""
        self.path = Path(path)
        self.is_link = False
        """The path itself is a link."""
        self.missing: tuple[str, ...] = ()
        """Folders that have to be made, below the one that is open."""
        self.facts: os.stat_result | None = None
        try:
            self._open(path)
            self.real = os.path.join(beneath.path_of(self.folder), *self.missing, self.name)
            if self.name == ".":
                self.real = os.path.dirname(self.real)
        except (OSError, ValueError):
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """As for files: what a cancelled task had opened is closed as well."""
        self.close()

    def close(self) -> None:
        for handle in (self.folder, self.handle):
            if handle is not None and handle >= 0:
                os.close(handle)
        self.folder, self.handle = -1, None

    def copy(self) -> "OpenedPath":
        """The same folder and file, with descriptors of its own."""
        handles = os.dup(self.folder), None if self.handle is None else os.dup(self.handle)
        other = object.__new__(OpenedPath)
        other.__dict__.update(self.__dict__)
        other.folder, other.handle = handles
        return other

    def open(self, flags: int = _READ) -> int:
        """A new descriptor of the file. Raises OSError."""
        if self.handle is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        return beneath.open_again(self.handle, flags)

    def list_names(self) -> list[str]:
        """The names in the folder that it lies in, or in the nearest one that exists. Raises OSError."""
        return beneath.list_names(self.folder)

    def leads_to_same(self, other: "OpenedPath") -> bool:
        """True if both name the same place, and the same file in it."""
        here, there = os.fstat(self.folder), os.fstat(other.folder)
        if not os.path.samestat(here, there) or (self.missing, self.name) != (other.missing, other.name):
            return False
        if self.facts is None or other.facts is None:
            return self.facts is other.facts
        return os.path.samestat(self.facts, other.facts)

    def _open(self, path: str) -> None:
        base: int | None = None
        try:
            for _ in range(beneath.MAX_LINKS):
                head, self.name = os.path.split(path)
                if self.name in ("", ".", ".."):
                    head, self.name = path, "."
                opened, self.missing = _open_existing(base, head or ".")
                self._replace_folder(opened)
                target = None if self.missing else self._open_file()
                if target is None:
                    return
                self.is_link, path, base = True, target, os.dup(self.folder) if base is None else _moved(base, self)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        finally:
            if base is not None:
                os.close(base)

    def _replace_folder(self, opened: int) -> None:
        if self.folder >= 0:
            os.close(self.folder)
        self.folder = opened

    def _open_file(self) -> str | None:
        """Open the file by its name in the folder; where it leads if it is a link."""
        try:
            handle = os.open(self.name, beneath.NAMED | os.O_NOFOLLOW, dir_fd=self.folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return os.readlink(self.name, dir_fd=self.folder)
        facts = os.fstat(handle)
        if not stat.S_ISLNK(facts.st_mode):
            self.handle, self.facts = handle, facts
            return None
        os.close(handle)
        return os.readlink(self.name, dir_fd=self.folder)


def _moved(base: int, opened: OpenedPath) -> int:
    os.close(base)
    return os.dup(opened.folder)


def _open_existing(base: int | None, path: str) -> tuple[int, tuple[str, ...]]:
    """The nearest folder on the way to `path` that exists, and the names that are missing."""
    missing, top = list[str](), "/" if path.startswith("/") else "."
    while True:
        try:
            return beneath.open_named(path, beneath.FOLDER, folder=base), tuple(reversed(missing))
        except FileNotFoundError:
            head, _, name = path.rstrip("/").rpartition("/")
            if path == top or name in ("", ".", ".."):
                raise
            path = head or top
            missing.append(name)


def _is_in_any(path: str, folders: Iterable[str]) -> bool:
    return any(is_inside(path, folder) for folder in folders)


def _is_fact_of_kernel(path: str) -> bool:
    """True for what is in /proc, without the other processes: commands see their own there."""
    process = path.split("/")[2] if path.startswith("/proc/") else ""
    return process != "" and (not process.isdigit() or process == str(os.getpid()))


class FileBoundary:
    """Opens the paths that a tool names, and keeps those of a call open from its approval until its end."""

    def __init__(
        self, places: Places, make_policy: Callable[[CommandScope], tuple[SandboxPolicy, bool]] | None = None
    ) -> None:
        """`make_policy`: what commands of a conversation may see and change, and whether a sandbox holds them to it.
        None: the working directory may be changed, and everything else read."""
        self.places, self._make_policy = places, make_policy
        self._grants: dict[str, dict[tuple[str, str], None]] = {}
        """By conversation: `read` or `write`, and a path outside of the project."""
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], dict[str, OpenedPath | ToolError]] = {}
        """By conversation and call. What could not be opened then is not opened later either."""

    def hold(self, key: tuple[str, str], path: str, workdir: str) -> OpenedPath:
        """Open a path of a call and keep it open; once for each path. Do not close it. Raises `ToolError`."""
        named = self.places.join(path, workdir)
        with self._lock:
            held = self._held.setdefault(key, {})
            if named not in held:
                held[named] = _try_open(str(self.places.resolve(path, workdir)), len(held))
            found = held[named]
        if isinstance(found, ToolError):
            raise found
        return found

    def opened(self, path: str, act: "CallScope") -> OpenedPath:
        """What was judged when the call was approved; opened now if it was not judged. Close it. Raises `ToolError`."""
        named = self.places.join(path, act.workdir)
        with self._lock:
            found = self._held.get((act.session, act.call_id), {}).get(named)
            if isinstance(found, ToolError):
                raise found
            if found is not None:
                return found.copy()
        return open_path(str(self.places.resolve(path, act.workdir)))

    def release(self, session: str, call_id: str = "") -> None:
        """Close what a call keeps open, or all calls of a conversation."""
        with self._lock:
            ended = [key for key in self._held if key[0] == session and call_id in ("", key[1])]
            for key in ended:
                for opened in self._held.pop(key).values():
                    if isinstance(opened, OpenedPath):
                        opened.close()

    def grant(self, session: str, action: str, path: str) -> None:
        """A person allowed the conversation to use a path outside of the project."""
        self._grants.setdefault(session, {})[action, path] = None

    def set_grants(self, session: str, grants: Iterable[tuple[str, str]]) -> None:
        """What a conversation may use outside of the project, and nothing else."""
        self._grants[session] = dict.fromkeys(grants)

    def granted(self, scope: CommandScope) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The paths outside of the project that a conversation may read, and those that it may write."""
        known = self._grants.get(scope.session, {})
        read, write = (tuple(path for action, path in known if action == each) for each in ("read", "write"))
        return read, write

    def may_use(self, real: str, scope: CommandScope, *, write: bool) -> bool:
        """True if a file tool may read or write this path without asking, as far as its place decides."""
        places, (read, written) = self.places, self.granted(scope)
        own = (*places.own_folders, os.path.realpath(places.alipes_home))  # judged by name
        near = (os.path.realpath(scope.workdir or os.getcwd()), *places.scratch, *own, *written)
        if _is_in_any(real, near):
            return True
        if self._make_policy is None:
            return not write
        policy, contained = self._make_policy(scope)
        if _is_in_any(real, (policy.workdir, *policy.writable, policy.scratch)):
            return True
        shown = (source for target, source in policy.files if source == target)
        seen = (*policy.readable, *shown, *read, *READABLE)
        return not write and (not contained or _is_in_any(real, seen) or _is_fact_of_kernel(real))

    def is_made_by_commands(self, real: str, scope: CommandScope) -> bool:
        """True for a path in the home that the commands of this conversation have for themselves."""
        if self._make_policy is None:
            return False
        policy, contained = self._make_policy(scope)
        return contained and bool(policy.private_home) and is_inside(real, os.path.realpath(policy.private_home))

    def refuse_secrets(self, opened: OpenedPath, verb: str) -> None:
        """Raises `ToolError` for what no tool may show or change."""
        linked = opened.facts is not None and self.places.is_linked_env_file(opened.facts)
        if linked or self.places.secrecy(opened.real) == "ours":
            raise ToolError(f"{opened.real} holds secrets or internal state of alipes and {verb}")

    def is_withheld(self, opened: OpenedPath) -> bool:
        """True if this file must never be sent to anybody."""
        linked = opened.facts is not None and self.places.is_linked_env_file(opened.facts)
        return linked or bool(self.places.secrecy(opened.real))


class CallScope(Protocol):
    """What identifies a call: a tool context is one."""

    @property
    def call_id(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def workdir(self) -> str: ...


class UnjudgedCall(Struct, frozen=True):
    """For paths that a person names, or that are only looked at."""

    workdir: str
    session: str = ""
    call_id: str = ""


def open_path(path: str) -> OpenedPath:
    """Raises `ToolError` if it cannot be opened for another reason than that it does not exist."""
    try:
        return OpenedPath(path)
    except FileNotFoundError:
        raise ToolError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise ToolError(f"{path} cannot be opened: {reason}") from error


def _try_open(path: str, others: int) -> OpenedPath | ToolError:
    if others >= MAX_HELD:
        return ToolError(f"one call cannot use more than {MAX_HELD} files; make several calls")
    try:
        return open_path(path)
    except ToolError as error:
        return error


def as_path(handle: int) -> str:
    """A path by which a child that inherits this descriptor, or is just being started, finds what is open."""
    return f"/proc/self/fd/{handle}" if sys.platform.startswith("linux") else f"/dev/fd/{handle}"


@contextmanager
def reading(opened: OpenedPath) -> Iterator[BinaryIO]:
    """The opened file, for reading. Raises OSError."""
    with open(opened.open(), "rb") as file:
        yield file


def suggest_name(opened: OpenedPath) -> str:
    """A question with similar names in the folder of a missing file; empty if there are none."""
    try:
        return did_you_mean(opened.path.name, opened.list_names())
    except OSError:
        return ""
