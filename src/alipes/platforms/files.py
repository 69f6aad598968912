"""Files of all messengers: received files are saved, outgoing files are read."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from alipes.kernel.errors import Undeliverable
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import IncomingMessage
from alipes.platforms.state_files import write_atomic

_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


class FileTooLarge(Exception):
    """A file exceeds the size limit."""


async def fetch_for_anyone(_: IncomingMessage) -> bool:
    """Default fetch policy."""
    return True


def media_kind(media_type: str) -> MediaKind:
    return _KINDS.get(media_type.partition("/")[0], "file")


def too_large_note(name: str, largest: int) -> str:
    """Note for the model about a file that is too large."""
    return f"[{name} was not downloaded: it is larger than {largest // 1_000_000} MB.]"


def save_file(path: Path, data: bytes) -> str:
    """Write a received file atomically; a second copy has the same name. Raises OSError."""
    write_atomic(path, data)
    return str(path)


async def save_stream(path: Path, chunks: AsyncIterable[bytes], largest: int) -> int:
    """Write a received file in chunks and return its size. Raises OSError and `FileTooLarge`."""
    partial = await asyncio.to_thread(_partial, path.parent)
    size = 0
    try:
        with partial:
            async for chunk in chunks:
                size += len(chunk)
                if size > largest:
                    raise FileTooLarge
                await asyncio.to_thread(partial.write, chunk)
        os.replace(partial.name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial.name)
    return size


def read_outgoing(path: str) -> bytes:
    """Content of a file to be sent. Raises `Undeliverable` if it cannot be read."""
    with outgoing_file(path):
        return Path(path).read_bytes()


@contextmanager
def outgoing_file(path: str) -> Iterator[None]:
    """Wraps reading a file to be sent: an unreadable file is never sent."""
    try:
        yield
    except OSError as error:
        raise Undeliverable(f"The file {path} cannot be read: {error.strerror}.") from error


def _partial(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".part", delete=False)
