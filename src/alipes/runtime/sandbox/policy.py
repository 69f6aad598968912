"""What one sandboxed command may see, change and use. `tools/sandbox.py` makes policies from the settings."""

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

CACHES = ".cache/alipes"
"""Where commands see `SandboxPolicy.caches`, in their home."""
_MAX_ATTEMPTS = 20
"""How often a path is resolved whose folders are exchanged with links meanwhile."""


class SandboxLimits(Struct, frozen=True):
    """Resource limits of one command and its children. 0: no limit."""

    memory_bytes: int = 0
    processes: int = 0
    file_bytes: int = 0
    cpu_seconds: int = 0


class SandboxPolicy(Struct, frozen=True):
    """The view of one command. All paths are absolute, without links, and exist on this machine."""

    workdir: str
    """The project directory."""
    home: str
    """The user's home; commands see `private_home` at this path."""
    private_home: str
    """A directory for settings of programs in the sandbox, one per project and conversation. Empty: the project
    contains the home, so commands see the home itself, read-only."""
    scratch: str
    """A directory on this machine that commands see as /tmp, one per project and conversation."""
    empty: str
    """An empty file on this machine, shown instead of hidden ones."""
    caches: str = ""
    """A directory with what package managers downloaded, one per project and caller; commands see it as `CACHES` in
    their home. Empty without a private home."""
    writable: tuple[str, ...] = ()
    """The project, unless it contains the home, and other paths."""
    readable: tuple[str, ...] = ()
    """Paths below hidden ones that are visible, read-only: toolchains in the home, listed paths."""
    protected: tuple[str, ...] = ()
    """Paths below writable ones that are read-only: git hooks, CI files."""
    inner: tuple[str, ...] = ()
    """The writable paths in the home of alipes, which are shown also where that is hidden: the folder of an agent."""
    hidden: tuple[str, ...] = ()
    """Paths that are empty for commands: the alipes home, secrets, sockets."""
    sockets: tuple[str, ...] = ()
    """Sockets of programs of this machine, which are empty files for commands, where those have mounts of their own."""
    tracked: tuple[tuple[str, str], ...] = ()
    """Hidden files that are shown as git tracks them: path, and where that version is."""
    files: tuple[tuple[str, str], ...] = ()
    """Other files to show read-only: path as commands see it, and where it is."""
    refused_git: str = ""
    """A `.git` that commands cannot use; `files` shows something else in its place."""
    refusal: str = ""
    """Why, as the rest of a sentence."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables to set, in addition to those of the command."""
    limits: SandboxLimits = SandboxLimits()
    network: Literal["ask", "none", "open"] = "ask"
    user_namespaces: bool = False
    """Whether commands may create user namespaces, which browsers need."""


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def real_path(path: str | Path) -> str:
    """Without links, as `os.path.realpath`, which fails if a folder takes the place of a link meanwhile."""
    for _ in range(_MAX_ATTEMPTS):
        with suppress(OSError):
            return os.path.realpath(path)
    return os.path.realpath(path)


def real_directory(path: str) -> str:
    """Without links, which may not exist in the sandbox; unchanged if it is no directory here."""
    return real_path(path) if os.path.isdir(path) else path


def make_private_directory(*names: str) -> str:
    """A directory of this user only, under the system's directory for temporary files that survive a restart.

    Raises OSError if another user made it.
    """
    folder = os.path.join("/var/tmp" if os.path.isdir("/var/tmp") else tempfile.gettempdir(), f"alipes-{os.getuid()}")
    for path in (folder, *(os.path.join(folder, *names[: at + 1]) for at in range(len(names)))):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise PermissionError(f"{path} belongs to another user or is open to others; remove it") from None
        folder = path
    return folder


def short_hash(text: str) -> str:
    """A name for a directory that belongs to `text`."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def list_folders_around(policy: SandboxPolicy) -> Iterator[str]:
    """Folders between writable and protected or hidden paths: mount points cannot be renamed and made again."""
    found = {
        folder
        for path in (*policy.protected, *policy.hidden, *policy.sockets)
        for folder in map(str, Path(path).parents)
        if folder not in policy.writable and any(is_inside(folder, root) for root in policy.writable)
    }
    yield from sorted(found)
