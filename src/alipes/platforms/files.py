"""Files of all messengers: received files are downloaded and saved, outgoing files are read."""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from alipes.kernel.errors import Undeliverable
from alipes.kernel.messages import MODEL_IMAGE_TYPES, Image
from alipes.kernel.outbox import Media, MediaKind
from alipes.kernel.platform import IncomingMessage, ReceivedFile
from alipes.platforms.markup import strip_controls
from alipes.platforms.state_files import write_atomic
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.http.messages import HttpResponse

CHUNK = 1024 * 1024
"""Bytes that are read at once from a download."""
_ODD = re.compile(r"[^\w.+@ -]+")
_KINDS: dict[str, MediaKind] = {"image": "image", "audio": "audio", "video": "video"}


class FileTooLarge(Exception):
    """A file exceeds the size limit."""


class FileUnavailable(Exception):
    """Why a file was not downloaded, as the rest of a sentence that begins with its name."""


class Downloads:
    """The files of one message: pictures for the model, files for tools, and a note for each that failed."""

    def __init__(self, folder: Path, largest: int, picture: int) -> None:
        """`largest`: size limit in bytes; `picture`: larger pictures are saved as files."""
        self._folder, self._largest, self._picture = folder, largest, picture
        self.images: list[Image] = []
        self.files: list[ReceivedFile] = []
        self.notes: list[str] = []

    @contextmanager
    def note_failure(self, name: str, *failures: type[Exception]) -> Iterator[None]:
        """Note that the file `name` was not downloaded instead of raising one of `failures`."""
        try:
            yield
        except FileTooLarge:
            self.notes.append(f"[{name} was not downloaded: it is larger than {self._largest // 1_000_000} MB.]")
        except FileUnavailable as why:
            self.notes.append(f"[{name} {why}.]")
        except failures as failure:
            self.notes.append(f"[{name} could not be downloaded: {failure or type(failure).__name__}.]")

    def check_size(self, size: int) -> None:
        """Raises `FileTooLarge` for an announced size."""
        if size > self._largest:
            raise FileTooLarge

    async def save(self, file: ReceivedFile, chunks: AsyncIterable[bytes]) -> None:
        """Save a file in chunks; `file.path` is its name in our folder. Raises OSError and `FileTooLarge`."""
        path = self._folder / file.path
        size = await save_stream(path, chunks, self._largest)
        if self._is_picture(file, size):
            self.images.append(Image(file.mime, await asyncio.to_thread(path.read_bytes)))
            path.unlink()
        else:
            self.files.append(replace(file, path=str(path), size=size))

    def save_bytes(self, file: ReceivedFile, data: bytes) -> None:
        """As `save`, for a file in memory. Raises OSError."""
        if self._is_picture(file, len(data)):
            self.images.append(Image(file.mime, data))
        else:
            path = save_file(self._folder / file.path, data)
            self.files.append(replace(file, path=path, size=len(data)))

    def _is_picture(self, file: ReceivedFile, size: int) -> bool:
        return file.mime in MODEL_IMAGE_TYPES and size <= self._picture

    def attach_to(self, incoming: IncomingMessage) -> IncomingMessage:
        text = "\n".join(filter(None, (incoming.text, *self.notes)))
        return replace(incoming, images=tuple(self.images), files=tuple(self.files), text=text)


def media_kind(media_type: str) -> MediaKind:
    return _KINDS.get(media_type.partition("/")[0], "file")


def make_file_name(id: str, name: str) -> str:
    """A file name that is unique, the same for a second copy of the message, and never a path."""
    stem, suffix = os.path.splitext(_ODD.sub("_", os.path.basename(name.replace("\\", "/"))).strip(" ."))
    short = stem.encode()[:120].decode("utf-8", "ignore") + suffix.encode()[:40].decode("utf-8", "ignore")
    return f"{_ODD.sub('_', id)}-{short or 'file'}".lstrip("-.")


async def read_download(
    stream: AbstractAsyncContextManager[HttpResponse], *, largest: int, timeout_s: float
) -> tuple[int, bytes]:
    """Status and body of a download; status 413 if it is larger than `largest`. Raises `httpx2.HTTPError`."""
    data = bytearray()
    try:
        async with asyncio.timeout(timeout_s), stream as response:
            if response.status_code != 200:
                return response.status_code, b""
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > largest:
                    return 413, b""
    except TimeoutError as late:
        raise httpx2.ReadTimeout("the download timed out") from late
    return 200, bytes(data)


def save_file(path: Path, data: bytes) -> str:
    """Write a received file atomically; a second copy has the same name. Raises OSError."""
    write_atomic(path, data)
    return str(path)


async def save_stream(path: Path, chunks: AsyncIterable[bytes], largest: int) -> int:
    """Write a received file in chunks and return its size. Raises OSError and `FileTooLarge`."""
    partial = await asyncio.to_thread(_open_partial, path.parent)
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


def media_name(media: Media) -> str:
    return strip_controls(media.name) or Path(media.path).name or "file"


def read_outgoing(media: Media, messenger: str = "", largest: int = sys.maxsize) -> bytes:
    """Content of a file to be sent. Raises `Undeliverable` if it cannot be read or `messenger` does not take
    files of its size."""
    try:
        size = os.stat(media.path).st_size
        if size > largest:
            raise Undeliverable(f"A file of {size >> 20} MB is too large for {messenger} ({media_name(media)}).")
        return Path(media.path).read_bytes()
    except OSError as error:
        raise Undeliverable(f"The file {media.path} cannot be read: {error.strerror}.") from error


def _open_partial(folder: Path) -> IO[bytes]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".part", delete=False)
