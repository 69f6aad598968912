"""Runs git for the checkpoint store, isolated from the user's repository, settings, hooks and filters."""

import fcntl
import os
import shutil
from asyncio import sleep
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

from alipes.kernel.errors import AlipesError
from alipes.runtime.processes.child import open_child
from alipes.runtime.processes.process_tree import OrphanGuard

GIT_MISSING = "git is not installed"
LOCK_PAUSE_S = 0.02
_STREAMS = 'in=$1 errors=$2; shift 2; exec "$@" <"$in" 2>"$errors"'
_CONFIG = """\
[core]
	repositoryformatversion = 0
	bare = false
	filemode = true
	symlinks = true
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = /dev/null
	fsmonitor = false
	untrackedCache = false
	autocrlf = false
	safecrlf = false
	quotePath = false
	logAllRefUpdates = false
	compression = 1
	fsync = none
[user]
	name = alipes
	email = alipes@localhost
[gc]
	auto = 0
[maintenance]
	auto = false
[index]
	version = 4
[diff]
	external =
	renames = true
"""
_ATTRIBUTES = "* -text -ident !filter !eol !working-tree-encoding !diff !merge !whitespace\n"
"""Attributes of the project would run filters or change line endings; these take precedence over all of them."""


class CheckpointError(AlipesError):
    """Why there is no checkpoint, or why it was not restored."""


class GitFailed(CheckpointError):
    """git failed; the message is its own."""


def find_git() -> str:
    """The path of git; empty if it is not installed."""
    return shutil.which("git") or ""


class ShadowGit:
    """A git directory of ours with the files of a folder of the user. One process at a time holds its lock."""

    def __init__(self, store: Path, work_tree: str, *, program: str, guard: OrphanGuard | None = None) -> None:
        """`store`: its directory in the home. `work_tree`: where paths are relative to."""
        self.store, self.directory, self.work_tree = store, store / "git", work_tree
        self._program, self._guard, self._lock = program, guard, -1
        self._numbers = count()

    @property
    def is_held(self) -> bool:
        return self._lock >= 0

    @asynccontextmanager
    async def hold(self, *, wait: bool = True) -> AsyncIterator[bool]:
        """Hold the lock, also against other processes. Without `wait`, false if another one holds it.

        Commands inherit it, so that it is free only when the last one of a killed process has ended.
        """
        while (lock := _take_lock(self.store)) < 0:
            if not wait:
                yield False
                return
            await sleep(LOCK_PAUSE_S)
        self._lock = lock
        try:
            for stale in _list_stale(self.directory):
                stale.unlink(missing_ok=True)
            yield True
        finally:
            self._lock = -1
            os.close(lock)

    def create(self) -> None:
        """Create the git directory unless it exists; call it inside `hold`. It appears as a whole."""
        if self.directory.exists():
            return
        new = self.store / "new"
        shutil.rmtree(new, ignore_errors=True)
        for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
            (new / folder).mkdir(parents=True)
        (new / "info" / "attributes").write_text(_ATTRIBUTES)
        (new / "config").write_text(_CONFIG)
        (new / "HEAD").write_text("ref: refs/heads/main\n")
        new.rename(self.directory)

    def remove(self) -> None:
        """Remove the git directory as a whole, with all checkpoints."""
        old = self.store / "old"
        shutil.rmtree(old, ignore_errors=True)
        with suppress(FileNotFoundError):
            self.directory.rename(old)
        shutil.rmtree(old, ignore_errors=True)

    async def run(self, *arguments: str, data: bytes = b"", allowed: int = 0) -> bytes:
        """The output of a git command whose input is `data`. Raises `GitFailed` for a status above `allowed`."""
        scratch = self.store / "scratch"
        scratch.mkdir(exist_ok=True, mode=0o700)
        number = f"{os.getpid()}-{next(self._numbers)}"
        given, errors = scratch / f"in-{number}", scratch / f"err-{number}"
        try:
            if data:
                given.write_bytes(data)
            streams = (str(given) if data else os.devnull, str(errors))
            argv = ("/bin/sh", "-c", _STREAMS, "sh", *streams, self._program, *arguments)
            held = (self._lock,) if self._lock >= 0 else ()
            output = bytearray()
            async with open_child(
                argv, cwd=self._cwd(), env=self._environment(), keeper=self._guard, fds=held
            ) as child:
                while piece := await child.read():
                    output += piece
                status = await child.wait()
            if not 0 <= status <= allowed:
                said = errors.read_text(errors="replace").strip() if errors.exists() else ""
                why = said.splitlines()[-1] if said else f"it ended with status {status}"
                raise GitFailed(f"git {arguments[0]}: {why}")
            return bytes(output)
        except OSError as error:
            raise GitFailed(f"git {arguments[0]} cannot be run: {error.strerror or error}") from error
        finally:
            given.unlink(missing_ok=True)
            errors.unlink(missing_ok=True)

    def _cwd(self) -> str:
        return self.work_tree if os.path.isdir(self.work_tree) else str(self.store)

    def _environment(self) -> dict[str, str]:
        """The whole environment: nothing of the user's git settings, and no variable that names a repository."""
        return {
            "PATH": f"{os.path.dirname(self._program)}:{os.defpath}",
            "HOME": str(self.store),
            "LC_ALL": "C",
            "GIT_DIR": str(self.directory),
            "GIT_WORK_TREE": self._cwd(),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_PAGER": "cat",
            "GIT_ALLOW_PROTOCOL": "",
        }


def _take_lock(store: Path) -> int:
    """An open and locked file; -1 if another process holds the lock, or has just removed the store."""
    store.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(store / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            return -1
        raise
    if _is_same_file(store / "lock", lock):
        return lock
    os.close(lock)
    return -1


def _is_same_file(path: Path, handle: int) -> bool:
    """False if the store was removed while we waited for its lock."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def _list_stale(directory: Path) -> Iterator[Path]:
    """Lock files and temporary files of commands that were killed. Nobody else works here while we hold the lock."""
    with suppress(FileNotFoundError):
        yield from directory.glob("*.lock")
        yield from (directory / "refs").rglob("*.lock")
        yield from (directory / "objects" / "pack").glob("*tmp_*")
        yield from (directory.parent / "scratch").iterdir()
