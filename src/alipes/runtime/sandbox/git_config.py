"""Keeps sandboxed commands from changing which programs git runs outside of the sandbox.

Hooks are read-only in the sandbox. The configuration of a repository cannot be: `git push -u` and `git remote add`
change it. So it is compared after each command, and restored if it names new programs.
"""

import os
import re
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager

from alipes.runtime.processes.child import open_child

MAX_BYTES = 1_000_000
UNREADABLE = b"\0"
RUNS_PROGRAMS = re.compile(
    r"alias\..*\n!|include(?:if\..*)?\.path$|protocol\.ext\.|(?:remote\..*\.)(?:uploadpack|receivepack|vcs|proxy)$"
    r"|submodule\..*\.update\n!|.*\.(?:helper|clean|smudge|process|driver|cmd|textconv|command|external|program|tool|path"
    r"|editor|pager|askpass|browser|hookspath|fsmonitor|sshcommand|gitproxy|attributesfile|templatedir|worktree)$"
    r"|(?:pager|core\.alternaterefscommand|uploadpack\.packobjectshook|sendemail\..*cmd)|url\.ext::|.*\next::",
    re.IGNORECASE,
)
"""Settings, as `key` newline `value`, that make git run a program or read other settings."""


@asynccontextmanager
async def guard_git_config(folders: Sequence[str], path: str) -> AsyncIterator[list[str]]:
    """Restore the configuration in these git directories if a command adds programs to it.

    Yields the list of what was restored, filled at the end. `path`: where git is found.
    """
    restored = list[str]()
    with ExitStack() as stack:
        files = [file for folder in folders for file in _open_files(stack, folder)]
        try:
            yield restored
        finally:
            for file in files:
                now = file.read()
                if now != file.before and not await _is_harmless(file, now, path):
                    file.restore()
                    restored.append(f"{file.path} was restored: the command changed which programs git runs")


class _GuardedFile:
    """A file in a directory that stays the same one even if it is renamed or replaced by a link."""

    def __init__(self, directory: int, folder: str, name: str) -> None:
        self.path, self._directory, self._name = os.path.join(folder, name), directory, name
        self.before = self.read()

    def read(self) -> bytes | None:
        """Its content; None if it does not exist, `UNREADABLE` if it is no ordinary file."""
        try:
            handle = os.open(self._name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=self._directory)
        except FileNotFoundError:
            return None
        except OSError:
            return UNREADABLE
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            regular = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= MAX_BYTES
            return file.read() if regular else UNREADABLE

    def restore(self) -> None:
        if self.before is None or self.before == UNREADABLE:
            os.unlink(self._name, dir_fd=self._directory)
            return
        new = f"{self._name}.alipes"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644, dir_fd=self._directory)
        with open(handle, "wb") as file:
            file.write(self.before)
        os.replace(new, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)


def _open_files(stack: ExitStack, folder: str) -> Iterator[_GuardedFile]:
    for place, names in ((folder, ("config", "config.worktree")), (os.path.join(folder, "info"), ("attributes",))):
        try:
            directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        stack.callback(os.close, directory)
        yield from (_GuardedFile(directory, place, name) for name in names)


async def _is_harmless(file: _GuardedFile, now: bytes | None, path: str) -> bool:
    if now is None:
        return True
    if now == UNREADABLE or file.path.endswith("attributes"):  # attributes choose filters and drivers
        return False
    old, new = await _settings_that_run(file.before, path), await _settings_that_run(now, path)
    return old is not None and new is not None and new <= old


async def _settings_that_run(text: bytes | None, path: str) -> set[str] | None:
    """The settings that run programs; None if git cannot read the text."""
    if text is None:
        return set()
    argv = ("git", "config", "--file", "-", "--no-includes", "--null", "--list")
    env = {"PATH": path, "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        async with open_child(argv, cwd="/", env=env, link="pipes") as child:
            await child.input.write(text, 5.0)
            await child.input.finish()
            listed = b""
            while piece := await child.read():
                listed += piece
            await child.wait()
    except OSError:
        return None
    if child.returncode:
        return None
    found = listed.decode(errors="replace").split("\0")
    return {each for each in found if RUNS_PROGRAMS.match(each) or RUNS_PROGRAMS.match(each.partition("\n")[0])}
