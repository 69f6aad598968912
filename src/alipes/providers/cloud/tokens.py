"""Credentials of a cloud: fetched when first needed, used by all requests of a provider, and renewed by one of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from alipes.kernel.errors import NotAuthorised, Transient
from alipes.kernel.models import Endpoint
from alipes.providers.errors import explain_connection
from alipes.providers.streaming import HttpStreams
from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.http.messages import HttpResponse

RENEW_BEFORE_S = 300.0
"""Credentials are renewed so long before they end."""
METADATA_TIMEOUT_S = 2.0
"""Seconds for the metadata server of a cloud machine; elsewhere nothing answers at its address."""
TOKEN_TIMEOUT_S = 20.0
T = TypeVar("T")


class Renewed(Generic[T]):
    """A value with an end, fetched by one caller at a time; the others wait for it."""

    def __init__(
        self, fetch: Callable[[], Awaitable[tuple[T, float]]], *, clock: Callable[[], float] = time.time
    ) -> None:
        """`fetch` returns the value and its end, in seconds since the epoch."""
        self._fetch, self._clock = fetch, clock
        self._lock = asyncio.Lock()
        self._found: tuple[T, float] | None = None

    async def get(self) -> T:
        async with self._lock:
            if self._found is None or self._found[1] - RENEW_BEFORE_S < self._clock():
                self._found = await self._fetch()
            return self._found[0]

    def forget(self) -> None:
        """The server refused it: fetch another one for the next request."""
        self._found = None


class Credentials(Protocol):
    async def headers(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> dict[str, str]:
        """The headers of the request with the proof of who asks. Raises `NotAuthorised` and `Transient`."""

    def forget(self) -> None: ...


class SignedStreams:
    """Sends each request with the credentials of a cloud."""

    def __init__(self, http: HttpStreams, credentials: Credentials) -> None:
        self._http, self._credentials = http, credentials

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> AsyncIterator[HttpResponse]:
        signed = await self._credentials.headers(method, url, headers or {}, content or b"")
        async with self._http.stream(method, url, headers=signed, content=content) as response:
            if response.status_code in (401, 403):
                self._credentials.forget()
            yield response


class TokenServer:
    """Asks servers for credentials, for one provider."""

    def __init__(self, endpoint: Endpoint, http: HttpClient) -> None:
        self._who, self._http = endpoint.name, http

    async def ask(
        self,
        url: str,
        form: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "",
        seconds: float = TOKEN_TIMEOUT_S,
    ) -> bytes:
        """The body of the answer. Raises `NotAuthorised` if it is refused, and `Transient` if there is none."""
        given = {"accept": "application/json", **(headers or {})}
        if form is not None:
            given["content-type"] = "application/x-www-form-urlencoded"
        content = None if form is None else urlencode(form).encode()
        method = method or ("GET" if form is None else "POST")
        place = url.partition("?")[0]
        try:
            response = await self._http.request(method, url, headers=given, content=content, timeout=seconds)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            said = explain_connection(str(error)) or type(error).__name__
            raise Transient(f"{self._who}: no credentials from {place}: {said}") from error
        status = response.status_code
        if status >= 500 or status == 429:
            raise Transient(f"{self._who}: {place} answered {status}")
        if status >= 300:
            raise NotAuthorised(f"{self._who}: {place} refused the credentials ({status}): {_why(response)}")
        return response.content


class _Token(Struct):
    access_token: str
    expires_in: float | str = 3600.0
    """A text from managed identities of Azure."""


def parse_token(who: str, answer: bytes, now: float) -> tuple[str, float]:
    """An access token and its end. Raises `NotAuthorised`."""
    try:
        token = msgspec.json.decode(answer, type=_Token)
        return token.access_token, now + float(token.expires_in)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise NotAuthorised(f"{who}: the server of tokens sent something else: {error}") from error


def _why(response: HttpResponse) -> str:
    """The reason that a token server gives, without what was sent."""
    try:
        answer: Any = msgspec.json.decode(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return response.reason_phrase
    said = answer.get("error_description") or answer.get("error") if isinstance(answer, dict) else ""
    return " ".join(str(said or response.reason_phrase).split())[:300]
