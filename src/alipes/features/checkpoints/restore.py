"""Writes files of a checkpoint back into its folder, without following links out of it."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LINK_MODE, EXECUTABLE_MODE = "120000", "100755"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderWriter:
    """Changes files below one folder. Every step uses the opened folder, so that a link that appears meanwhile cannot
    lead it elsewhere."""

    def __init__(self, root: int) -> None:
        self._root = root

    def write(self, path: str, data: bytes, mode: str) -> None:
        """Replace or create a file or link at once. Raises OSError, as for a folder with files at this path."""
        with self._open_parent(path, create=True) as (parent, name):
            temporary, done = f".{name[:40]}.{secrets.token_hex(6)}", False
            try:
                if mode == LINK_MODE:
                    os.symlink(data, temporary, dir_fd=parent)
                else:
                    _write_file(parent, temporary, data, _permissions(parent, name, mode))
                if _is_directory(parent, name):
                    os.rmdir(name, dir_fd=parent)
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                done = True
            finally:
                if not done:
                    with suppress(OSError):
                        os.unlink(temporary, dir_fd=parent)

    def remove(self, path: str) -> None:
        """Remove a file or link, and folders that become empty."""
        with self._open_parent(path) as (parent, name), suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        while "/" in path:
            path = path.rpartition("/")[0]
            with self._open_parent(path) as (parent, name):
                try:
                    os.rmdir(name, dir_fd=parent)
                except OSError:  # not empty, or not a folder
                    return

    def facts(self, path: str) -> os.stat_result | None:
        """What is at this path now; None if there is nothing."""
        try:
            with self._open_parent(path) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError:
            return None

    @contextmanager
    def _open_parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """The folder of a path, opened step by step, and its name there. A file or link in place of a folder is
        replaced if `create` is set. Raises OSError."""
        *folders, name = path.split("/")
        if name in ("", ".", "..", ".git") or any(each in ("", ".", "..", ".git") for each in folders):
            raise ValueError(f"{path} is not inside the folder")
        handle = os.dup(self._root)
        try:
            for folder in folders:
                inner = _open_folder(handle, folder, create=create)
                os.close(handle)
                handle = inner
            yield handle, name
        finally:
            os.close(handle)


def _open_folder(parent: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError:
        if not create:
            raise
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
    os.mkdir(name, dir_fd=parent)
    return os.open(name, _DIRECTORY, dir_fd=parent)


def _write_file(parent: int, name: str, data: bytes, permissions: int | None) -> None:
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=parent)
    with open(handle, "wb") as file:
        file.write(data)
        if permissions is None:
            return
        os.fchmod(handle, permissions)


def _permissions(parent: int, name: str, mode: str) -> int | None:
    """Those of the file that is replaced, with the stored right to execute; None: the usual ones."""
    executable = mode == EXECUTABLE_MODE
    try:
        facts = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        facts = None
    if facts is not None and stat.S_ISREG(facts.st_mode):
        usual = stat.S_IMODE(facts.st_mode) & 0o777
        return usual | ((usual & 0o444) >> 2) if executable else usual & ~0o111
    return 0o755 if executable else None


def _is_directory(parent: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@contextmanager
def open_folder_writer(folder: str) -> Iterator[FolderWriter]:
    """Raises OSError if the folder cannot be opened."""
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield FolderWriter(root)
    finally:
        os.close(root)
