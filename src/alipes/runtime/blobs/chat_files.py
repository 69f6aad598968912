"""Files of chats: shared with other workers through the file store, and read here from a folder of copies."""

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from alipes.kernel.blobs import BlobStore, content_id, is_blob_name, make_blob_name
from alipes.kernel.errors import FileStoreError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Turn
from alipes.runtime.blobs.folder import FolderBlobs

log = logging.getLogger(__name__)
COPIES = "blobs"
"""The folder of copies, beside the folders of the messengers."""
_AFTER_FOLDER = lazy_pattern(r"[0-9A-Za-z._-]+", re.ASCII)


class ChatFiles:
    """Without a store all files stay where they are: one machine, or a folder that all workers share.

    With a store, the path of a shared file is its name in the folder of copies, which is the same on every worker
    whose home has the same path. A worker that lacks the copy fetches it.
    """

    def __init__(self, copies: Path, store: BlobStore | None = None, *, max_bytes: int, cache_bytes: int) -> None:
        """`cache_bytes`: limit of all copies; the oldest are deleted first."""
        self.store, self._max_bytes, self._cache_bytes = store, max_bytes, cache_bytes
        self._copies = FolderBlobs(copies, max_bytes=max_bytes)
        self._lock = asyncio.Lock()
        # the model may name a copy inside a longer argument, such as a command
        self._mention = re.compile(re.escape(os.path.join(copies, "")) + f"({_AFTER_FOLDER.pattern})")

    async def share(self, path: str, name: str = "", id: str = "") -> str:
        """Put a file into the store; returns its blob name, or an empty text without a store. `id`: 32 hexadecimal
        digits; empty: those of the content. Raises `FileStoreError`."""
        if self.store is None:
            return ""
        try:
            size = os.stat(path).st_size
            if size > self._max_bytes:
                raise FileStoreError(f"{path} has {size:,} bytes; files.max_mb allows {self._max_bytes:,}")
            data = await asyncio.to_thread(Path(path).read_bytes)
        except OSError as error:
            raise FileStoreError(f"{path} cannot be read: {error.strerror}") from error
        blob = make_blob_name(id or content_id(data), name or os.path.basename(path))
        await self.store.put(blob, data)
        return blob

    async def fetch(self, blob: str) -> str:
        """The path of the copy of a file, fetched if it is not here; empty if it no longer exists. Raises
        `FileStoreError`."""
        path = str(self._copies.path(blob))
        async with self._lock:
            if await self._copies.exists(blob):
                return path
            data = None if self.store is None else await self.store.read(blob)
            if data is None:
                return ""
            await self._copies.put(blob, data)
            await self._limit_copies(keep=blob)
        return path

    async def find(self, prefix: str) -> str:
        """The name of the first stored file whose name starts with `prefix`; empty if there is none."""
        found = await self.store.list(prefix) if self.store is not None else ()
        return found[0].name if found else ""

    async def share_received(self, message: IncomingMessage) -> IncomingMessage:
        """The message with paths that every worker can use. A file that cannot be shared stays on this one."""
        if self.store is None or not message.files:
            return message
        files = []
        for file in message.files:
            try:
                blob = await self.share(file.path, file.name)
                path = await self.fetch(blob)
            except FileStoreError as error:
                log.warning("a file of a chat stays on this worker: %s", error)
                files.append(file)
                continue
            await asyncio.to_thread(_replace_original, file.path, path)
            files.append(structs.replace(file, path=path))
        return structs.replace(message, files=tuple(files))

    async def fetch_received(self, message: IncomingMessage) -> None:
        """Fetch the files of a message that another worker received."""
        for file in message.files if self.store is not None else ():
            await self.fetch_named(file.path)

    async def share_outbound(self, outbounds: tuple[Outbound, ...]) -> tuple[Outbound, ...]:
        """The messages with files that any worker can send. A file that cannot be shared is sent from here only."""
        if self.store is None or not any(each.media for each in outbounds):
            return outbounds
        shared = []
        for outbound in outbounds:
            media = []
            for each in outbound.media:
                try:
                    media.append(structs.replace(each, blob=await self.share(each.path, each.name)))
                except FileStoreError as error:
                    log.warning("a file for a chat can be sent by this worker only: %s", error)
                    media.append(each)
            shared.append(structs.replace(outbound, media=tuple(media)))
        return tuple(shared)

    async def fetch_outbound(self, outbound: Outbound) -> Outbound:
        """The message with paths of files on this worker. Raises `FileStoreError`."""
        if not any(each.blob for each in outbound.media):
            return outbound
        media = []
        for each in outbound.media:
            here = not each.blob or await asyncio.to_thread(os.path.isfile, each.path)
            path = "" if here else await self.fetch(each.blob)
            media.append(structs.replace(each, path=path) if path else each)
        return structs.replace(outbound, media=tuple(media))

    async def fetch_named(self, text: str) -> None:
        """Fetch the copies whose paths are in `text`. What cannot be fetched is missing, as a deleted file would be."""
        for match in self._mention.finditer(text):
            blob = match[1].rstrip(".")
            if is_blob_name(blob):
                try:
                    await self.fetch(blob)
                except FileStoreError as error:
                    log.warning("a file of a chat was not fetched: %s", error)

    async def tool_arguments(self, args: Mapping[str, Any], turn: Turn) -> None:
        """Hook: fetch the files that a call names, before it runs."""
        for value in _texts(args):
            await self.fetch_named(value)

    async def _limit_copies(self, keep: str) -> None:
        copies = await self._copies.list()
        total = sum(each.size for each in copies)
        for each in copies:
            if total <= self._cache_bytes:
                return
            if each.name != keep:
                await self._copies.delete(each.name)
                total -= each.size


def _texts(value: Any) -> list[str]:
    """All texts in the arguments of a call."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for each in inner for text in _texts(each)]


def _replace_original(original: str, copy: str) -> None:
    """The copy takes the place of the file that the messenger saved."""
    if copy and os.path.realpath(original) != os.path.realpath(copy):
        Path(original).unlink(missing_ok=True)
