"""People's files on our own disk, for every messenger: what came is saved, what goes out is read."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from alipes.kernel.errors import Gone
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import Arrival
from alipes.platforms.state_files import write

_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


class TooLarge(Exception):
    """A file is larger than we fetch."""


async def anyone(_: Arrival) -> bool:
    """Whose files are fetched, where nobody said that."""
    return True


def kind_of(media_type: str) -> MediaKind:
    return _KINDS.get(media_type.partition("/")[0], "file")


def not_fetched(name: str, largest: int) -> str:
    """What a model is told of a file that is too large."""
    return f"[{name} was not fetched: it is larger than {largest // 1_000_000} MB.]"


def save(path: Path, data: bytes) -> str:
    """Whole, or not there at all; the same each time that it comes. Raises OSError."""
    write(path, data)
    return str(path)


async def save_chunks(path: Path, chunks: AsyncIterable[bytes], largest: int) -> int:
    """The same for what comes in parts; its size. Raises OSError and `TooLarge`."""
    partial = await asyncio.to_thread(_partial, path.parent)
    size = 0
    try:
        with partial:
            async for chunk in chunks:
                size += len(chunk)
                if size > largest:
                    raise TooLarge
                await asyncio.to_thread(partial.write, chunk)
        os.replace(partial.name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial.name)
    return size


def content(path: str) -> bytes:
    """Of a file that is to be sent. Raises Gone without it."""
    with readable(path):
        return Path(path).read_bytes()


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Around the reading of a file that is to be sent: one that cannot be read, nobody waits for."""
    try:
        yield
    except OSError as error:
        raise Gone(f"The file {path} cannot be read: {error.strerror}.") from error


def _partial(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".part", delete=False)
