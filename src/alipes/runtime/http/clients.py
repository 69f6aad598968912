"""Network clients: one `ClientScope` per event loop opens and closes every client."""

import asyncio
import logging
import ssl
import time
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import httpx2
from msgspec import Struct

import alipes
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Endpoint, Proxies
from alipes.runtime.http.proxies import RouteTransport, TlsTrust, proxy_routes
from alipes.runtime.http.sockets import MayConnect
from alipes.runtime.tasks import run_to_completion

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

_Handle: TypeAlias = tuple[str, str, float, float, MayConnect | None]
NO_KEY = "none"
"""Sent by an SDK to an endpoint without a key; otherwise it would take one from the environment."""
NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
"""Raised before anything of a request was sent, so it had no effect."""


class OpenClient(Struct, frozen=True, eq=False):
    """A client of a scope: strong references to its transports, a weak one to the client."""

    name: str
    kind: str
    """`http`, `openai` or `anthropic`."""
    base_url: str
    opened: float
    client: "weakref.ref[httpx2.AsyncClient]"
    wires: tuple[RouteTransport, ...]

    @property
    def closed(self) -> bool:
        client = self.client()
        return client is not None and client.is_closed

    @property
    def requests(self) -> int:
        return sum(wire.requests for wire in self.wires)

    async def close(self) -> None:
        if (client := self.client()) is not None:
            await client.aclose()
        # Also afterwards: an earlier close may have been cancelled half-way.
        for wire in self.wires:
            await wire.aclose()


class ClientScope:
    """Opens network clients and closes all of them, on the loop that entered it, newest first.

    A vendor SDK object gets a client of ours (`http_client=`): its own would close in `__del__`, on
    whichever loop the garbage collector runs. Here collecting one schedules nothing: its connections
    are closed before the scope's next request, or at the end of the scope.
    """

    def __init__(self, proxies: Proxies | None = None, *, trust: ssl.SSLContext | str | None = None) -> None:
        """`trust`: a TLS context, the path of a CA file, or None for the system's CAs."""
        self._proxies = proxies or Proxies()
        self._trust = TlsTrust(trust)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owned: dict[weakref.ref[httpx2.AsyncClient], OpenClient] = {}
        self._dropped: deque[weakref.ref[httpx2.AsyncClient]] = deque()
        self._handles: dict[_Handle, HttpClient] = {}

    async def __aenter__(self) -> Self:
        if self._loop is not None:
            raise RuntimeError("This ClientScope is open already; open another one.")
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._loop = None
        failures: list[Exception] = []

        async def close_all() -> None:
            async with AsyncExitStack() as newest_first:
                for owned in self._owned.values():
                    newest_first.push_async_callback(_close, owned, failures)
                self._owned = {}

        await run_to_completion(close_all)
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
        permits: MayConnect | None = None,
    ) -> "HttpClient":
        """A client with its own connection pool; the same arguments return the same client.

        `stall`: seconds without a byte after which a request fails; the total time is not limited.
        `permits`: which addresses it may connect to directly.
        """
        self._check_loop()
        key = (name, base_url, stall, connect, permits)
        if key not in self._handles:
            self._handles[key] = HttpClient(self, key)
        return self._handles[key]

    @asynccontextmanager
    async def lend(
        self, name: str, *, limits: httpx2.Timeout, permits: MayConnect | None = None
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """A plain client for a library that takes one; closed at the end of the block. It follows no redirects."""
        self._check_loop()
        await self._close_dropped()
        client, _ = self._open(name, "http", "", timeout=limits, permits=permits)
        try:
            yield client
        finally:
            owned = self._owned.pop(weakref.ref(client), None)
            if owned is not None:
                await run_to_completion(owned.close)

    def openai(self, endpoint: Endpoint) -> "AsyncOpenAI":
        """An SDK object with its own client and no retries. Closing it is optional."""
        with self._importing_sdk():
            from openai import AsyncOpenAI  # noqa: PLC0415
        sdk = AsyncOpenAI(**self._for_sdk("openai", endpoint, endpoint.base_url or "https://api.openai.com/v1"))
        # The SDK reads these from the environment, where they may belong to another vendor.
        sdk.organization = sdk.project = sdk.admin_api_key = None
        return sdk

    def anthropic(self, endpoint: Endpoint) -> "AsyncAnthropic":
        """An SDK object with its own client and no retries. Closing it is optional."""
        with self._importing_sdk():
            from anthropic import AsyncAnthropic  # noqa: PLC0415
        # The SDK adds the version itself.
        base_url = (endpoint.base_url or "https://api.anthropic.com").rstrip("/").removesuffix("/v1")
        return AsyncAnthropic(**self._for_sdk("anthropic", endpoint, base_url))

    def open_clients(self) -> tuple[OpenClient, ...]:
        return tuple(owned for owned in self._owned.values() if not owned.closed)

    def _check_loop(self) -> None:
        if self._loop is None:
            raise RuntimeError("This ClientScope is not open: use it inside its `async with`.")
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            raise RuntimeError("This ClientScope belongs to another event loop: use it on its own.")

    @contextmanager
    def _importing_sdk(self) -> Iterator[None]:
        self._check_loop()
        try:
            yield
        except ModuleNotFoundError as missing:
            raise ConfigError(f"The vendor's SDK is not installed ({missing}): run `alipes install sdk`") from missing

    def _for_sdk(self, kind: str, endpoint: Endpoint, base_url: str) -> dict[str, Any]:
        timeout = _timeout(endpoint.stall, endpoint.connect)
        client, _ = self._open(endpoint.name, kind, base_url, timeout=timeout, follow_redirects=True)
        headers, key = dict(endpoint.headers), endpoint.key.reveal() or NO_KEY
        return {
            "api_key": key,
            "base_url": base_url,
            "default_headers": headers,
            "max_retries": 0,
            "http_client": client,
        }

    def _open(
        self,
        name: str,
        kind: str,
        base_url: str,
        *,
        timeout: httpx2.Timeout,
        follow_redirects: bool = False,
        permits: MayConnect | None = None,
    ) -> tuple[httpx2.AsyncClient, RouteTransport | None]:
        """A client, and its transport if it has only one."""
        straight, ways = (RouteTransport(self._trust, permits=permits), proxy_routes(self._proxies, self._trust))
        client = httpx2.AsyncClient(
            # SDKs use absolute URLs.
            base_url=base_url if kind == "http" else "",
            headers={"user-agent": f"alipes/{alipes.__version__}"},
            # Cookies must not leak from one conversation to another.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            timeout=timeout,
            follow_redirects=follow_redirects,
            transport=straight,
            mounts=ways,
            trust_env=False,
        )
        watch = weakref.ref(client, self._dropped.append)
        wires = (straight, *(way for way in ways.values() if way is not None))
        self._owned[watch] = OpenClient(name, kind, base_url, time.time(), watch, wires)
        return client, None if ways else straight

    async def _close_dropped(self) -> None:
        """Close the connections of garbage-collected clients, and forget closed clients."""
        gone = [watch for watch, owned in self._owned.items() if owned.closed]
        while self._dropped:
            gone.append(self._dropped.popleft())
        leaving = [owned for watch in gone if (owned := self._owned.pop(watch, None))]

        async def close_each() -> None:
            for owned in leaving:
                await _close(owned, [])

        if leaving:
            await run_to_completion(close_each)

    def __del__(self) -> None:
        if self._loop is not None:
            warnings.warn("a ClientScope was dropped while open", ResourceWarning, source=self, stacklevel=2)


class HttpClient:
    """A client with one connection pool, owned by a scope. Raises `httpx2.HTTPError` subclasses.

    A request that is cancelled, fails or is left early closes only its own connection.
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
        """Send a request; yields the response with its body unread. `stall`: overrides the client's.

        If the body is read to its end, the connection is reused; otherwise it is closed at the end of
        the context.
        """
        response = await self._answer(method, url, headers or {}, content, stall)
        try:
            yield response
        finally:
            if not response.is_closed:
                await run_to_completion(response.aclose)

    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, stall: float | None
    ) -> httpx2.Response:
        client = await self._open_client()
        timeout = self._timeout if stall is None else _timeout(stall, self._timeout.connect or stall)
        if self._wire is None:
            built = client.build_request(method, url, headers=headers, content=content, timeout=timeout)
            return await client.send(built, stream=True)
        # Bypass the client: its cookies, redirects and hooks are off, and cost a third of the time.
        place, host = _absolute_url(self.base_url, url)
        given = {"host": host, **self._headers, **{name.lower(): value for name, value in headers.items()}}
        if content or method in ("POST", "PUT", "PATCH"):
            given.setdefault("content-length", str(len(content or b"")))
        # The headers are complete; passing `content` would build and scan them four times.
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
        """Send a request and read the whole response; `timeout` limits the total time."""
        try:
            async with asyncio.timeout(timeout):
                async with self.stream(method, url, headers=headers, content=content, stall=stall) as response:
                    await response.aread()
                return response
        except TimeoutError as late:
            if timeout is None:
                raise
            raise httpx2.ReadTimeout(f"no complete response within {timeout} s") from late

    async def _open_client(self) -> httpx2.AsyncClient:
        self._scope._check_loop()
        if self._client.is_closed:
            log.warning("client %r was closed by other code; replacing it", self.name)
            self._client, self._wire = self._open()
        await self._scope._close_dropped()
        if self._client.is_closed:
            raise RuntimeError(f"Client {self.name!r} was replaced and closed again by other code.")
        return self._client

    def _open(self) -> tuple[httpx2.AsyncClient, RouteTransport | None]:
        return self._scope._open(self.name, "http", self.base_url, timeout=self._timeout, permits=self._permits)

    @property
    def uses_proxy(self) -> bool:
        """True if requests may go through a proxy."""
        return self._wire is None


@lru_cache(maxsize=256)
def _absolute_url(base: str, url: str) -> tuple[httpx2.URL, str]:
    """The absolute URL and its Host header. Cached, because the same few URLs are requested often."""
    place = httpx2.URL(url)
    if place.is_relative_url:
        place = httpx2.URL(f"{base.rstrip('/')}/{url.lstrip('/')}")
    return place, place.netloc.decode("ascii")


def _timeout(stall: float, connect: float) -> httpx2.Timeout:
    return httpx2.Timeout(connect=connect, read=stall, write=stall, pool=None)


async def _close(owned: OpenClient, failures: list[Exception]) -> None:
    try:
        await owned.close()
    except (httpx2.HTTPError, OSError, RuntimeError) as error:
        log.warning("closing the %s client %r failed", owned.kind, owned.name, exc_info=error)
        failures.append(error)
