"""Files from Slack and to it. What they mean is not asked here."""

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp

from alipes.kernel.errors import DeliveryError, Gone
from alipes.kernel.messages import SEEN_BY_MODELS, Image
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import Filed, Piece
from alipes.platforms.files import TooLarge, content, kind_of, not_fetched, save_chunks
from alipes.platforms.slack.web_api import UPLOAD, Calls

CHUNK = 1024 * 1024
_ODD = re.compile(r"[^\w.+-]+")
Fetched = tuple[tuple[Image, ...], tuple[Filed, ...], tuple[str, ...]]


class NotHad(Exception):
    """Why a file was not fetched, for the person who sent it."""


class Files:
    """Fetches with the bot's token, which nobody but Slack is shown."""

    def __init__(self, calls: Calls, token: str, folder: Path, *, largest: int, picture: int) -> None:
        self._calls, self._folder, self._largest, self._picture = calls, folder, largest, picture
        self._headers = {"Authorization": f"Bearer {token}"}

    async def fetch(self, files: list[dict[str, Any]]) -> Fetched:
        """Pictures for the model to see, files for tools, and a line for each that could not be had."""
        images: list[Image] = []
        saved: list[Filed] = []
        missing: list[str] = []
        for told in files:
            name = str(told.get("name") or told.get("title") or "file")
            try:
                file = await self._whole(told)
                mime, size = str(file.get("mimetype", "")), int(file.get("size") or 0)
                name = str(file.get("name") or name)
                if size > self._largest:
                    raise TooLarge
                path = self._folder / _ODD.sub("_", f"{file.get('id')}-{name[-80:]}").lstrip(".")
                size = await self._save(file, path)
                if mime in SEEN_BY_MODELS and size <= self._picture:
                    images.append(Image(mime, await asyncio.to_thread(_taken, path)))
                else:
                    saved.append(Filed(str(path), _kind(file, mime), name, mime, size))
            except TooLarge:
                missing.append(not_fetched(name, self._largest))
            except NotHad as why:
                missing.append(f"[{name} {why}.]")
            except (DeliveryError, aiohttp.ClientError, OSError, TimeoutError) as trouble:
                missing.append(f"[{name} could not be fetched: {trouble or type(trouble).__name__}.]")
        return tuple(images), tuple(saved), tuple(missing)

    async def _whole(self, file: dict[str, Any]) -> dict[str, Any]:
        """What another workspace shared has to be asked for."""
        if file.get("file_access") == "check_file_info":
            told = await self._calls("asking for a file", "files_info", file=file["id"])
            file = told["file"]
        if file.get("is_external") or file.get("mode") == "external":
            raise NotHad(f"is kept elsewhere: {file.get('url_private')}")
        return file

    async def _save(self, file: dict[str, Any], path: Path) -> int:
        """Fetch a file to disk; it has its name once it is whole. Gives its size."""
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        if not self._calls.trusts(url):
            raise NotHad("was not fetched: it does not lie at Slack")
        stall = aiohttp.ClientTimeout(total=UPLOAD, sock_connect=10, sock_read=30)
        async with self._calls.session.get(
            url, headers=self._headers, proxy=self._calls.proxy, timeout=stall, allow_redirects=False
        ) as response:
            _check(response, str(file.get("mimetype", "")))
            return await save_chunks(path, response.content.iter_chunked(CHUNK), self._largest)

    async def bring(self, piece: Piece) -> str:
        """A file of ours to Slack, where nobody sees it yet; its id there."""
        assert piece.media
        name = piece.media.name or Path(piece.media.path).name or "file"
        data = await asyncio.to_thread(content, piece.media.path)
        if not data:
            raise Gone(f"Slack takes no empty files, and {name} is one.")
        told = await self._calls(
            "announcing a file", "files_getUploadURLExternal", filename=name, length=len(data)
        )
        await self._calls.upload(str(told["upload_url"]), data)
        return str(told["file_id"])


def _check(response: aiohttp.ClientResponse, mime: str) -> None:
    if response.status != 200:
        raise NotHad(f"could not be fetched: Slack answers {response.status}")
    if response.content_type == "text/html" and mime != "text/html":
        # Who may not read a file is shown a page to log in by.
        raise NotHad("could not be fetched: the app lacks the scope files:read")


def _kind(file: dict[str, Any], mime: str) -> MediaKind:
    if file.get("subtype") == "slack_audio":
        return "voice"
    return kind_of(mime)


def _taken(path: Path) -> bytes:
    data = path.read_bytes()
    path.unlink()
    return data
