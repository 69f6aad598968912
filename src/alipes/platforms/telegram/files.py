"""Files that come with messages: photos for models that see, the others saved for tools."""

import asyncio
import logging
import os
import re
from pathlib import Path

from msgspec import structs

from alipes.kernel.errors import Gone
from alipes.kernel.messages import Image, image_type
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import Arrival, Filed
from alipes.platforms.files import save
from alipes.platforms.telegram.api import (
    FAILURES,
    Api,
    File,
    Garbled,
    Message,
    Refusal,
    RemoteFile,
    ours,
)
from alipes.platforms.telegram.parse import attached
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

LARGEST = 20 << 20
"""Telegram gives bots no larger files."""
IMAGE = 4 << 20
"""Models take no larger images."""
TRIES = 4
_SUFFIX = {"voice": ".ogg", "audio": ".mp3", "video": ".mp4"}
_UNSAFE = re.compile(r"[^\w.+@ -]+")


class Fetcher:
    """Fetches what a message carries. What cannot be had is told in the message's own text."""

    def __init__(self, api: Api, folder: Path) -> None:
        self._api, self._folder = api, folder

    async def fetch(self, arrival: Arrival, message: Message) -> Arrival:
        notes: list[str] = []
        images: list[Image] = []
        files: list[Filed] = []
        if message.photo:
            fitting = [size for size in message.photo if size.file_size <= IMAGE] or [message.photo[0]]
            data = await self._get(max(fitting, key=lambda size: size.width), "photo", notes)
            images += [_image(data)] if data else []
        for file, kind in attached(message):
            name = _name(file, kind, message)
            data = await self._get(file, file.file_name or kind, notes)
            if data is None:
                continue
            try:
                path = await asyncio.to_thread(save, self._folder / name, data)
            except OSError as error:
                log.warning("a file that came with a message could not be saved: %s", error)
                notes.append(f"[{file.file_name or kind}: could not be saved, {error.strerror}]")
                continue
            files.append(Filed(path, kind, file.file_name or name, file.mime_type, len(data)))
            if kind == "image" and len(data) <= IMAGE and image_type(data):
                images.append(_image(data))
        text = "\n".join([*notes, arrival.text] if arrival.text else notes)
        return structs.replace(arrival, images=tuple(images), files=tuple(files), text=text)

    async def _get(self, file: File, name: str, notes: list[str]) -> bytes | None:
        if file.file_size > LARGEST:
            notes.append(f"[{name}: {file.file_size >> 20} MB, more than Telegram lets a bot fetch]")
            return None
        for attempt in range(1, TRIES + 1):
            try:
                told = await self._api.call("getFile", RemoteFile, {"file_id": file.file_id})
                return await self._api.download(told.file_path, LARGEST)
            except FAILURES as theirs:
                error = ours(theirs, "fetching a file")
                final = isinstance(theirs, Refusal | Garbled) and isinstance(error, Gone)
                if attempt == TRIES or final:
                    log.warning("a file that came with a message could not be fetched: %s", error)
                    break
                await asyncio.sleep(error.retry_after or backoff(attempt))
        notes.append(f"[{name}: could not be fetched]")
        return None


def _image(data: bytes) -> Image:
    return Image(image_type(data) or "image/jpeg", data)


def _name(file: File, kind: MediaKind, message: Message) -> str:
    """A name that is ours alone, the same whenever the message comes again, and no path."""
    given = _UNSAFE.sub("_", os.path.basename(file.file_name.replace("\\", "/"))).strip(" .")
    given = given or f"{kind}{_SUFFIX.get(kind, '')}"
    stem, suffix = os.path.splitext(given)
    short = stem.encode()[:120].decode("utf-8", "ignore") + suffix.encode()[:40].decode("utf-8", "ignore")
    return f"{message.chat.id}-{message.message_id}-{short}".lstrip("-")
