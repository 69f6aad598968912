"""HTTP transports of servers: streamable HTTP, and the older one by server-sent events."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from alipes.features.mcp.settings import McpServerConfig
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.lent_clients import REFUSED, LentClient, open_lent_client

SSE_STATUSES = (400, 404, 405, 406, 415)
"""Answers of a server that does not know the newer transport."""


class HttpTransport:
    """The client of one server; it is used for one connection."""

    def __init__(self, name: str, config: McpServerConfig, lent: LentClient, auth: Any = None) -> None:
        """`auth`: its `problem`, if it has one, says why requests are refused and what to do."""
        self.name, self._config, self._lent, self._auth = name, config, lent, auth

    @property
    def last_status(self) -> int:
        """The last HTTP error; 0 if there was none."""
        return self._lent.last_status

    @property
    def may_be_sse(self) -> bool:
        return self.last_status in SSE_STATUSES

    @property
    def login_problem(self) -> str:
        """Why the last request was refused, as the end of a sentence; empty if it was not or has no login."""
        problem: str = getattr(self._auth, "problem", "")
        prefix = f"the MCP server {self.name} "
        return f"it {problem.removeprefix(prefix)}" if problem.startswith(prefix) else problem

    @property
    def refusal(self) -> str:
        """Why the server refuses requests and what to do; empty if its last error was another one."""
        if self.last_status not in REFUSED:
            return self.login_problem
        if any(header.lower() == "authorization" for header in self._config.headers):
            return f"it refuses the Authorization header of its settings (HTTP {self.last_status})"
        needs = f"it needs a login (HTTP {self.last_status}): run `alipes mcp login {self.name}`"
        return self.login_problem or needs

    def open_streams(self, kind: str) -> AbstractAsyncContextManager[Any]:
        """The streams of the transport `http` or `sse`."""
        if kind == "sse":
            return sse_client(self._config.url, httpx_client_factory=self._lend)
        return streamable_http_client(self._config.url, http_client=self._lent.client)

    def _lend(self, headers: object = None, timeout: object = None, auth: object = None) -> Any:
        return self._lent.client


@asynccontextmanager
async def open_http(
    name: str, config: McpServerConfig, clients: ClientScope, auth: Any = None
) -> AsyncIterator[HttpTransport]:
    lent = open_lent_client(clients, f"mcp:{name}", config.url, headers=config.headers, auth=auth)
    async with lent as client:
        yield HttpTransport(name, config, client, auth)
