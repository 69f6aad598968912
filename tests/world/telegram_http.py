"""Request parsing of the loopback Bot API: plain or chunked bodies, forms, uploads, JSON."""

import re
import time
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from tests.world.model_http import Connection, HttpRequest

_BOUNDARY = re.compile(r'boundary="?([^";]+)"?')
_NAME = re.compile(r'\bname="((?:\\.|[^"\\])*)"|\bname=([^;\s]+)')
_FILE = re.compile(r'\bfilename="((?:\\.|[^"\\])*)"|\bfilename=([^;\s]+)')


class Uploaded(Struct, frozen=True):
    """A file in a form."""

    name: str
    mime: str
    data: bytes


class BotConnection(Connection):
    """Also reads chunked bodies, and keeps the request's whole target."""

    def _next(self) -> None:
        if self._answering or (end := self._data.find(b"\r\n\r\n")) < 0:
            return
        head = bytes(self._data[:end]).decode("latin-1")
        request = Request(head, b"")
        body = self._chunked(end + 4) if request.chunked else self._counted(end + 4, request)
        if body is None:
            return
        request.raw, size = body
        request.at = time.time()
        del self._data[:size]
        self._answering = self._tasks.create_task(self._owner.serve(self, request))
        self._answering.add_done_callback(self._served)

    def _counted(self, start: int, request: HttpRequest) -> tuple[bytes, int] | None:
        end = start + int(request.headers.get("content-length", 0))
        return (bytes(self._data[start:end]), end) if len(self._data) >= end else None

    def _chunked(self, start: int) -> tuple[bytes, int] | None:
        chunks: list[bytes] = []
        while (line := self._data.find(b"\r\n", start)) >= 0:
            size = int(bytes(self._data[start:line]).split(b";")[0], 16)
            start = line + 2 + size + 2
            if len(self._data) < start:
                return None
            if not size:
                return b"".join(chunks), start
            chunks.append(bytes(self._data[line + 2 : line + 2 + size]))
        return None


class Request(HttpRequest):
    """A request with its parameters, from query, form or JSON."""

    def __init__(self, head: str, raw: bytes) -> None:
        super().__init__(head, raw)
        self.query = head.split(" ", 2)[1].partition("?")[2]

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    def parameters(self) -> dict[str, Any]:
        """Parameters by name: JSON values, form fields as text, files as `Uploaded`."""
        given: dict[str, Any] = dict(parse_qsl(self.query, keep_blank_values=True))
        kind = self.headers.get("content-type", "")
        if kind.startswith("application/json"):
            given |= msgspec.json.decode(self.raw) if self.raw else {}
        elif kind.startswith("multipart/form-data"):
            given |= _multipart(self.raw, kind)
        elif self.raw:
            given |= dict(parse_qsl(self.raw.decode(), keep_blank_values=True))
        return given


def _multipart(raw: bytes, kind: str) -> dict[str, Any]:
    found = _BOUNDARY.search(kind)
    assert found, "a multipart body without a boundary"
    fields: dict[str, Any] = {}
    for part in (b"\r\n" + raw).split(b"\r\n--" + found[1].encode())[1:-1]:
        head, _, data = part.partition(b"\r\n\r\n")
        lines = head.decode().strip("\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        disposition = headers["content-disposition"]
        name = _NAME.search(disposition)
        assert name, f"a field without a name: {disposition}"
        file = _FILE.search(disposition)
        mime = headers.get("content-type", "application/octet-stream")
        value: Any = Uploaded(file[1] or file[2] or "", mime, data) if file else data.decode()
        fields[name[1] or name[2]] = value
    return fields
