"""Opens paths below a folder without following links out of it, and changes files by their opened folder.

A name may lead elsewhere a moment later; a descriptor does not. Code that decides about a path opens it here, looks at
the descriptor and acts at the same descriptor.
"""

import ctypes
import errno
import fcntl
import os
import secrets
import stat
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""Flags for a folder that is only passed through."""
NAMED = os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
"""Flags for a file that is only looked at; reading needs `open_again`."""
MAX_LINKS = 40
_MAX_ATTEMPTS = 64
"""Attempts to open a path whose folders are renamed meanwhile, before it is walked."""
_LINK_ERRORS = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
_OPENAT2 = 437
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_GET_PATH = 50
"""fcntl of macOS: the path of an opened file."""


def open_beneath(root: int, path: str, flags: int, mode: int = 0o666, *, links: bool = True) -> int:
    """Open `path`, relative to the opened folder `root`; returns the descriptor.

    Links are followed as long as they stay below `root`, and none if `links` is False. Raises OSError: EXDEV if the
    path leads out, ELOOP for a link that is not followed.
    """
    if not _has_openat2():
        return walk_beneath(root, path, flags, mode, links=links)
    resolve = _BENEATH | _NO_MAGIC_LINKS | (0 if links else _NO_LINKS)
    for _ in range(_MAX_ATTEMPTS):
        try:
            return _openat2(root, path, flags | os.O_CLOEXEC, mode, resolve)
        except (BlockingIOError, InterruptedError):  # a folder was renamed meanwhile
            continue
    return walk_beneath(root, path, flags, mode, links=links)


def walk_beneath(root: int, path: str, flags: int, mode: int = 0o666, *, links: bool = True) -> int:
    """`open_beneath` for systems without openat2: folder by folder, each by the descriptor of the one before."""
    if not path or path.startswith("/"):
        raise _error(errno.EXDEV if path else errno.ENOENT, path)
    flags |= os.O_DIRECTORY if path.endswith("/") else 0
    waiting, folders, followed = _split(path), [os.dup(root)], 0
    try:
        while waiting:
            name = waiting.pop()
            if name == "..":
                if len(folders) == 1:
                    raise _error(errno.EXDEV, path)
                os.close(folders.pop())
                continue
            try:
                handle = _open_here(folders[-1], name, FOLDER if waiting else flags, mode)
            except OSError as error:
                followed += 1
                target = _read_link(folders[-1], name, error, flags=0 if waiting else flags)
                if not links or followed > MAX_LINKS or target.startswith("/"):
                    raise _error(errno.EXDEV if links and target.startswith("/") else errno.ELOOP, path) from None
                flags |= os.O_DIRECTORY if not waiting and target.endswith("/") else 0
                waiting += _split(target)
                continue
            if not waiting:
                return handle
            folders.append(handle)
        return os.open(".", flags | os.O_CLOEXEC, dir_fd=folders[-1])
    finally:
        for folder in folders:
            os.close(folder)


def open_named(path: str, flags: int = NAMED, *, folder: int | None = None) -> int:
    """Open whatever `path` leads to, through links but not through those of /proc; judge what was opened."""
    if not _has_openat2():
        return os.open(path, flags | os.O_CLOEXEC, dir_fd=folder)
    while True:
        try:
            return _openat2(_AT_FDCWD if folder is None else folder, path, flags | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS)
        except InterruptedError:
            continue


def open_again(handle: int, flags: int) -> int:
    """Open the same file or folder with other flags. Raises OSError."""
    if sys.platform == "darwin":
        return os.dup(handle)
    return os.open(f"/proc/self/fd/{handle}", flags | os.O_CLOEXEC)


def path_of(handle: int) -> str:
    """Where an opened file or folder is now, without links. Raises FileNotFoundError if it was removed."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(handle, _GET_PATH, bytes(1024)).rstrip(b"\0"))
    path = os.readlink(f"/proc/self/fd/{handle}")
    if not path.startswith("/") or (path.endswith(" (deleted)") and not _is_there(path, handle)):
        raise _error(errno.ENOENT, path)
    return path


def make_folders(folder: int, names: Sequence[str]) -> int:
    """The folder `names` below an opened one; those that are missing are made. No link is followed."""
    handle = os.dup(folder)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=handle)
            inner = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
    except OSError:
        os.close(handle)
        raise
    return handle


def facts_of(folder: int, name: str) -> os.stat_result | None:
    """What this name of an opened folder is, links not followed; None if there is nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def create_file(folder: int, name: str, permissions: int = 0o666) -> int:
    """Create a file in an opened folder, for writing. Raises FileExistsError, also for a link of this name."""
    return _open_here(folder, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, permissions)


def temporary_name() -> str:
    """A name for a file that is renamed when it is complete."""
    return f".alipes-{secrets.token_hex(6)}.tmp"


def replace_file(folder: int, temporary: str, name: str) -> None:
    """Give a complete file its name at once; readers see the old or the new one."""
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def list_names(folder: int) -> list[str]:
    """The names in an opened folder, sorted."""
    handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return sorted(os.listdir(handle))
    finally:
        os.close(handle)


_AT_FDCWD = -100
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


@cache
def _has_openat2() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.close(_openat2(_AT_FDCWD, "/", FOLDER, 0, _NO_MAGIC_LINKS))
    except OSError:  # an older kernel, or a container that forbids it
        return False
    return True


def _openat2(folder: int, path: str, flags: int, mode: int, resolve: int) -> int:
    named = os.fsencode(path)
    if b"\0" in named:
        raise ValueError("embedded null byte")
    how = struct.pack("QQQ", flags, mode if flags & os.O_CREAT else 0, resolve)
    handle = int(_LIBC.syscall(_OPENAT2, folder, named, how, ctypes.c_size_t(len(how))))
    if handle < 0:
        raise _error(ctypes.get_errno(), path)
    return handle


def _open_here(folder: int, name: str, flags: int, mode: int) -> int:
    """Open a name of a folder; a link raises ELOOP or ENOTDIR, unless the flags ask for the link itself."""
    handle = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
    if flags & NAMED == NAMED and not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(handle).st_mode):
        os.close(handle)
        raise _error(errno.ELOOP, name)
    return handle


def _read_link(folder: int, name: str, error: OSError, *, flags: int) -> str:
    """Where a link leads. Raises `error`, with which it could not be opened, if it is none or must not be followed."""
    if error.errno not in _LINK_ERRORS or flags & os.O_NOFOLLOW:
        raise error
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        raise error from None


def _split(path: str) -> list[str]:
    """The names in a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _is_there(path: str, handle: int) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    return False


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
