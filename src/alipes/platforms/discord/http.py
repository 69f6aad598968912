"""discord.py's REST client with our base URL: one attempt per call, and a session that we close.

The library's own client waits for rate limits and makes five attempts; here the caller decides.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import yarl
from discord import DiscordServerError, Forbidden, HTTPException, LoginFailure, NotFound, RateLimited
from discord.file import File
from discord.gateway import DiscordClientWebSocketResponse
from discord.http import HTTPClient, Route, json_or_text
from discord.types.user import User
from msgspec import Struct

from alipes.platforms.discord.settings import DiscordConfig
from alipes.platforms.files import CHUNK
from alipes.runtime.http.proxies import is_loopback

MAX_RATE_WAIT = 5.0
"""Seconds that a call waits for its rate limit; a longer wait is raised as `RateLimited`."""
UPLOAD_TIMEOUT = 120.0
CLOSE_TIMEOUT = 2.0
"""Seconds for the close handshake of the socket."""


class RateWindow(Struct):
    """Remaining calls of one rate limit, and when it resets."""

    left: int
    ends: float


class DiscordHttp(HTTPClient):
    """Opened by `static_login` and closed by `close`, both in the task that owns the connection."""

    def __init__(self, loop: Any, settings: DiscordConfig) -> None:
        is_local = is_loopback(yarl.URL(settings.base_url).host or "")
        super().__init__(loop, proxy=None if is_local else settings.proxy or None)
        self._root, self._deadline = settings.base_url.rstrip("/"), settings.deadline
        self._session: aiohttp.ClientSession | None = None
        self._windows: dict[tuple[str, str, str], RateWindow] = {}
        self._closed_until = 0.0
        self.wire: aiohttp.ClientWebSocketResponse | None = None
        """The latest gateway socket."""

    @property
    def open(self) -> bool:
        return self._session is not None and not self._session.closed

    async def static_login(self, token: str) -> User:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                ws_response_class=DiscordClientWebSocketResponse,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        self.token = token
        try:
            user: User = await self.request(Route("GET", "/users/@me"))
        except HTTPException as refused:
            if refused.status == 401:
                raise LoginFailure("Discord does not know this token") from refused
            raise
        return user

    async def close(self) -> None:
        await self.hang_up()
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    async def hang_up(self) -> None:
        """Close the gateway socket if one is open, including one that the library lost track of."""
        wire, self.wire = self.wire, None
        if wire is not None and not wire.closed:
            await wire.close(code=1000)

    def clear(self) -> None:
        pass

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        await self.hang_up()
        self.wire = await self._require_session().ws_connect(
            url,
            proxy=self.proxy,
            max_msg_size=0,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT),
            autoclose=False,
            headers={"User-Agent": self.user_agent},
            compress=compress,
        )
        return self.wire

    async def request(
        self,
        route: Route,
        *,
        files: Sequence[File] | None = None,
        form: Iterable[dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Make one attempt. Raises discord.py's errors, `RateLimited` for every 429, and aiohttp's errors."""
        headers = {"User-Agent": self.user_agent, "Authorization": f"Bot {self.token}"}
        if reason := kwargs.pop("reason", None):
            headers["X-Audit-Log-Reason"] = reason
        if "json" in kwargs:
            headers["Content-Type"] = "application/json"
            kwargs["data"] = msgspec.json.encode(kwargs.pop("json"))
        if form:
            body = aiohttp.FormData(quote_fields=False)  # Discord does not read escaped brackets in field names
            for field in form:
                body.add_field(**field)
            kwargs["data"] = body
        url = self._root + route.url.removeprefix(Route.BASE)
        key = (route.method, route.path, route.major_parameters)
        await self._wait_for_slot(key)
        async with asyncio.timeout(UPLOAD_TIMEOUT if form else self._deadline):
            async with self._require_session().request(
                route.method, url, headers=headers, proxy=self.proxy, **kwargs
            ) as response:
                data = await json_or_text(response)
        self._update_window(key, response)
        if 200 <= response.status < 300:
            return data
        raise self._error(response, data)

    async def _wait_for_slot(self, key: tuple[str, str, str]) -> None:
        """Wait for the rate limit of this call, if that is short."""
        while True:
            window, now = self._windows.get(key), time.monotonic()
            wait = max(self._closed_until, window.ends if window and window.left <= 0 else 0.0) - now
            if wait > MAX_RATE_WAIT:
                raise RateLimited(wait)
            if wait <= 0:
                break
            await asyncio.sleep(wait)
        if window and window.ends > now:
            window.left -= 1
        elif window:
            del self._windows[key]

    def _update_window(self, key: tuple[str, str, str], response: aiohttp.ClientResponse) -> None:
        left, reset = (response.headers.get(f"X-RateLimit-{name}") for name in ("Remaining", "Reset-After"))
        if left is None or reset is None or response.status == 429:
            return
        known, ends = self._windows.get(key), time.monotonic() + float(reset)
        # answers of overlapping calls come in any order: the lower figure is the later one
        lower = min(int(left), known.left) if known and known.ends > time.monotonic() else int(left)
        self._windows[key] = RateWindow(lower, ends)
        if len(self._windows) > 1000:
            now = time.monotonic()
            self._windows = {name: window for name, window in self._windows.items() if window.ends > now}

    def _error(self, response: aiohttp.ClientResponse, data: Any) -> Exception:
        if response.status != 429:
            return _error_kind(response.status)(response, data)
        asked = data.get("retry_after") if isinstance(data, dict) else None
        wait = float(response.headers.get("Retry-After", 60)) if asked is None else float(asked)
        if isinstance(data, dict) and data.get("global"):
            self._closed_until = time.monotonic() + wait
        return RateLimited(wait)

    def _require_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise aiohttp.ClientConnectionError("Discord is not connected")
        return self._session

    @asynccontextmanager
    async def open_download(self, url: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The content of a file in chunks. The CDN does not get our token."""
        stall = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30)
        async with self._require_session().get(url, proxy=self.proxy, timeout=stall) as response:
            if response.status != 200:
                raise _error_kind(response.status)(response, "the file is not available")
            yield response.content.iter_chunked(CHUNK)


def _error_kind(status: int) -> type[HTTPException]:
    return {403: Forbidden, 404: NotFound}.get(status, DiscordServerError if status >= 500 else HTTPException)
