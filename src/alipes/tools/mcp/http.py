"""HTTP transports: a client of ours for the SDK, and the older transport by server-sent events."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client

from alipes.config.mcp import McpServerConfig
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import is_public

CONNECT_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 30.0
SSE_STATUSES = (400, 404, 405, 406, 415)
"""Answers of a server that does not know the newer transport."""


class HttpTransport:
    """The client of one server."""

    def __init__(self, name: str, url: str, client: httpx2.AsyncClient) -> None:
        self.name, self._url, self.client = name, url, client
        self.last_status = 0
        """The last HTTP error; 0 if there was none."""
        client.event_hooks = {"request": [], "response": [self._note_status]}

    @property
    def may_be_sse(self) -> bool:
        return self.last_status in SSE_STATUSES

    def open_sse(self) -> AbstractAsyncContextManager[Any]:
        return sse_client(self._url, httpx_client_factory=self._make)

    def _make(self, headers: object = None, timeout: object = None, auth: object = None) -> httpx2.AsyncClient:
        return self.client

    async def _note_status(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self.last_status = response.status_code


@asynccontextmanager
async def open_http(
    name: str, config: McpServerConfig, clients: ClientScope, auth: Any = None
) -> AsyncIterator[HttpTransport]:
    """The configured host may be private, because the operator named it; others, such as login servers, may not."""
    host = httpx2.URL(config.url).host.lower()

    def permits(name: str, _port: int, address: str) -> bool:
        return name.lower().strip("[]") == host.strip("[]") or is_public(address)

    limits = httpx2.Timeout(connect=CONNECT_TIMEOUT_S, read=None, write=WRITE_TIMEOUT_S, pool=None)
    async with clients.lend(f"mcp:{name}", limits=limits, permits=permits) as client:
        client.headers.update(config.headers)
        client.auth = auth
        yield HttpTransport(name, config.url, client)
