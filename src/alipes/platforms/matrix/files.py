"""Files on Matrix, both ways: fetched and decrypted for tools and models, encrypted on their way out."""

import asyncio
import logging
import mimetypes
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import nio  # type: ignore[import-untyped]
from msgspec import structs
from nio.crypto.attachments import (  # type: ignore[import-untyped]
    decrypt_attachment,
    encrypt_attachment,
)

from alipes.kernel.messages import SEEN_BY_MODELS, Image
from alipes.kernel.outbox import Media
from alipes.kernel.platform import Arrival, Filed
from alipes.platforms.files import TooLarge, content, not_fetched, save
from alipes.platforms.matrix.client import Client, Refusal
from alipes.platforms.matrix.parse import Said
from alipes.runtime.tasks import backoff

log = logging.getLogger(__name__)

PATHS = ("/_matrix/client/v1/media/download", "/_matrix/media/v3/download")
"""Where files are; the second on homeservers that are older."""
TRIES = 4
WITHIN = 110.0
"""Seconds that a file may take."""
_ODD = re.compile(r"[^\w.+@-]+")
_PLACE = re.compile(r"mxc://([^/?#\s]+)/([\w-]+)")
_TYPES = {"image": "m.image", "audio": "m.audio", "voice": "m.audio", "video": "m.video", "file": "m.file"}


class Garbled(Exception):
    """It is not there, or not what it says."""


class Files:
    """Fetches what a message carries. What cannot be had is told in the message's own text."""

    def __init__(self, client: Client, folder: Path, *, largest: int, picture: int) -> None:
        self._client, self._folder = client, folder
        self._largest, self._picture = largest, picture

    async def fetch(self, came: Arrival, event: Said) -> Arrival:
        told = event.told
        info: Any = told.get("info") if isinstance(told.get("info"), dict) else {}
        name = str(told.get("filename") or told.get("body") or event.file)
        mime = str(info.get("mimetype") or mimetypes.guess_type(name)[0] or "")
        try:
            data = await self._get(told)
            if mime in SEEN_BY_MODELS and len(data) <= self._picture:
                return structs.replace(came, images=(Image(mime, data),))
            path = self._folder / _safe(f"{event.id[1:13]}-{name[-100:]}")
            saved = await asyncio.to_thread(save, path, data)
        except TooLarge:
            return _noted(came, not_fetched(name, self._largest))
        except (Garbled, httpx2.HTTPError, OSError) as trouble:
            log.warning("a file that came with a message could not be had: %s", trouble)
            return _noted(came, f"[{name} could not be fetched: {trouble or type(trouble).__name__}.]")
        kind = event.file or "file"
        return structs.replace(came, files=(Filed(saved, kind, name, mime, len(data)),))

    async def _get(self, told: Any) -> bytes:
        sealed = told.get("file") if isinstance(told.get("file"), dict) else None
        place = _PLACE.fullmatch(str((sealed or told).get("url")))
        if place is None:
            raise Garbled("it does not say where it is")
        data = await self._download(place[1], place[2])
        if sealed is None:
            return data
        try:
            key, digest = str(sealed["key"]["k"]), str(sealed["hashes"]["sha256"])
            plain = await asyncio.to_thread(decrypt_attachment, data, key, digest, str(sealed["iv"]))
        except (KeyError, TypeError, ValueError, nio.EncryptionError) as error:
            raise Garbled("it could not be decrypted") from error
        return bytes(plain)

    async def _download(self, server: str, media: str) -> bytes:
        attempt, paths = 0, list(PATHS)
        while True:
            attempt += 1
            try:
                return await self._read(f"{paths[0]}/{quote(server, safe=':')}/{quote(media)}")
            except httpx2.HTTPError:
                if attempt >= TRIES:
                    raise
                await asyncio.sleep(backoff(attempt))
            except Refusal as refused:
                if refused.status == 404 and len(paths) > 1:
                    paths.pop(0)
                elif attempt >= TRIES or (refused.wait is None and refused.status < 500):
                    raise Garbled(f"the homeserver answered with {refused.status}") from refused
                else:
                    await asyncio.sleep(refused.wait or backoff(attempt))

    async def _read(self, path: str) -> bytes:
        data = bytearray()
        try:
            async with asyncio.timeout(WITHIN), self._client.stream(path) as response:
                if response.status_code != 200:
                    wait = 5.0 if response.status_code == 429 else None
                    raise Refusal("", "", response.status_code, wait)
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > self._largest:
                        raise TooLarge
        except TimeoutError as late:
            raise httpx2.ReadTimeout("the file did not come in time") from late
        return bytes(data)


async def uploaded(client: Client, media: Media, caption: str, *, sealed: bool) -> dict[str, Any]:
    """A file of ours, brought to the homeserver: the content of its message. Raises Gone without it."""
    name = media.name or os.path.basename(media.path)
    mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
    data = await asyncio.to_thread(content, media.path)
    told: dict[str, Any] = {
        "msgtype": _TYPES[media.kind],
        "body": caption or name,
        "filename": name,
        "info": {"size": len(data), "mimetype": mime},
        "m.mentions": {},
    }
    if media.kind == "voice":
        told["org.matrix.msc3245.voice"] = {}
    if not sealed:
        return told | {"url": await client.upload_bytes(data, name, mime)}
    hidden, keys = await asyncio.to_thread(encrypt_attachment, data)
    url = await client.upload_bytes(hidden, "", "application/octet-stream")
    return told | {"file": {**keys, "url": url}}


def _noted(came: Arrival, note: str) -> Arrival:
    return structs.replace(came, text="\n".join(filter(None, (came.text, note))))


def _safe(name: str) -> str:
    return _ODD.sub("_", name)[-120:].lstrip(".")
