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
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from msgspec import Struct

import alipes
from alipes.kernel.errors import MissingExtra
from alipes.kernel.models import Endpoint, Proxies
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.http.messages import HttpRequest, HttpResponse, Timeouts, absolute_url
from alipes.runtime.http.proxies import TlsTrust
from alipes.runtime.http.sockets import MayConnect
from alipes.runtime.http.transport import DirectTransport
from alipes.runtime.tasks import run_to_completion

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

_Handle: TypeAlias = tuple[str, str, float, float, MayConnect | None]
NO_KEY = "none"
"""Sent by an SDK to an endpoint without a key; otherwise it would take one from the environment."""
USER_AGENT = f"alipes/{alipes.__version__}"
HEADERS = {"accept": "*/*", "accept-encoding": "gzip, deflate", "connection": "keep-alive", "user-agent": USER_AGENT}


class Wire(Protocol):
    """Connections of a client."""

    requests: int

    async def aclose(self) -> None: ...


class OpenClient(Struct, frozen=True, eq=False):
    """A client of a scope: strong references to its connections, and a weak one to a client that a library has."""

    name: str
    kind: str
    """`http`, `openai` or `anthropic`."""
    base_url: str
    opened: float
    wires: tuple[Wire, ...]
    client: "weakref.ref[httpx2.AsyncClient] | None" = None

    @property
    def closed(self) -> bool:
        client = None if self.client is None else self.client()
        return client is not None and client.is_closed

    @property
    def requests(self) -> int:
        return sum(wire.requests for wire in self.wires)

    async def close(self) -> None:
        if self.client is not None and (client := self.client()) is not None:
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
        self._owned: dict[Wire | weakref.ref[httpx2.AsyncClient], OpenClient] = {}
        """By the watched client, or by the connections of one of our own."""
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
        self, name: str, *, limits: "httpx2.Timeout", permits: MayConnect | None = None
    ) -> "AsyncIterator[httpx2.AsyncClient]":
        """A plain client for a library that takes one; closed at the end of the block. It follows no redirects."""
        self._check_loop()
        await self._close_dropped()
        client = self.open_httpx(name, "http", "", timeout=limits, permits=permits)
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

    @property
    def is_open(self) -> bool:
        return self._loop is not None

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
            why = f"The vendor's SDK is not installed ({missing}): run `alipes install sdk`"
            raise MissingExtra(why, "sdk") from missing

    def _for_sdk(self, kind: str, endpoint: Endpoint, base_url: str) -> dict[str, Any]:
        timeout = httpx2.Timeout(connect=endpoint.connect, read=endpoint.stall, write=endpoint.stall, pool=None)
        client = self.open_httpx(endpoint.name, kind, base_url, timeout=timeout, follow_redirects=True)
        headers, key = dict(endpoint.headers), endpoint.key.reveal() or NO_KEY
        return {
            "api_key": key,
            "base_url": base_url,
            "default_headers": headers,
            "max_retries": 0,
            "http_client": client,
        }

    def open_direct(self, name: str, base_url: str, permits: MayConnect | None) -> DirectTransport | None:
        """Connections of a client of our own; None if its requests may go through a proxy."""
        if self._proxies.used:
            return None
        direct = DirectTransport(lambda: self._trust.tls, permits)
        self._owned[direct] = OpenClient(name, "http", base_url, time.time(), (direct,))
        return direct

    def open_httpx(
        self,
        name: str,
        kind: str,
        base_url: str,
        *,
        timeout: "httpx2.Timeout",
        follow_redirects: bool = False,
        permits: MayConnect | None = None,
    ) -> "httpx2.AsyncClient":
        from http.cookiejar import CookieJar, DefaultCookiePolicy  # noqa: PLC0415

        from alipes.runtime.http.httpx_transport import RouteTransport, proxy_routes  # noqa: PLC0415

        straight, ways = (RouteTransport(self._trust, permits=permits), proxy_routes(self._proxies, self._trust))
        client = httpx2.AsyncClient(
            # SDKs use absolute URLs.
            base_url=base_url if kind == "http" else "",
            headers={"user-agent": USER_AGENT},
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
        self._owned[watch] = OpenClient(name, kind, base_url, time.time(), wires, watch)
        return client

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
        self.name, self.base_url, stall, connect, permits = key
        self._timeouts = Timeouts(connect, stall, stall)
        self._direct = scope.open_direct(self.name, self.base_url, permits)
        self._client: httpx2.AsyncClient | None = None
        """With a proxy: httpx2 chooses the way."""
        if self._direct is None:
            none = httpx2.Timeout(None)
            self._client = scope.open_httpx(self.name, "http", self.base_url, timeout=none, permits=permits)

    @property
    def is_closed(self) -> bool:
        return not self._scope.is_open

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        stall: float | None = None,
    ) -> AsyncIterator[HttpResponse]:
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
    ) -> HttpResponse:
        self._scope._check_loop()
        await self._scope._close_dropped()
        timeouts = self._timeouts
        if stall is not None:
            timeouts = Timeouts(timeouts.connect or stall, stall, stall)
        if self._direct is None:
            return await self._answer_by_httpx(method, url, headers, content, timeouts)
        place = absolute_url(self.base_url, url)
        given = {"host": place.authority, **HEADERS, **{name.lower(): value for name, value in headers.items()}}
        if content or method in ("POST", "PUT", "PATCH"):
            given.setdefault("content-length", str(len(content or b"")))
        encoded = [(name.encode("ascii"), value.encode("ascii")) for name, value in given.items()]
        return await self._direct.send(HttpRequest(method, place, encoded, content or b"", timeouts))

    async def _answer_by_httpx(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, timeouts: Timeouts
    ) -> HttpResponse:
        from alipes.runtime.http.httpx_transport import send_by_httpx  # noqa: PLC0415

        assert self._client is not None
        limits = httpx2.Timeout(connect=timeouts.connect, read=timeouts.read, write=timeouts.write, pool=None)
        built = self._client.build_request(method, url, headers=headers, content=content, timeout=limits)
        return await send_by_httpx(self._client, built)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        stall: float | None = None,
    ) -> HttpResponse:
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

    @property
    def uses_proxy(self) -> bool:
        """True if requests may go through a proxy."""
        return self._direct is None


async def _close(owned: OpenClient, failures: list[Exception]) -> None:
    try:
        await owned.close()
    except (httpx2.HTTPError, OSError, RuntimeError) as error:
        log.warning("closing the %s client %r failed", owned.kind, owned.name, exc_info=error)
        failures.append(error)
