"""Endpoints for files: uploads for a message, and downloads of what tools made for a person."""

import asyncio
import hashlib
import mimetypes
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Protocol
from urllib.parse import quote

from msgspec import Meta, Struct, structs
from starlette.responses import FileResponse, Response

from alipes.config.paths import make_private
from alipes.core.app import App
from alipes.kernel.attachments import format_received_file
from alipes.kernel.errors import SessionError
from alipes.kernel.messages import Image, ToolResult, image_type
from alipes.kernel.outbox import Media
from alipes.kernel.platform import ReceivedFile
from alipes.kernel.turns import Address, Inbound
from alipes.runtime.blobs.chat_files import ChatFiles
from alipes.web.auth import RequestLimits, read_body
from alipes.web.endpoint import PLATFORM, ApiCall, ApiEndpoint, Caller, HttpProblem, json_response
from alipes.web.runs.lookup import find_session

UPLOADS = "uploads"
"""The folder of uploads, beside those of the messengers."""
MAX_NAME_CHARS = 120
MAX_PICTURE_BYTES = 5_000_000
"""A larger picture is a file like any other."""
_ODD = re.compile(r"[^\w.()+@ -]", re.ASCII)
_UPLOAD = re.compile(r"[0-9a-f]{16}")
_DOWNLOAD = re.compile(r"([0-9a-f]{12})-([0-9]{1,18})-([0-9]{1,4})")


class FileReference(Struct, frozen=True):
    """A file that a tool made for a person: `GET /v1/downloads/{id}`."""

    id: str
    name: str
    type: str
    size: int
    """Zero if it no longer exists."""


class UploadQuery(Struct, frozen=True):
    name: Annotated[str, Meta(max_length=300)] = "file"


class UploadedFile(Struct, frozen=True):
    id: str
    """For `files` of a run."""
    name: str
    type: str
    size: int


class SendableFiles(Protocol):
    """Knows which files may leave this machine."""

    def find_media(self, path: str, caption: str = "") -> Media | None:
        """None if there is no such file, or it may not be sent."""


class AttachesFiles(Protocol):
    """The part of `agent.attachments.FileAttacher` that is needed here."""

    async def attach_received(self, inbound: Inbound, files: Sequence[ReceivedFile]) -> Inbound: ...


class ApiFiles:
    """The folder of uploads, and what may be downloaded."""

    def __init__(
        self,
        uploads: Path,
        sendable: SendableFiles,
        attacher: AttachesFiles,
        limits: RequestLimits,
        shared: ChatFiles | None = None,
    ) -> None:
        """`shared`: makes uploads available to other workers."""
        self.uploads, self.sendable, self.limits = uploads, sendable, limits
        self._attacher, self._shared = attacher, shared

    async def save(self, caller: Caller, name: str, data: bytes, id: str = "") -> UploadedFile:
        """`id`: one of the content, so that a file which is sent again is saved once."""
        id, shown = id or os.urandom(8).hex(), _safe_name(name)
        path = self._folder(caller) / f"{id}-{shown}"
        await asyncio.to_thread(self._write, path, data)
        if self._shared is not None:
            await self._shared.share(str(path), shown, _caller_id(caller) + id)
        return UploadedFile(id, shown, _media_type(shown, data[:16]), len(data))

    async def attach(self, inbound: Inbound, caller: Caller, ids: Sequence[str]) -> Inbound:
        """The message with the files that were uploaded for it. Raises `HttpProblem`."""
        paths = [await self._find(caller, id) for id in ids]
        received = [await asyncio.to_thread(_read_upload, path) for path in paths]
        files, images = [file for file, _ in received], [image for _, image in received if image is not None]
        if not files:
            return inbound
        text = "\n\n".join([*filter(None, [inbound.text]), *map(format_received_file, files)])
        attachments = (*inbound.attachments, *images)
        return await self._attacher.attach_received(structs.replace(inbound, text=text, attachments=attachments), files)

    async def read_document(
        self, caller: Caller, id: str, name: str = "", data: bytes | None = None
    ) -> tuple[str, str]:
        """The text of an upload for a message, and whose text it is; with `data` it is saved first. The same upload
        always has the same text. Raises `HttpProblem`."""
        if data is not None:
            await self.save(caller, name, data, id)
        file, _ = await asyncio.to_thread(_read_upload, await self._find(caller, id))
        empty = Inbound("", Address(PLATFORM, id, user=caller.name), caller.name, format_received_file(file))
        found = await self._attacher.attach_received(empty, [file])
        return found.text, found.untrusted

    def _folder(self, caller: Caller) -> Path:
        return self.uploads / _caller_id(caller)

    def _write(self, path: Path, data: bytes) -> None:
        make_private(self.uploads)
        make_private(path.parent)
        path.write_bytes(data)

    async def _find(self, caller: Caller, id: str) -> Path:
        """Another worker may have received it: then its path is that of the copy. Raises `HttpProblem`."""
        if _UPLOAD.fullmatch(id):
            if self._shared is not None and self._shared.store is not None:
                blob = await self._shared.find(_caller_id(caller) + id)
                if blob and (path := await self._shared.fetch(blob)):
                    return Path(path)
            elif found := await asyncio.to_thread(sorted, self._folder(caller).glob(f"{id}-*")):
                return found[0]
        raise HttpProblem(404, f"no uploaded file {id!r}; upload it again", code="no_upload")


def _caller_id(caller: Caller) -> str:
    return hashlib.sha256(caller.name.encode("utf-8", "replace")).hexdigest()[:16]


def _read_upload(path: Path) -> tuple[ReceivedFile, Image | None]:
    size, name = path.stat().st_size, path.name.partition("-")[2]
    data = path.read_bytes() if size <= MAX_PICTURE_BYTES else b""
    kind, is_picture = _media_type(name, data[:16]), bool(image_type(data[:16]))
    file = ReceivedFile(str(path), "image" if is_picture else "file", name, kind, size)
    return file, Image(kind, data) if is_picture else None


class FileEndpoints:
    def __init__(self, app: App, files: ApiFiles) -> None:
        self._files = files
        self._sessions = app.store.api_runs
        self._transcripts = app.store.transcripts

    @ApiEndpoint("POST", "/v1/uploads", "run", query=UploadQuery, raw_body=True, answer=UploadedFile, status=201)
    async def upload(self, call: ApiCall) -> Response:
        """Upload a file for a message: the body is its content."""
        query: UploadQuery = call.query
        data = await read_body(call.request, self._files.limits)
        return json_response(await self._files.save(call.caller, query.name, data), 201)

    @ApiEndpoint("GET", "/v1/downloads/{id}", "read")
    async def download(self, call: ApiCall) -> Response:
        """Get a file that a tool made for a person; messages have its id."""
        found = _DOWNLOAD.fullmatch(call.path["id"])
        if found is None:
            raise _no_file()
        row = await find_session(self._sessions, call.caller, found[1])
        try:
            message = await self._transcripts.message(row.id, int(found[2]))
        except SessionError as error:
            raise _no_file() from error
        paths = [path for part in message.parts if isinstance(part, ToolResult) for path in part.files]
        wanted = paths[int(found[3])] if int(found[3]) < len(paths) else ""
        media = await asyncio.to_thread(self._files.sendable.find_media, wanted) if wanted else None
        if media is None:
            raise _no_file()
        name = quote(media.name or os.path.basename(media.path), safe="")
        headers = {
            "cache-control": "no-store",
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
            "content-security-policy": "sandbox",
        }
        return FileResponse(media.path, headers=headers, media_type="application/octet-stream")


def refer_to_files(session: str, number: int, results: Sequence[ToolResult]) -> list[tuple[FileReference, ...]]:
    """For each result, the files that it declares."""
    found, place = list[tuple[FileReference, ...]](), 0
    for result in results:
        references = []
        for path in result.files:
            name = os.path.basename(path)
            references.append(FileReference(f"{session}-{number}-{place}", name, _media_type(name), _size(path)))
            place += 1
        found.append(tuple(references))
    return found


def _no_file() -> HttpProblem:
    return HttpProblem(404, "there is no such file, it no longer exists, or it may not be sent", code="no_file")


def _safe_name(name: str) -> str:
    """A file name without anything that a file system or a message could misread."""
    plain = _ODD.sub("_", os.path.basename(name.replace("\\", "/"))).strip(" .")
    stem, suffix = os.path.splitext(plain)
    return f"{stem[:MAX_NAME_CHARS]}{suffix[:20]}" or "file"


def _media_type(name: str, start: bytes = b"") -> str:
    return image_type(start) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0
