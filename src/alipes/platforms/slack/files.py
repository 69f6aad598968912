"""Downloads files from Slack and uploads files to it."""

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp

from alipes.kernel.errors import DeliveryError, Undeliverable
from alipes.kernel.messages import MODEL_IMAGE_TYPES, Image
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import MessagePart, ReceivedFile
from alipes.platforms.files import FileTooLarge, media_kind, read_outgoing, save_stream, too_large_note
from alipes.platforms.slack.web_api import UPLOAD_TIMEOUT, SlackApi

CHUNK = 1024 * 1024
_ODD = re.compile(r"[^\w.+-]+")
Fetched = tuple[tuple[Image, ...], tuple[ReceivedFile, ...], tuple[str, ...]]


class FileUnavailable(Exception):
    """Why a file was not downloaded, for the sender."""


class SlackFiles:
    """Downloads with the bot's token, which is sent to Slack only."""

    def __init__(self, api: SlackApi, token: str, folder: Path, *, largest: int, picture: int) -> None:
        self._api, self._folder, self._largest, self._picture = api, folder, largest, picture
        self._headers = {"Authorization": f"Bearer {token}"}

    async def fetch(self, files: list[dict[str, Any]]) -> Fetched:
        """Images for the model, files for tools, and a note for each file that was not downloaded."""
        images: list[Image] = []
        saved: list[ReceivedFile] = []
        missing: list[str] = []
        for listed in files:
            name = str(listed.get("name") or listed.get("title") or "file")
            try:
                file = await self._complete(listed)
                mime, size = str(file.get("mimetype", "")), int(file.get("size") or 0)
                name = str(file.get("name") or name)
                if size > self._largest:
                    raise FileTooLarge
                path = self._folder / _ODD.sub("_", f"{file.get('id')}-{name[-80:]}").lstrip(".")
                size = await self._save(file, path)
                if mime in MODEL_IMAGE_TYPES and size <= self._picture:
                    images.append(Image(mime, await asyncio.to_thread(_taken, path)))
                else:
                    saved.append(ReceivedFile(str(path), _kind(file, mime), name, mime, size))
            except FileTooLarge:
                missing.append(too_large_note(name, self._largest))
            except FileUnavailable as why:
                missing.append(f"[{name} {why}.]")
            except (DeliveryError, aiohttp.ClientError, OSError, TimeoutError) as failure:
                missing.append(f"[{name} could not be downloaded: {failure or type(failure).__name__}.]")
        return tuple(images), tuple(saved), tuple(missing)

    async def _complete(self, file: dict[str, Any]) -> dict[str, Any]:
        """Details of a file that another workspace shared have to be requested."""
        if file.get("file_access") == "check_file_info":
            listed = await self._api("requesting a file", "files_info", file=file["id"])
            file = listed["file"]
        if file.get("is_external") or file.get("mode") == "external":
            raise FileUnavailable(f"is stored outside of Slack: {file.get('url_private')}")
        return file

    async def _save(self, file: dict[str, Any], path: Path) -> int:
        """Download a file to disk and return its size."""
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        if not self._api.is_slack_url(url):
            raise FileUnavailable("was not downloaded: its address is not on Slack")
        stall = aiohttp.ClientTimeout(total=UPLOAD_TIMEOUT, sock_connect=10, sock_read=30)
        async with self._api.session.get(
            url, headers=self._headers, proxy=self._api.proxy, timeout=stall, allow_redirects=False
        ) as response:
            _check(response, str(file.get("mimetype", "")))
            return await save_stream(path, response.content.iter_chunked(CHUNK), self._largest)

    async def upload_file(self, part: MessagePart) -> str:
        """Upload a file without showing it yet; returns its id."""
        assert part.media
        name = part.media.name or Path(part.media.path).name or "file"
        data = await asyncio.to_thread(read_outgoing, part.media.path)
        if not data:
            raise Undeliverable(f"Slack does not accept empty files ({name}).")
        listed = await self._api(
            "requesting an upload", "files_getUploadURLExternal", filename=name, length=len(data)
        )
        await self._api.upload(str(listed["upload_url"]), data)
        return str(listed["file_id"])


def _check(response: aiohttp.ClientResponse, mime: str) -> None:
    if response.status != 200:
        raise FileUnavailable(f"could not be downloaded: Slack answered {response.status}")
    if response.content_type == "text/html" and mime != "text/html":
        # without permission Slack returns a login page
        raise FileUnavailable("could not be downloaded: the app needs the scope files:read")


def _kind(file: dict[str, Any], mime: str) -> MediaKind:
    if file.get("subtype") == "slack_audio":
        return "voice"
    return media_kind(mime)


def _taken(path: Path) -> bytes:
    data = path.read_bytes()
    path.unlink()
    return data
