"""Keeps sandboxed commands from changing which programs git runs outside of the sandbox.

The hooks of a project are read-only in the sandbox. The configuration of a repository cannot be: `git push -u` and
`git remote add` change it, and a command may make new repositories anywhere in the project, which git uses when a
person enters them, or when they are submodules. So all repositories are compared after each command, and every few
seconds while it runs: settings that name new programs are taken back, and new hooks lose their right to be run.
"""

import asyncio
import errno
import logging
import math
import os
import re
import secrets
import stat
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from msgspec import Struct

from alipes.kernel.lazy import lazy_pattern
from alipes.runtime.processes.child import open_child
from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.sandbox.repositories import CLOCK_STEP_NS, FolderCache, FoundRepositories, find_repositories
from alipes.runtime.tasks import unwrap_error_group

log = logging.getLogger(__name__)
MAX_BYTES = 1_000_000
UNREADABLE, LINK = b"\0", b"\0->"
FIRST_LOOK_S, LONGEST_LOOK_S = 1.0, 5.0
"""How often the repositories are compared while a command runs: first, and at most."""
GIT_S = 10.0
"""How long git may take to list settings or an index."""
ATTEMPTS = 5
"""How often the repositories are looked at again if something else is in their place for a moment."""
FRESH_S = 2.0
"""For how long a comparison also counts as the state before the next command."""
HOME_ALIASES = ("config", "--global", "--includes", "--null", "--name-only", "--get-regexp", r"^alias\.")
FILES = ("config", "config.worktree", "info/attributes")
RUNS_PROGRAMS = lazy_pattern(
    r"alias\..*\n!|include(?:if\..*)?\.path$|protocol\.|(?:remote\..*\.)(?:uploadpack|receivepack|vcs|proxy)$"
    r"|submodule\..*\.update\n!|.*\.(?:helper|clean|smudge|process|driver|cmd|textconv|external|program|tool|path|browser"
    r"|editor|pager|askpass|hookspath|fsmonitor|gitproxy|attributesfile|templatedir|worktree|tunnel|httpd|smtpserver"
    r"|difffilter|[\w-]*command|\w*hook|authorsprog)$|(?:pager|sendemail\..*cmd)|.*\next::",
    re.IGNORECASE,
)
"""Settings, as `key` newline `value`, that make git run a program or read other settings."""
REDIRECTS = re.compile(
    r"url\.|credential\.|http\.(?!(?:.*\.)?(?:postbuffer|version|lowspeed\w*|maxrequests|minsessions)$)"
    r"|(?:remote\..*\.(?:pushurl|lfs(?:push)?url)|remote\.pushdefault|branch\..*\.pushremote|lfs\.(?:push)?url)$",
    re.IGNORECASE,
)
"""Names of settings that lead git to another server, or change how it connects and what it tells."""


class _KnownDirectory(Struct):
    """A git directory as it was before the command."""

    identity: tuple[int, int]
    files: dict[str, bytes | None]
    hooks: set[tuple[str, int, int]]
    """Name, inode and time of change of what is in `hooks`."""
    changed_ns: int
    """When it or its configuration last changed."""


class _Submodules:
    """Folders that the index of a repository names as repositories. Read again only if the index changed."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[str, ...]] = {}
        self._indexes: dict[str, tuple[tuple[int, int, int], ...]] = {}

    def below(self, root: str) -> tuple[str, ...]:
        return tuple(folder for folders in self._folders.values() for folder in folders if is_inside(folder, root))

    async def read(self, places: Iterable[str], path: str) -> bool:
        """Read the index of these git directories. True if there are other submodules than before."""
        before = dict(self._folders)
        for place in places:
            index = _find_index(place)
            if self._indexes.get(place, ()) == index:
                continue
            self._indexes[place] = index
            listed = None
            if not any(_is_special(os.path.join(place, name)) for name in ("HEAD", "commondir", "index")):
                listed = await _run_git(("--git-dir", place, "ls-files", "--stage", "-z"), path)
            entries = (each.split("\t", 1) for each in (listed or "").split("\0") if each.startswith("160000 "))
            top = os.path.dirname(place)
            self._folders[place] = tuple(os.path.join(top, each[1]) for each in entries if len(each) == 2)
        return any(self._folders[place] != before.get(place, ()) for place in self._folders)


class _Repositories:
    """All repositories below some folders, and what changes in them."""

    def __init__(
        self, roots: Sequence[str], path: str, submodules: _Submodules, folders: FolderCache, home: str
    ) -> None:
        """`path`: where git is found. `home`: of the person, who may have aliases."""
        self._home = home
        self.elsewhere = set[str]()
        """What commands may change besides."""
        self._outward: dict[str, bytes | None] = {}
        """Files and links that led git out of the roots before, and what they named."""
        self._folders = folders
        self._roots, self._path, self._submodules = tuple(dict.fromkeys(roots)), path, submodules
        self._known: dict[str, _KnownDirectory] = {}
        self._is_complete, self._began_ns = True, 0
        self._lock = asyncio.Lock()
        self.users = 0
        """Commands that run, and are compared with this state."""
        self.has_moved = False
        """True if a repository could not be compared, because a command puts something else in its place."""

    async def learn(self) -> None:
        """Note the repositories as they are."""
        places = await asyncio.to_thread(self._learn)
        if await self._submodules.read(places, self._path):
            await asyncio.to_thread(self._learn)

    async def compare(self) -> list[str]:
        """Take back what makes git run other programs. Returns a sentence for each change."""
        notes = list[str]()
        async with self._lock:
            for _ in range(ATTEMPTS):
                self.has_moved = True
                with suppress(OSError):
                    self.has_moved = await self._compare_all(notes)
                if not self.has_moved:
                    break
        return notes

    async def _compare_all(self, notes: list[str]) -> bool:
        """Adds to `notes`. True if something could not be compared, because it was exchanged meanwhile."""
        found = await asyncio.to_thread(self._find)
        notes += self._take_back_outward(found)
        has_moved = await self._compare(found.directories, notes)
        if await self._submodules.read(found.directories, self._path):  # their settings were checked before
            found = await asyncio.to_thread(self._find)
            notes += self._take_back_outward(found)
            has_moved |= await self._compare(found.directories, notes)
        return has_moved

    def _find(self) -> FoundRepositories:
        submodules = (folder for root in self._roots for folder in self._submodules.below(root))
        found = find_repositories(self._roots, submodules, self._folders, tuple(self.elsewhere))
        self._is_complete &= found.is_complete
        return found

    def _take_back_outward(self, found: FoundRepositories) -> Iterator[str]:
        """Remove files and links that lead git out of the project, unless they did so before the command."""
        for path, (root, target) in found.outward.items():
            folder, name = os.path.split(path)
            with suppress(OSError), _open_below(root, folder) as directory:
                before, now = self._outward.get(path), _read_link(directory, name)
                if now != before:
                    _replace(directory, name, None if before is None or before.startswith(LINK) else before)
                    yield f"{path} was removed: it led git to {target}, outside of the project"

    def _learn(self) -> dict[str, str]:
        self._is_complete, self._began_ns = True, time.time_ns() - CLOCK_STEP_NS
        found = self._find()
        places = found.directories
        for path, (root, _) in found.outward.items():
            with suppress(OSError), _open_below(root, os.path.dirname(path)) as directory:
                self._outward[path] = _read_link(directory, os.path.basename(path))
        for place, root in places.items():
            with suppress(OSError), _open_below(root, place) as directory:
                self._known[place] = _describe(directory)
        return places

    async def _compare(self, places: Mapping[str, str], notes: list[str]) -> bool:
        has_moved = False
        for place, root in places.items():
            try:
                with _open_below(root, place) as directory:
                    now, before = _describe(directory), self._known.get(place)
                    if before is not None and before.identity != now.identity:
                        before = None
                    if before is None and not self._is_complete and now.changed_ns < self._began_ns:
                        self._known[place] = now  # it was there before, beyond what is looked at
                        continue
                    changed = [note async for note in self._compare_files(directory, place, before, now)]
                    changed += _disable_hooks(directory, place, now.hooks - (before.hooks if before else set()))
                    self._known[place] = _describe(directory) if changed else now
                    notes += changed
            except OSError as error:
                has_moved |= error.errno in (errno.ENOTDIR, errno.ELOOP)
                log.warning("cannot check the git settings in %s: %s", place, error)
        return has_moved

    async def _compare_files(
        self, directory: int, place: str, before: _KnownDirectory | None, now: _KnownDirectory
    ) -> AsyncIterator[str]:
        for name, text in now.files.items():
            old = before.files[name] if before else None
            is_attributes = name.endswith("attributes")  # attributes choose filters and drivers
            if text is None or text == old or (before is None and is_attributes):
                continue
            settings = None if text == UNREADABLE or is_attributes else await _list_settings(text, self._path)
            allowed = await _list_settings(old, self._path) if old else []
            new = [each for each in settings or () if each not in (allowed or ())]
            aliases = await self._list_aliases() if any(each.startswith("alias.") for each in new) else frozenset()
            added = [each for each in new if _is_risky(each) or each.partition("\n")[0] in aliases]
            if settings is not None and not added:
                continue
            kept = [each for each in settings or () if each not in added]
            _replace(directory, name, old if before else (_format_settings(kept) if kept else None))
            yield f"{place}/{name} was restored: the command changed which programs git runs, or where it connects to"

    async def _list_aliases(self) -> frozenset[str]:
        """Names of the person's aliases, which those of a repository would replace."""
        listed = await _run_git(HOME_ALIASES, self._path, home=self._home)
        return frozenset((listed or "").split("\0"))


class GitGuard:
    """Guards the repositories that the commands of one backend can change."""

    def __init__(self, home: str = "") -> None:
        """`home`: of the person, by default that of this user."""
        self._home = home or os.path.expanduser("~")
        self._submodules, self._folders = _Submodules(), FolderCache()
        self._latest: dict[tuple[str, ...], tuple[float, _Repositories]] = {}
        """By roots: until when the repositories, as they were last compared, count as the state before a command."""
        self._running: dict[tuple[str, ...], _Repositories] = {}
        """By roots, what the commands that run are compared with: the first of them found it. What one of them changed
        is nothing that the next one found."""

    @asynccontextmanager
    async def open(self, roots: Sequence[str], path: str, elsewhere: Sequence[str] = ()) -> AsyncIterator[list[str]]:
        """Take back what a command changes in the repositories below `roots` so that git would run other programs.

        Yields the list of what was taken back, filled while it runs and at the end. `path`: where git is found.
        `elsewhere`: what the command may change besides.
        """
        restored, roots = list[str](), tuple(roots)
        repositories = await self._learn(roots, path)
        repositories.elsewhere.update(filter(None, elsewhere))
        repositories.users += 1
        self._running[roots] = repositories
        with unwrap_error_group():
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(_watch(repositories, restored))
                try:
                    yield restored
                finally:
                    watch.cancel()
                    await self._leave(roots, repositories, restored)

    async def _leave(self, roots: tuple[str, ...], repositories: _Repositories, restored: list[str]) -> None:
        try:
            restored += await repositories.compare()
        finally:
            repositories.users -= 1
            if not repositories.users:
                del self._running[roots]
                until = math.inf if repositories.has_moved else time.monotonic() + FRESH_S
                self._latest[roots] = until, repositories

    async def _learn(self, roots: tuple[str, ...], path: str) -> _Repositories:
        """The repositories as they are now; as the commands that run found them, or as they were compared after the
        last command if that was just now."""
        if (running := self._running.get(roots)) is not None:
            return running
        until, latest = self._latest.pop(roots, (0.0, None))
        if latest is not None and time.monotonic() < until:
            return latest
        repositories = _Repositories(roots, path, self._submodules, self._folders, self._home)
        await repositories.learn()
        return self._running.get(roots, repositories)


async def _watch(repositories: _Repositories, restored: list[str]) -> None:
    pause = FIRST_LOOK_S
    while True:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_LOOK_S)
        restored += await repositories.compare()


@contextmanager
def _open_below(root: str, place: str) -> Iterator[int]:
    """A descriptor of a directory below `root`, opened without following links that a command may have made."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in place[len(root) :].split("/"):
            if name:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
                os.close(handle)
                handle = inner
        yield handle
    finally:
        os.close(handle)


def _describe(directory: int) -> _KnownDirectory:
    facts = os.fstat(directory)
    files = {name: _read(directory, name) for name in FILES}
    changed_ns = facts.st_ctime_ns
    for name in FILES:
        with suppress(OSError):
            changed_ns = max(changed_ns, os.stat(name, dir_fd=directory, follow_symlinks=False).st_ctime_ns)
    return _KnownDirectory((facts.st_dev, facts.st_ino), files, set(_list_hooks(directory)), changed_ns)


def _read(directory: int, name: str) -> bytes | None:
    """Content of a file; None if it does not exist, `UNREADABLE` if it is no ordinary file."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return UNREADABLE
    try:
        found = os.fstat(handle)
        is_regular = stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_size <= MAX_BYTES
        return os.read(handle, MAX_BYTES) if is_regular else UNREADABLE
    finally:
        os.close(handle)


def _replace(directory: int, name: str, text: bytes | None) -> None:
    """Write a file as it should be; without text it is removed. A folder in its place is left under another name."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            unused = f"{name}.{secrets.token_hex(4)}.alipes"
            os.rename(name, unused, src_dir_fd=directory, dst_dir_fd=directory)
    if text is None or text == UNREADABLE:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        return
    new = f"{name}.alipes"
    with suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=directory)
    with open(handle, "wb") as file:
        file.write(text)
    os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)


def _list_hooks(directory: int) -> Iterator[tuple[str, int, int]]:
    """What git may run as a hook. `hooks` itself is in the list if it is a link."""
    try:
        facts = os.stat("hooks", dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(facts.st_mode):
            yield "", facts.st_ino, facts.st_ctime_ns
            return
        folder = os.open("hooks", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return
    try:
        for name in os.listdir(folder):
            with suppress(OSError):
                facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
                is_run = stat.S_ISLNK(facts.st_mode) or facts.st_mode & 0o111
                if is_run and not name.endswith(".sample"):
                    yield name, facts.st_ino, facts.st_ctime_ns
    finally:
        os.close(folder)


def _disable_hooks(directory: int, place: str, hooks: set[tuple[str, int, int]]) -> Iterator[str]:
    """Take the right to be run from hooks; links are removed."""
    for name, _, _ in sorted(hooks):
        path = f"hooks/{name}" if name else "hooks"
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=directory)
        except OSError:
            with suppress(OSError):
                os.unlink(path, dir_fd=directory)
        else:
            try:
                os.fchmod(handle, stat.S_IMODE(os.fstat(handle).st_mode) & ~0o111)
            finally:
                os.close(handle)
        yield f"{place}/{path} was switched off: the command changed which programs git runs"


def _read_link(directory: int, name: str) -> bytes | None:
    """What a file or link in a directory names."""
    try:
        return LINK + os.fsencode(os.readlink(name, dir_fd=directory))
    except OSError:
        return _read(directory, name)


def _find_index(place: str) -> tuple[tuple[int, int, int], ...]:
    """The index of a git directory and its parts: inode, size, and the time of change, which no program can set."""
    found = list[tuple[int, int, int]]()
    with suppress(OSError, ValueError):
        for name in sorted(os.listdir(place)):
            if name == "index" or name.startswith("sharedindex."):
                facts = os.stat(os.path.join(place, name))
                found.append((facts.st_ino, facts.st_size, facts.st_ctime_ns))
    return tuple(found)


def _is_special(path: str) -> bool:
    """True for what exists and is no ordinary file: git would wait for a pipe."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _is_risky(setting: str) -> bool:
    name = setting.partition("\n")[0]
    return bool(RUNS_PROGRAMS.match(setting) or RUNS_PROGRAMS.match(name) or REDIRECTS.match(name))


async def _list_settings(text: bytes | None, path: str) -> list[str] | None:
    """The settings, as `key` newline `value`; None if git cannot read the text."""
    if text is None or text == UNREADABLE:
        return []
    listed = await _run_git(("config", "--file", "-", "--no-includes", "--null", "--list"), path, text)
    return None if listed is None else [each for each in listed.split("\0") if each]


async def _run_git(words: Sequence[str], path: str, text: bytes = b"", *, home: str = "") -> str | None:
    """The output of a git command that runs no other program; None if it fails or takes too long.

    `home`: whose settings are read.
    """
    argv = ("git", "-c", "core.fsmonitor=false", *words)
    env = {"PATH": path, "GIT_CONFIG_NOSYSTEM": "1", "GIT_OPTIONAL_LOCKS": "0"}
    env |= {"HOME": home} if home else {"GIT_CONFIG_GLOBAL": "/dev/null"}
    listed = b""
    try:
        async with asyncio.timeout(GIT_S), open_child(argv, cwd="/", env=env, link="pipes") as child:
            await child.input.write(text, 5.0)
            await child.input.finish()
            while piece := await child.read():
                listed += piece
            await child.wait()
    except OSError:
        return None
    return None if child.returncode else listed.decode(errors="surrogateescape")


def _format_settings(settings: Sequence[str]) -> bytes:
    """Settings as the text of a configuration file."""
    lines = list[str]()
    for setting in settings:
        key, sign, value = setting.partition("\n")
        section, _, rest = key.partition(".")
        inner, _, name = rest.rpartition(".")
        quoted = inner.replace("\\", "\\\\").replace('"', '\\"')
        written = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        lines.append(f'[{section} "{quoted}"]' if inner else f"[{section}]")
        lines.append(f'\t{name} = "{written}"' if sign else f"\t{name}")
    return "\n".join([*lines, ""]).encode(errors="surrogateescape")
