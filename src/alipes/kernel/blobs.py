"""Port of the file store: files of chats that every worker of a cluster can read, by name."""

import hashlib
import re
from typing import Protocol

from msgspec import Struct

from alipes.kernel.lazy import lazy_pattern

MAX_LABEL_CHARS = 80
_ODD = lazy_pattern(r"[^A-Za-z0-9._]+")
_NAME = lazy_pattern(r"[0-9a-f]{32}(?:-[A-Za-z0-9_](?:[A-Za-z0-9_-]|\.(?!\.)){0,119})?", re.ASCII)


class BlobInfo(Struct, frozen=True):
    name: str
    size: int
    modified: float
    """Seconds since the epoch."""


class BlobStore(Protocol):
    """Files by name. A name that `is_blob_name` rejects, a file above the size limit, and a store that does not
    answer raise `FileStoreError`."""

    async def put(self, name: str, data: bytes) -> None:
        """Store a file; an existing one of that name is replaced, and readers see the old or the new one whole."""

    async def read(self, name: str) -> bytes | None:
        """The content; None if there is no such file."""

    async def exists(self, name: str) -> bool: ...

    async def delete(self, name: str) -> None:
        """No error if there is no such file."""

    async def list(self, prefix: str = "") -> tuple[BlobInfo, ...]:
        """The files whose names start with `prefix`, oldest first."""


def is_blob_name(name: str) -> bool:
    """True for 32 hexadecimal digits, perhaps with a plain file name: never a path."""
    return _NAME.fullmatch(name) is not None


def make_blob_name(id: str, file_name: str = "") -> str:
    """The name of a file with the 32 hexadecimal digits `id`. `file_name` may come from a stranger."""
    base = file_name.replace("\\", "/").rpartition("/")[2]
    stem, dot, suffix = base.rpartition(".")
    stem, suffix = (stem, suffix) if dot else (suffix, "")
    label = _ODD.sub("_", stem).replace("..", "_")[:MAX_LABEL_CHARS].strip("._")
    ending = _ODD.sub("_", suffix)[:16].strip("._")
    shown = f"{label or 'file'}.{ending}" if ending else label
    return f"{id}-{shown}" if shown else id


def content_id(data: bytes) -> str:
    """The same 32 hexadecimal digits for the same content."""
    return hashlib.sha256(data).hexdigest()[:32]
