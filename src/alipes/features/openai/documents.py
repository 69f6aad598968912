"""Documents and images of a request: fetched or taken from uploads, and documents as text, before it is parsed."""

import asyncio
import base64
import binascii
import hashlib
from typing import Protocol, TypeVar

from msgspec import structs

from alipes.features.openai.remote_images import fetch_images
from alipes.features.openai.requests import ChatRequest, Content, ContentPart, FileContent, ResponseRequest
from alipes.runtime.http.public_fetch import FetchError, PublicFetcher
from alipes.web.endpoint import Caller, HttpProblem

MAX_DOCUMENTS = 16
MAX_DOCUMENT_BYTES = 20_000_000
FETCH_TIMEOUT_S = 30.0
UPLOAD_ID_CHARS = 16
Asked = TypeVar("Asked", ChatRequest, ResponseRequest)


class ReadsFiles(Protocol):
    """The part of `web.files.ApiFiles` that is needed here."""

    async def read_document(
        self, caller: Caller, id: str, name: str = "", data: bytes | None = None
    ) -> tuple[str, str]:
        """The text of an upload and whose text it is; with `data` it is saved first. Raises `HttpProblem`."""


class RequestDocuments:
    def __init__(self, fetcher: PublicFetcher, files: ReadsFiles) -> None:
        self._fetcher, self._files = fetcher, files

    async def load(self, request: Asked, caller: Caller) -> tuple[Asked, str]:
        """The request with its images as data URLs and its documents as text, and whose text that is.

        Raises `HttpProblem`.
        """
        request = await fetch_images(request, self._fetcher)
        loading = _Loading(self, caller)
        if isinstance(request, ChatRequest):
            messages = [structs.replace(each, content=await loading.load(each.content)) for each in request.messages]
            return structs.replace(request, messages=messages), loading.untrusted
        if isinstance(request.input, str):
            return request, ""
        items = [
            structs.replace(item, content=await loading.load(item.content), output=await loading.load(item.output))
            for item in request.input
        ]
        return structs.replace(request, input=items), loading.untrusted

    async def read(self, caller: Caller, document: FileContent) -> tuple[str, str]:
        """The text of a document, and whose text it is. Raises `HttpProblem`."""
        name = document.filename or "document.pdf"
        if document.file_id:
            return await self._files.read_document(caller, document.file_id)
        data = await self._content(document)
        id = hashlib.sha256(data).hexdigest()[:UPLOAD_ID_CHARS]  # so that the same document is saved once
        return await self._files.read_document(caller, id, name, data)

    async def _content(self, document: FileContent) -> bytes:
        if document.file_url:
            try:
                found = await self._fetcher.fetch(
                    document.file_url, largest=MAX_DOCUMENT_BYTES, seconds=FETCH_TIMEOUT_S
                )
            except FetchError as error:
                raise HttpProblem(400, f"the file could not be fetched: {error}", code="file_url") from error
            return found.data
        head, comma, data = (document.file_data or "").partition(",")
        if not comma:  # the field may also have the base64 alone
            head, data = "data:;base64", head
        if not data or not (head.startswith("data:") and head.endswith(";base64")):
            why = "a file needs file_data (data:application/pdf;base64,...), file_url or the file_id of an upload"
            raise HttpProblem(400, why, code="file_data")
        try:
            return await asyncio.to_thread(base64.b64decode, data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise HttpProblem(400, f"the file is not valid base64: {error}", code="file_data") from error


class _Loading:
    """The documents of one request."""

    def __init__(self, documents: RequestDocuments, caller: Caller) -> None:
        self._documents, self._caller, self._count = documents, caller, 0
        self.untrusted = ""

    async def load(self, content: Content) -> Content:
        if not isinstance(content, list) or all(part.document is None for part in content):
            return content
        return [await self._load_part(part) for part in content]

    async def _load_part(self, part: ContentPart) -> ContentPart:
        if (document := part.document) is None:
            return part
        self._count += 1
        if self._count > MAX_DOCUMENTS:
            raise HttpProblem(400, f"a request may have at most {MAX_DOCUMENTS} files", code="file_data")
        text, untrusted = await self._documents.read(self._caller, document)
        self.untrusted = self.untrusted or untrusted
        return ContentPart("text", text)
