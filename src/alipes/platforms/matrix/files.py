"""Downloads and decrypts files from Matrix, and encrypts and uploads files to it."""

import asyncio
import logging
import mimetypes
import re
from typing import Any
from urllib.parse import quote

import nio  # type: ignore[import-untyped]
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment  # type: ignore[import-untyped]

from alipes.kernel.outbox import Media
from alipes.kernel.platform import IncomingMessage, ReceivedFile
from alipes.platforms.files import (
    Downloads,
    FileTooLarge,
    FileUnavailable,
    make_file_name,
    media_name,
    read_download,
    read_outgoing,
)
from alipes.platforms.matrix.client import MatrixClient, MatrixError
from alipes.platforms.matrix.parse import RoomEvent
from alipes.platforms.matrix.settings import MatrixConfig
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

PATHS = ("/_matrix/client/v1/media/download", "/_matrix/media/v3/download")
"""Download paths; older homeservers know only the second."""
MAX_ATTEMPTS = 4
DOWNLOAD_TIMEOUT = 110.0
"""Seconds for one download."""
_PLACE = re.compile(r"mxc://([^/?#\s]+)/([\w-]+)")
_TYPES = {"image": "m.image", "audio": "m.audio", "voice": "m.audio", "video": "m.video", "file": "m.file"}


class MatrixFiles:
    """Downloads the file of a message. A failure is noted in the message's text."""

    def __init__(self, client: MatrixClient, settings: MatrixConfig) -> None:
        self._client, self._settings = client, settings

    async def fetch(self, incoming: IncomingMessage, event: RoomEvent) -> IncomingMessage:
        settings, content = self._settings, event.current_content
        info: Any = content.get("info") if isinstance(content.get("info"), dict) else {}
        name = str(content.get("filename") or content.get("body") or event.file)
        mime = str(info.get("mimetype") or mimetypes.guess_type(name)[0] or "")
        downloads = Downloads(settings.data_folder / "files", settings.largest, settings.picture)
        with downloads.note_failure(name, httpx2.HTTPError, OSError):
            data = await self._get(content)
            file = ReceivedFile(make_file_name(event.id[1:13], name), event.file or "file", name, mime)
            await asyncio.to_thread(downloads.save_bytes, file, data)
        if downloads.notes:
            log.warning("downloading a file failed: %s", downloads.notes[0])
        return downloads.attach_to(incoming)

    async def _get(self, content: Any) -> bytes:
        sealed = content.get("file") if isinstance(content.get("file"), dict) else None
        place = _PLACE.fullmatch(str((sealed or content).get("url")))
        if place is None:
            raise FileUnavailable("could not be downloaded: it has no address")
        data = await self._download(place[1], place[2])
        if sealed is None:
            return data
        try:
            key, digest = str(sealed["key"]["k"]), str(sealed["hashes"]["sha256"])
            plain = await asyncio.to_thread(decrypt_attachment, data, key, digest, str(sealed["iv"]))
        except (KeyError, TypeError, ValueError, nio.EncryptionError) as error:
            raise FileUnavailable("could not be downloaded: it could not be decrypted") from error
        return bytes(plain)

    async def _download(self, server: str, media: str) -> bytes:
        attempt, paths = 0, list(PATHS)
        while True:
            attempt += 1
            try:
                return await self._read(f"{paths[0]}/{quote(server, safe=':')}/{quote(media)}")
            except httpx2.HTTPError:
                if attempt >= MAX_ATTEMPTS:
                    raise
                await asyncio.sleep(backoff(attempt))
            except MatrixError as refused:
                if refused.status == 404 and len(paths) > 1:
                    paths.pop(0)
                elif attempt >= MAX_ATTEMPTS or (refused.wait is None and refused.status < 500):
                    raise FileUnavailable(
                        f"could not be downloaded: the homeserver answered with {refused.status}"
                    ) from refused
                else:
                    await asyncio.sleep(refused.wait or backoff(attempt))

    async def _read(self, path: str) -> bytes:
        stream = self._client.stream(path)
        status, data = await read_download(stream, largest=self._settings.largest, timeout_s=DOWNLOAD_TIMEOUT)
        if status == 413:
            raise FileTooLarge
        if status != 200:
            raise MatrixError("", "", status, 5.0 if status == 429 else None)
        return data


async def upload_media(client: MatrixClient, media: Media, caption: str, *, sealed: bool) -> dict[str, Any]:
    """Upload a file and return the content of its message. Raises `Undeliverable` if it cannot be read."""
    name = media_name(media)
    mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
    data = await asyncio.to_thread(read_outgoing, media)
    content: dict[str, Any] = {
        "msgtype": _TYPES[media.kind],
        "body": caption or name,
        "filename": name,
        "info": {"size": len(data), "mimetype": mime},
        "m.mentions": {},
    }
    if media.kind == "voice":
        content["org.matrix.msc3245.voice"] = {}
    if not sealed:
        return content | {"url": await client.upload_bytes(data, name, mime)}
    hidden, keys = await asyncio.to_thread(encrypt_attachment, data)
    url = await client.upload_bytes(hidden, "", "application/octet-stream")
    return content | {"file": {**keys, "url": url}}
