"""Who owns the network: one `ClientScope` per event loop makes every client and closes every client."""

import asyncio
import logging
import ssl
import time
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

import httpx2
from msgspec import Struct

import alipes
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Endpoint, Proxies
from alipes.runtime.http.proxies import Trust, Wire, detours
from alipes.runtime.http.sockets import Permits
from alipes.runtime.tasks import to_the_end

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

_Handle: TypeAlias = tuple[str, str, float, float, Permits | None]
_Asked: TypeAlias = tuple[str, str, Mapping[str, str], bytes | None]
"""Method, address, headers, content."""
NO_KEY = "none"
"""What an SDK sends to an endpoint without a key; given nothing, it would take one from the environment."""
NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Raised before anything of a request has left: whatever it asked for was not done."""


class OpenClient(Struct, frozen=True):
    """What `alipes doctor` says of a client."""

    name: str
    kind: str
    """`http`, `openai` or `anthropic`."""
    base_url: str
    opened: float
    requests: int


class _Owned(Struct, frozen=True, eq=False):
    """A client as its owner sees it: the wires are held, the client itself only watched."""

    name: str
    kind: str
    base_url: str
    opened: float
    client: "weakref.ref[httpx2.AsyncClient]"
    wires: tuple[Wire, ...]

    @property
    def closed(self) -> bool:
        client = self.client()
        return client is not None and client.is_closed

    async def close(self) -> None:
        if (client := self.client()) is not None:
            await client.aclose()
        # Also after that: whoever closed the client before us may have been cancelled half-way.
        for wire in self.wires:
            await wire.aclose()


class ClientScope:
    """Opens network clients and closes all of them, on the loop that entered it, newest first.

    A vendor SDK object is given a client of ours (`http_client=`): left to its own it closes
    in `__del__`, on whichever loop the collector happened to run. Here collecting one
    schedules nothing: its connections are closed before the scope's next request, or at its end.
    """

    def __init__(self, proxies: Proxies | None = None, *, trust: ssl.SSLContext | str | None = None) -> None:
        """`trust`: whom TLS believes: a context, the path of a CA file, or None for the system's CAs."""
        self._proxies = proxies or Proxies()
        self._trust = Trust(trust)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owned: dict[weakref.ref[httpx2.AsyncClient], _Owned] = {}
        self._dropped: deque[weakref.ref[httpx2.AsyncClient]] = deque()
        self._handles: dict[_Handle, Http] = {}

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("This ClientScope is open already; open another one.")
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop = None
        failures: list[Exception] = []

        async def close_all() -> None:
            async with AsyncExitStack() as newest_first:
                for owned in self._owned.values():
                    newest_first.push_async_callback(_close, owned, failures)
                self._owned = {}

        await to_the_end(close_all)
        self._handles = {}
        if failures and error is None:
            raise failures[0]

    def http(
        self,
        name: str,
        *,
        base_url: str = "",
        stall: float = 120.0,
        connect: float = 10.0,
        permits: Permits | None = None,
    ) -> "Http":
        """The handle on a pool of connections; the same arguments give the same handle.

        `stall`: seconds without a byte after which a request counts as dead. There is no
        limit on the whole. `permits`: where it may connect to, unless through a proxy.
        """
        self._here()
        key = (name, base_url, stall, connect, permits)
        if key not in self._handles:
            self._handles[key] = Http(self, key)
        return self._handles[key]

    def openai(self, endpoint: Endpoint) -> "AsyncOpenAI":
        """An SDK object on a client of its own, its retries off. You may close it, and need not."""
        self._here()
        try:
            from openai import AsyncOpenAI  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise _no_sdk(missing) from missing
        base_url = endpoint.base_url or "https://api.openai.com/v1"
        sdk = AsyncOpenAI(
            api_key=endpoint.key.reveal() or NO_KEY,
            base_url=base_url,
            default_headers=dict(endpoint.headers),
            max_retries=0,
            http_client=self._for_sdk("openai", endpoint, base_url),
        )
        # It reads these from the environment, where they may mean another vendor.
        sdk.organization = sdk.project = sdk.admin_api_key = None
        return sdk

    def anthropic(self, endpoint: Endpoint) -> "AsyncAnthropic":
        """An SDK object on a client of its own, its retries off. You may close it, and need not."""
        self._here()
        try:
            from anthropic import AsyncAnthropic  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise _no_sdk(missing) from missing
        # The SDK adds the version itself.
        base_url = (endpoint.base_url or "https://api.anthropic.com").rstrip("/").removesuffix("/v1")
        return AsyncAnthropic(
            api_key=endpoint.key.reveal() or NO_KEY,
            base_url=base_url,
            default_headers=dict(endpoint.headers),
            max_retries=0,
            http_client=self._for_sdk("anthropic", endpoint, base_url),
        )

    def open_clients(self) -> tuple[OpenClient, ...]:
        """What is open now, oldest first."""
        return tuple(
            OpenClient(o.name, o.kind, o.base_url, o.opened, sum(wire.requests for wire in o.wires))
            for o in self._owned.values()
            if not o.closed
        )

    def _here(self) -> None:
        if self._loop is None:
            raise RuntimeError("This ClientScope is not open: use it inside its `async with`.")
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise RuntimeError("This ClientScope belongs to another event loop: use it on its own.")

    def _for_sdk(self, kind: str, endpoint: Endpoint, base_url: str) -> httpx2.AsyncClient:
        timeout = _timeout(endpoint.stall, endpoint.connect)
        return self._open(endpoint.name, kind, base_url, timeout=timeout, follow_redirects=True)[0]

    def _open(
        self,
        name: str,
        kind: str,
        base_url: str,
        *,
        timeout: httpx2.Timeout,
        follow_redirects: bool = False,
        permits: Permits | None = None,
    ) -> tuple[httpx2.AsyncClient, Wire | None]:
        """A client; and its wire, where it has only one."""
        straight, ways = Wire(self._trust, permits=permits), detours(self._proxies, self._trust)
        client = httpx2.AsyncClient(
            # An SDK makes absolute URLs of its own.
            base_url=base_url if kind == "http" else "",
            headers={"user-agent": f"alipes/{alipes.__version__}"},
            # What one conversation was given, another must not send.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            timeout=timeout,
            follow_redirects=follow_redirects,
            transport=straight,
            mounts=ways,
            trust_env=False,
        )
        watch = weakref.ref(client, self._dropped.append)
        wires = (straight, *(way for way in ways.values() if way is not None))
        self._owned[watch] = _Owned(name, kind, base_url, time.time(), watch, wires)
        return client, None if ways else straight

    async def _tidy(self) -> None:
        """Close the connections of clients that were dropped, and forget clients that someone closed."""
        gone = [watch for watch, owned in self._owned.items() if owned.closed]
        while self._dropped:
            gone.append(self._dropped.popleft())
        leaving = [owned for watch in gone if (owned := self._owned.pop(watch, None))]

        async def close_each() -> None:
            for owned in leaving:
                await _close(owned, [])

        if leaving:
            await to_the_end(close_each)

    def __del__(self) -> None:
        if self._loop is not None:
            warnings.warn("a ClientScope was dropped while open", ResourceWarning, source=self, stacklevel=2)


class Http:
    """A handle on one pool of connections that a scope owns. Raises `httpx2.HTTPError` kinds.

    One request cancelled, failed or left early takes its own connection with it and no other.
    """

    def __init__(self, scope: ClientScope, key: "_Handle") -> None:
        self._scope = scope
        self.name, self.base_url, stall, connect, self._permits = key
        self._timeout = _timeout(stall, connect)
        self._extensions = {"timeout": self._timeout.as_dict()}
        self._client, self._wire = self._open()
        self._headers = dict(self._client.headers)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        stall: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Ask, and give the answer with its body unread. `stall`: for this request, instead of the usual.

        Read it to its end and the connection serves the next request; leave earlier and the
        connection is closed before this context is left.
        """
        response = await self._answer((method, url, headers or {}, content), stall)
        try:
            yield response
        finally:
            if not response.is_closed:
                await to_the_end(response.aclose)

    async def _answer(self, asked: _Asked, stall: float | None) -> httpx2.Response:
        client = await self._living()
        timeout = self._timeout if stall is None else _timeout(stall, self._timeout.connect or stall)
        method, url, headers, content = asked
        if self._wire is None:
            built = client.build_request(method, url, headers=headers, content=content, timeout=timeout)
            return await client.send(built, stream=True)
        # What the client would add to this (cookies, redirects, hooks) is switched off, and costs a third.
        place, host = _place(self.base_url, url)
        given = {"host": host, **self._headers, **{name.lower(): value for name, value in headers.items()}}
        if content or method in ("POST", "PUT", "PATCH"):
            given.setdefault("content-length", str(len(content or b"")))
        # All headers are there already; given `content`, it would make and read through them four times.
        stream = httpx2.ByteStream(content or b"")
        more = self._extensions if timeout is self._timeout else {"timeout": timeout.as_dict()}
        built = httpx2.Request(method, place, headers=given, stream=stream, extensions=more)
        response = await self._wire.handle_async_request(built)
        response.request = built
        return response

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        stall: float | None = None,
    ) -> httpx2.Response:
        """Ask, and give the answer read whole; `timeout` limits the whole of it; `stall`: see `stream`."""
        asked = (method, url, headers or {}, content)
        if timeout is None:
            return await self._whole(asked, stall)
        try:
            async with asyncio.timeout(timeout):
                return await self._whole(asked, stall)
        except TimeoutError as late:
            raise httpx2.ReadTimeout(f"no complete answer within {timeout} s") from late

    async def _whole(self, asked: _Asked, stall: float | None) -> httpx2.Response:
        response = await self._answer(asked, stall)
        try:
            await response.aread()
        finally:
            if not response.is_closed:
                await to_the_end(response.aclose)
        return response

    async def _living(self) -> httpx2.AsyncClient:
        self._scope._here()
        if self._client.is_closed:
            log.warning("the client %r was closed by someone else; it is replaced", self.name)
            self._client, self._wire = self._open()
        await self._scope._tidy()
        if self._client.is_closed:
            raise RuntimeError(f"The client {self.name!r} was replaced and closed again by someone else.")
        return self._client

    def _open(self) -> tuple[httpx2.AsyncClient, Wire | None]:
        return self._scope._open(
            self.name, "http", self.base_url, timeout=self._timeout, permits=self._permits
        )

    @property
    def detoured(self) -> bool:
        """May a proxy stand between us and whom we ask?"""
        return self._wire is None


@lru_cache(maxsize=256)
def _place(base: str, url: str) -> tuple[httpx2.URL, str]:
    """An address, and its host as the header says it. Read once: the same few are asked again and again."""
    place = httpx2.URL(url)
    if place.is_relative_url:
        place = httpx2.URL(f"{base.rstrip('/')}/{url.lstrip('/')}")
    return place, place.netloc.decode("ascii")


def _timeout(stall: float, connect: float) -> httpx2.Timeout:
    return httpx2.Timeout(connect=connect, read=stall, write=stall, pool=None)


def _no_sdk(missing: ModuleNotFoundError) -> ConfigError:
    return ConfigError(f"The vendor's SDK is not installed ({missing}): pip install 'alipes[sdk]'")


async def _close(owned: _Owned, failures: list[Exception]) -> None:
    try:
        await owned.close()
    except (httpx2.HTTPError, OSError, RuntimeError) as error:
        log.warning("closing the %s client %r failed", owned.kind, owned.name, exc_info=error)
        failures.append(error)
