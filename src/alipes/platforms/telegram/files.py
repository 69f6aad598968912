"""Downloads files of messages: photos for the model, others for tools."""

import asyncio
import logging
import os
import re
from pathlib import Path

from msgspec import structs

from alipes.kernel.errors import Undeliverable
from alipes.kernel.messages import Image, image_type
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import IncomingMessage, ReceivedFile
from alipes.platforms.files import save_file
from alipes.platforms.telegram.api import (
    FAILURES,
    InvalidApiResponse,
    RemoteFile,
    TelegramApi,
    TelegramError,
    TelegramFile,
    TelegramMessage,
    translate_error,
)
from alipes.platforms.telegram.parse import list_attachments
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 20 << 20
"""Telegram gives bots no larger files."""
MAX_IMAGE_BYTES = 4 << 20
"""Models accept no larger images."""
MAX_ATTEMPTS = 4
_SUFFIX = {"voice": ".ogg", "audio": ".mp3", "video": ".mp4"}
_UNSAFE = re.compile(r"[^\w.+@ -]+")


class TelegramFiles:
    """Downloads the files of a message. A failure is noted in the message's text."""

    def __init__(self, api: TelegramApi, folder: Path) -> None:
        self._api, self._folder = api, folder

    async def fetch(self, incoming: IncomingMessage, message: TelegramMessage) -> IncomingMessage:
        notes: list[str] = []
        images: list[Image] = []
        files: list[ReceivedFile] = []
        if message.photo:
            fitting = [size for size in message.photo if size.file_size <= MAX_IMAGE_BYTES] or [
                message.photo[0]
            ]
            data = await self._get(max(fitting, key=lambda size: size.width), "photo", notes)
            images += [_image(data)] if data else []
        for file, kind in list_attachments(message):
            name = _name(file, kind, message)
            data = await self._get(file, file.file_name or kind, notes)
            if data is None:
                continue
            try:
                path = await asyncio.to_thread(save_file, self._folder / name, data)
            except OSError as error:
                log.warning("saving a file failed: %s", error)
                notes.append(f"[{file.file_name or kind}: could not be saved, {error.strerror}]")
                continue
            files.append(ReceivedFile(path, kind, file.file_name or name, file.mime_type, len(data)))
            if kind == "image" and len(data) <= MAX_IMAGE_BYTES and image_type(data):
                images.append(_image(data))
        text = "\n".join([*notes, incoming.text] if incoming.text else notes)
        return structs.replace(incoming, images=tuple(images), files=tuple(files), text=text)

    async def _get(self, file: TelegramFile, name: str, notes: list[str]) -> bytes | None:
        if file.file_size > MAX_FILE_BYTES:
            notes.append(f"[{name}: {file.file_size >> 20} MB, more than Telegram lets a bot download]")
            return None
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                remote = await self._api.call("getFile", RemoteFile, {"file_id": file.file_id})
                return await self._api.download(remote.file_path, MAX_FILE_BYTES)
            except FAILURES as failure:
                error = translate_error(failure, "downloading a file")
                final = isinstance(failure, TelegramError | InvalidApiResponse) and isinstance(
                    error, Undeliverable
                )
                if attempt == MAX_ATTEMPTS or final:
                    log.warning("downloading a file failed: %s", error)
                    break
                await asyncio.sleep(error.retry_after or backoff(attempt))
        notes.append(f"[{name}: could not be downloaded]")
        return None


def _image(data: bytes) -> Image:
    return Image(image_type(data) or "image/jpeg", data)


def _name(file: TelegramFile, kind: MediaKind, message: TelegramMessage) -> str:
    """A file name that is unique, the same for a second copy of the message, and never a path."""
    given = _UNSAFE.sub("_", os.path.basename(file.file_name.replace("\\", "/"))).strip(" .")
    given = given or f"{kind}{_SUFFIX.get(kind, '')}"
    stem, suffix = os.path.splitext(given)
    short = stem.encode()[:120].decode("utf-8", "ignore") + suffix.encode()[:40].decode("utf-8", "ignore")
    return f"{message.chat.id}-{message.message_id}-{short}".lstrip("-")
