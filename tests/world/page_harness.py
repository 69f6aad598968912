"""The page on a real server and a real store, and browsers that log in to it."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
from starlette.types import ASGIApp

from alipes.store.sql.browsers import BrowserScope, BrowserStore
from alipes.store.sqlite.database import open_database
from alipes.web.auth import Authenticator, RequestLimits
from alipes.web.endpoint import endpoints_of
from alipes.web.page.browsers import BrowserEndpoints, BrowserLogins
from alipes.web.page.location import PageLocator
from alipes.web.page.static import PageFiles
from alipes.web.router import ApiRouter
from alipes.web.server import HostPolicy, KeyEndpoint, bind_socket, open_server, server_url
from tests.unit.web.test_server import KEY, Room, find
from tests.unit.web.test_web import Parts


class PageHarness:
    """A server with the page, an API of example endpoints, and a clock that a test moves."""

    def __init__(self, url: str, browsers: BrowserStore, logins: BrowserLogins, room: Room) -> None:
        self.url, self.browsers, self.logins, self.room = url, browsers, logins, room
        self.skipped_s = 0.0
        self.keys: Authenticator
        self.paths: list[str] = []

    def now(self) -> float:
        return time.time() + self.skipped_s

    @asynccontextmanager
    async def client(self, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
        async with httpx2.AsyncClient(base_url=self.url, trust_env=False, headers=headers) as client:
            yield client

    @asynccontextmanager
    async def browser(self, scope: BrowserScope = "admin", **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
        """A client that is logged in: it keeps the cookie and sends the secret."""
        async with self.client(**headers) as client:
            answer = await self.log_in(client, scope)
            client.headers["x-alipes-page"] = answer["secret"]
            yield client

    async def log_in(self, client: httpx2.AsyncClient, scope: BrowserScope = "admin") -> dict[str, Any]:
        code = await self.browsers.add_code(scope)
        answer = await client.post("/page/login", json={"code": code.code})
        assert answer.status_code == 200, answer.text
        login: dict[str, Any] = answer.json()
        return login


@asynccontextmanager
async def open_page(
    home: Path,
    *,
    address: str = "",
    trusted: tuple[str, ...] = (),
    run: Path | None = None,
    wrap: Callable[[ASGIApp], ASGIApp] = lambda app: app,
    **policy: Any,
) -> AsyncIterator[PageHarness]:
    """`run`: names the processes of the agent; without it, nobody is taken for one of them. `wrap`: a proxy before
    the server."""
    async with open_database(home / "alipes.db") as database:
        harness: PageHarness
        browsers = BrowserStore(database, clock=lambda: harness.now())
        keys = Authenticator(KEY, find, run=run)
        logins = BrowserLogins(browsers, keys, PageLocator(address, trusted), home=str(home))
        room = Room()
        key = KeyEndpoint(SimpleNamespace(store=SimpleNamespace(clustered=False)))  # type: ignore[arg-type]
        endpoints = (*endpoints_of(key), *endpoints_of(BrowserEndpoints(logins, address)), *room.endpoints())
        router = ApiRouter(endpoints, keys, RequestLimits(rate=0), logins=logins)
        with bind_socket("127.0.0.1", 0) as door:
            harness = PageHarness(server_url(door), browsers, logins, room)
            harness.keys = keys
            harness.paths = sorted({each.path for each in endpoints})
            routes = [*PageFiles().routes(), *logins.routes()]
            app = Parts().service().app(HostPolicy(**policy), keys, router, routes)
            async with open_server(wrap(app), door):
                yield harness
                await router.disconnect_all()
