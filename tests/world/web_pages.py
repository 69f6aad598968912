"""Pages served on loopback under several host names, and the browser tools that visit them."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from alipes.agent.approval.egress import EgressRights
from alipes.config.settings import EgressConfig
from alipes.features.browser.page_tools import browser_tools
from alipes.features.browser.sessions import BrowserSessions
from alipes.features.browser.settings import BrowserConfig
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.public_fetch import AddressGuard
from alipes.runtime.http.upstream import ByteStream, UpstreamConnector
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import Places
from tests.world.environment import LIMIT_S
from tests.world.loopback import open_site


class PageServer:
    """Answers every path that was added, under every host; remembers what was requested."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.port = 0
        self.runner: web.AppRunner | None = None

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self.runner.server.connections) if self.runner and self.runner.server else 0

    def add(self, path: str, html: Any, kind: str = "text/html", **headers: str) -> str:
        """Serve text, bytes, or the answer of an async function; returns the URL on loopback."""
        self.pages[path] = html if callable(html) else (html, kind, headers)
        return self.url(path)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def requested(self, host: str) -> list[str]:
        """The paths that were requested under this name."""
        return [path for name, path in self.requests if name.partition(":")[0] == host]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.host, request.path))
        page = self.pages.get(request.path)
        if page is None:
            return web.Response(status=404, text="not here")
        if callable(page):
            answer: web.StreamResponse = await page(request)
            return answer
        body, kind, headers = page
        data = body if isinstance(body, bytes) else body.encode()
        return web.Response(body=data, headers={"content-type": f"{kind}; charset=utf-8", **headers})


@asynccontextmanager
async def open_page_server() -> AsyncIterator[PageServer]:
    server = PageServer()
    app = web.Application(client_max_size=50_000_000)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner, server.port = await open_site(app, 0)
    server.runner = runner
    try:
        yield server
    finally:
        await runner.cleanup()


class NamedHosts(UpstreamConnector):
    """Leads names that end with `.test` to a server on loopback, as if they had public addresses."""

    def __init__(self, guard: AddressGuard, server: PageServer) -> None:
        super().__init__(guard)
        self._server = server

    async def _connect_directly(self, host: str, port: int) -> ByteStream:
        if host.endswith(".test"):
            return ByteStream(*await asyncio.open_connection("127.0.0.1", self._server.port))
        return await super()._connect_directly(host, port)


class Person:
    """Answers questions about hosts; keeps them."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, call: Any, reason: str, turn: Turn) -> Any:
        host = str(call.args["host"])
        self.asked.append(host)
        await self.may_answer.wait()
        return self.answers.get(host, "no")


class CallContext:
    """The context of one tool call."""

    call_id = "c1"

    def __init__(self, session: str, workdir: str, turn: Turn | None) -> None:
        self.session, self.workdir, self.turn = session, workdir, turn
        self.shown: list[str] = []

    async def progress(self, text: str) -> None:
        self.shown.append(text)


def make_turn(id: str = "t1", **more: Any) -> Turn:
    return Turn(id, "s1", Inbound("m1", Address("cli", "c"), "ann", "go", **more))


class BrowserWorld:
    """A browser, the pages it visits, and the person who is asked."""

    def __init__(self, server: PageServer, person: Person, sessions: BrowserSessions, home: str) -> None:
        self.server, self.person, self.sessions, self.home = server, person, sessions, home
        self.workdir = os.path.join(home, "work")
        self.secrets: set[str] = set()
        self.boundary = FileBoundary(Places(home=home, alipes_home=os.path.join(home, ".alipes")))
        self.tools = {tool.spec.name: tool for tool in browser_tools(sessions, self.boundary, self._mask)}
        self.last: CallContext | None = None
        self.number = 0
        """Of the test, so that each has a turn of its own."""

    def _mask(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    async def run(self, tool: str, *, session: str = "s1", turn: Turn | None = None, **args: Any) -> Any:
        """The result of a tool, as it returns it."""
        self.last = CallContext(session, self.workdir, turn or make_turn(f"turn {self.number}"))
        return await self.tools[f"browser_{tool}"].run(args, self.last)

    async def show(self, html: str, **more: Any) -> str:
        """Open a page with this content."""
        self.server.add("/shown", f"<!doctype html><title>Shown</title>{html}")
        return str(await self.run("navigate", url=self.server.url("/shown"), **more))

    async def forget(self) -> None:
        """After a test: close the pages of its conversation, and forget what was requested and asked."""
        self.number += 1
        await self.sessions.close("s1")
        self.server.requests.clear()
        self.server.bodies.clear()
        self.person.answers.clear()
        self.person.asked.clear()
        self.person.may_answer.set()
        self.secrets.clear()
        self.sessions.element_timeout_s = LIMIT_S
        while self.server.connections:
            await asyncio.sleep(0.01)

    def ref(self, text: str, label: str) -> str:
        """The reference in the first line of a snapshot that contains the label."""
        found = (re.search(r"\[((?:f\d+)?e\d+)\]", line) for line in text.splitlines() if label in line)
        return next(each[1] for each in found if each)


@asynccontextmanager
async def open_browser_world(
    home: str, *, keeper: OrphanGuard | None = None, egress: EgressConfig | None = None, **settings: Any
) -> AsyncIterator[BrowserWorld]:
    """Everything but the browser process, which the first tool starts. Loopback is allowed by its address only."""
    os.makedirs(os.path.join(home, "work"), exist_ok=True)
    person = Person()
    async with open_page_server() as server:
        guard = AddressGuard([f"127.0.0.1:{server.port}"])
        async with EgressRights(egress or EgressConfig(), guard, person.ask) as rights:
            sessions = BrowserSessions(
                BrowserConfig(enabled=True, **{"timeout": LIMIT_S, **settings}),
                rights,
                NamedHosts(guard, server),
                environ={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
                folder=Path(home, ".alipes", "browser"),
                keeper=keeper,
            )
            sessions.element_timeout_s = LIMIT_S
            async with sessions:
                yield BrowserWorld(server, person, sessions, home)
