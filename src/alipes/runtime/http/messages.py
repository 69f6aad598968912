"""Requests and responses of our clients. A response has the attributes of httpx2's that are used most."""

import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from functools import lru_cache
from typing import Any, Self, TypeAlias

import msgspec
from msgspec import Struct

from alipes.kernel.lazy import lazy_pattern
from alipes.runtime.http.http1 import Headers, ResponseHead
from alipes.runtime.http.lazy_httpx import httpx2

Origin: TypeAlias = tuple[str, str, int]
"""Scheme, host, port."""
PORTS = {"http": 80, "https": 443}
_LABEL, _OCTET = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_SAFE = "A-Za-z0-9._~:@!$&()*+,;="
_PLAIN_URL = lazy_pattern(
    rf"(https?)://((?:{_LABEL}\.)*(?=[a-z]){_LABEL}|{_OCTET}(?:\.{_OCTET}){{3}})(?::([1-9][0-9]{{0,3}}|[1-5][0-9]{{4}}))?"
    rf"((?:/(?!\.)[{_SAFE}-]*)*)(\?[{_SAFE}/?-]*)?"
)
"""URLs that are sent as they are. All others are left to httpx2, which checks and normalises them."""


class Url(Struct, frozen=True):
    origin: Origin
    target: bytes
    """Path and query."""
    authority: str
    """As in the Host header."""


@lru_cache(maxsize=256)
def absolute_url(base: str, url: str) -> Url:
    """`url`, relative to `base` unless it is absolute. Cached, because the same few URLs are requested often.

    Raises `httpx2.InvalidURL` and `httpx2.UnsupportedProtocol`.
    """
    if url.startswith("/") or not (url.startswith(("http://", "https://")) or httpx2.URL(url).is_absolute_url):
        url = f"{base.rstrip('/')}/{url.lstrip('/')}"
    plain = _PLAIN_URL.fullmatch(url)
    if plain is None or "xn--" in url:
        return parse_url(httpx2.URL(url))
    scheme, host, port, path, query = plain.groups("")
    number = int(port or PORTS[scheme])
    authority = host if number == PORTS[scheme] else f"{host}:{number}"
    return Url((scheme, host, number), f"{path or '/'}{query}".encode(), authority)


def parse_url(url: "httpx2.URL") -> Url:
    if url.scheme not in PORTS:
        raise httpx2.UnsupportedProtocol(f"a URL starts with http:// or https://, not {url.scheme!r}")
    return Url((url.scheme, url.host, url.port or PORTS[url.scheme]), url.raw_path, url.netloc.decode("ascii"))


class Timeouts(Struct, frozen=True):
    """Limits in seconds, each for one step; None: no limit."""

    connect: float | None
    read: float | None
    write: float | None


class HttpRequest(Struct, frozen=True):
    method: str
    url: Url
    headers: Headers
    body: bytes | AsyncIterable[bytes]
    timeouts: Timeouts


class ResponseHeaders(dict[str, str]):
    """By lower-case name; repeated ones are joined by commas."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        for name, value in raw:
            key, text = name.decode("latin-1").lower(), _decode(value)
            super().__setitem__(key, f"{before}, {text}" if (before := super().get(key)) is not None else text)

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


class ResponseBody(AsyncIterator[bytes]):
    """The blocks of a body as they arrive. Closing it twice is allowed."""

    async def aclose(self) -> None:
        raise NotImplementedError


class HttpResponse:
    """The head of a response, and its body, which is read later."""

    def __init__(self, head: ResponseHead, body: ResponseBody, url: str = "") -> None:
        self.status_code, self.url = head.status, url
        self.reason_phrase = head.reason.decode("latin-1")
        self.headers = ResponseHeaders(head.headers)
        self.head = head
        self._body, self._content = body, b""
        self.is_closed = False

    @property
    def is_success(self) -> bool:
        return 200 <= self.status_code < 300

    @property
    def is_redirect(self) -> bool:
        return 300 <= self.status_code < 400

    def raise_for_status(self) -> Self:
        """Raise `httpx2.HTTPStatusError` unless it is a success."""
        if self.is_success:
            return self
        whole = httpx2.Response(
            self.status_code, headers=self.head.headers, request=httpx2.Request("GET", self.url or "http://unknown")
        )
        whole.raise_for_status()
        return self

    @property
    def content(self) -> bytes:
        """The body, after it was read."""
        return self._content

    @property
    def text(self) -> str:
        charset = self.headers.get("content-type", "").lower().partition("charset=")[2].split(";")[0].strip(" \"'")
        try:
            return self._content.decode(charset or "utf-8", "replace")
        except LookupError:
            return self._content.decode("utf-8", "replace")

    def json(self) -> Any:
        return msgspec.json.decode(self._content)

    def aiter_raw(self) -> ResponseBody:
        """The body as it arrives, not decompressed."""
        return self._body

    def aiter_bytes(self) -> ResponseBody:
        """The body as it arrives, decompressed if it has one of the encodings that we ask for."""
        encoding = self.headers.get("content-encoding", "").strip().lower()
        return _InflatedBody(self._body, encoding) if encoding in ("gzip", "x-gzip", "deflate") else self._body

    async def aread(self) -> bytes:
        if not self.is_closed:
            try:
                self._content += b"".join([block async for block in self.aiter_bytes()])
            finally:
                await self.aclose()
        return self._content

    async def aclose(self) -> None:
        self.is_closed = True
        await self._body.aclose()


class _InflatedBody(ResponseBody):
    def __init__(self, body: ResponseBody, encoding: str) -> None:
        self._body, self._over = body, False
        self._inflater = zlib.decompressobj(zlib.MAX_WBITS | 32)
        self._maybe_bare, self._begin = encoding == "deflate", b""

    async def __anext__(self) -> bytes:
        async for block in self._body:
            if data := self._inflate(block):
                return data
        if not self._over:
            self._over = True
            if rest := self._inflater.flush():
                return rest
        raise StopAsyncIteration

    def _inflate(self, block: bytes) -> bytes:
        if self._maybe_bare:  # zlib's header has two bytes
            block = self._begin + block
            if len(block) < 2:
                self._begin = block
                return b""
        maybe_bare, self._maybe_bare = self._maybe_bare, False
        try:
            return self._inflater.decompress(block)
        except zlib.error as error:
            if not maybe_bare:
                raise httpx2.DecodingError(str(error)) from error
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers leave out zlib's header
            return self._inflate(block)

    async def aclose(self) -> None:
        await self._body.aclose()
