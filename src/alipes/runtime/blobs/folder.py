"""File store in a folder, on this machine or on a shared file system."""

import asyncio
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from alipes.kernel.blobs import BlobInfo, is_blob_name
from alipes.kernel.errors import FileStoreError


class FolderBlobs:
    """One file for each blob. Symbolic links in the folder are not followed."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self.folder, self._max_bytes = folder, max_bytes

    async def put(self, name: str, data: bytes) -> None:
        path = self.path(name)
        if len(data) > self._max_bytes:
            raise FileStoreError(f"{name} has {len(data):,} bytes; files.max_mb allows {self._max_bytes:,}")
        with self._translate_errors():
            await asyncio.to_thread(_write, path, data)

    async def read(self, name: str) -> bytes | None:
        path = self.path(name)
        with self._translate_errors():
            return await asyncio.to_thread(_read, path, self._max_bytes)

    async def exists(self, name: str) -> bool:
        path = self.path(name)
        with self._translate_errors():
            return await asyncio.to_thread(_is_file, path)

    async def delete(self, name: str) -> None:
        path = self.path(name)
        with self._translate_errors(), suppress(FileNotFoundError):
            await asyncio.to_thread(os.unlink, path)

    async def list(self, prefix: str = "") -> tuple[BlobInfo, ...]:
        with self._translate_errors():
            found = await asyncio.to_thread(_list, self.folder, prefix)
        return tuple(sorted(found, key=lambda each: (each.modified, each.name)))

    def path(self, name: str) -> Path:
        if not is_blob_name(name):
            raise FileStoreError(f"{name[:100]!r} is not the name of a stored file")
        return self.folder / name

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FileStoreError(f"the file store in {self.folder} failed: {error.strerror or error}") from error


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)


def _read(path: Path, max_bytes: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            return None
        raise
    with open(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            return None
        if facts.st_size > max_bytes:
            raise FileStoreError(f"{path.name} has {facts.st_size:,} bytes; files.max_mb allows {max_bytes:,}")
        return file.read()


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _list(folder: Path, prefix: str) -> list[BlobInfo]:
    found = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and is_blob_name(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    facts = entry.stat(follow_symlinks=False)
                    found.append(BlobInfo(entry.name, facts.st_size, facts.st_mtime))
    return found
