"""HTTP clients for libraries that speak a protocol of their own, such as the MCP SDK: for one host that the operator
named."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import is_public

CONNECT_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 30.0
REFUSED = (401, 403)
HttpError = httpx2.HTTPError
"""What requests of such a client raise."""


class LentClient:
    """A client and the last error status that it received."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client
        self.last_status = 0
        """0 if there was no error, or if a request was accepted after one was refused (401, 403)."""
        client.event_hooks = {"request": [], "response": [self._note_status]}

    async def _note_status(self, response: httpx2.Response) -> None:
        if response.status_code >= 400:
            self.last_status = response.status_code
        elif self.last_status in REFUSED:  # with a renewed login
            self.last_status = 0


@asynccontextmanager
async def open_lent_client(
    scope: ClientScope, name: str, url: str, *, headers: Mapping[str, str], auth: Any = None
) -> AsyncIterator[LentClient]:
    """A client without a limit on the time between two bytes, which follows no redirects.

    The host of `url` may be private, because the operator named it; others, such as login servers, may not. `auth` is
    an `httpx2.Auth` or None.
    """
    host = httpx2.URL(url).host.lower().strip("[]")

    def permits(name: str, _port: int, address: str) -> bool:
        return name.lower().strip("[]") == host or is_public(address)

    limits = httpx2.Timeout(connect=CONNECT_TIMEOUT_S, read=None, write=WRITE_TIMEOUT_S, pool=None)
    async with scope.lend(name, limits=limits, permits=permits) as client:
        client.headers.update(headers)
        client.auth = auth
        yield LentClient(client)
