"""The HTTP door: who is let in, and the server that holds it open. It answers nothing by itself."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope
from uvicorn.protocols.http.h11_impl import H11Protocol

from alipes.kernel.errors import ConfigError
from alipes.runtime.http.proxies import is_loopback
from alipes.web import sessions
from alipes.web.auth import Keys, nobody
from alipes.web.endpoint import FRESH, Call, Endpoint, House, Problem, Scope, refusal, shape_at
from alipes.web.openai import endpoints as openai
from alipes.web.runs import endpoints as runs
from alipes.web.runs.events import Runs

GRACE = 2
"""Seconds that requests have to be answered when we leave."""
PATIENCE = 20.0
"""Seconds in which a caller must have said what they want."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that waits for callers; ConfigError where it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
    except OSError as error:
        door.close()
        fix = (
            "another program has it: set serve.port" if error.errno == 98 else "set serve.host and serve.port"
        )
        raise ConfigError(f"cannot listen on {written(host, port)} ({error.strerror}); {fix}") from error
    return door


def written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(door: socket.socket) -> str:
    """Where callers find it."""
    host, port, *_ = door.getsockname()
    return f"http://{written(host, port)}"


class Doorway(Struct, frozen=True):
    """Where the door is, and under which names and from which pages it may be called."""

    host: str = "127.0.0.1"
    """Where it listens."""
    hosts: frozenset[str] = frozenset()
    """Names by which it is called, beside numbers and this machine's own."""
    origins: frozenset[str] = frozenset()
    """Pages that may ask, beside our own: `https://NAME`, with a port where there is one."""

    @property
    def private(self) -> bool:
        """Only this machine can reach it."""
        return is_loopback(self.host)

    def called(self, name: str) -> bool:
        """May it be called by this name? One that was rebound to our number is none of ours."""
        name = name.lower()
        if is_loopback(name) or name in self.hosts:
            return True
        return not self.private and (name == self.host.lower() or _is_number(name))

    def heeds(self, headers: Headers) -> bool:
        """May the page ask from which this comes, if it comes from one?"""
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        _, _, place = origin.partition("://")
        return origin in self.origins or (bool(place) and place == headers.get("host"))


class Porter:
    """Turns away who should not ask.

    A page in a browser must not reach us: neither under a name that was rebound to this machine, nor
    from another origin, with a key or without. `guarded` asks for a key where the door can be reached from
    elsewhere; all other paths guard themselves.
    """

    def __init__(self, app: ASGIApp, doorway: Doorway, keys: Keys, *, guarded: Collection[str] = ()) -> None:
        self._app, self._doorway, self._keys, self._guarded = app, doorway, keys, frozenset(guarded)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        try:
            await self._check(headers, scope["path"])
        except Problem as problem:
            return await refusal(problem, shape_at(scope["path"]))(scope, receive, send)
        origin = headers.get("origin", "")
        if origin not in self._doorway.origins:
            return await self._app(scope, receive, send)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            return await Response(status_code=204, headers=_allowing(origin, headers))(scope, receive, send)
        return await self._app(scope, receive, _with_origin(send, origin))

    async def _check(self, headers: Headers, path: str) -> None:
        if not self._doorway.called(_bare(headers.get("host", ""))):
            raise Problem(421, "this door is not called so; its names are in api.hosts", code="host")
        if not self._doorway.heeds(headers):
            raise Problem(403, "pages of others may not ask, but those in api.origins", code="origin")
        if path not in self._guarded or self._doorway.private:
            return
        if await self._keys.who(headers.get("authorization", "")) is None:
            raise nobody()


def _bare(host: str) -> str:
    """The `Host` header without its port."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _allowing(origin: str, headers: Headers) -> dict[str, str]:
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": "600",
        "vary": "origin",
    }


def _with_origin(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = "retry-after"
            headers.add_vary_header("origin")
        await send(message)

    return sending


class _Line(H11Protocol):
    """A connection on which it must be said in time what is wanted."""

    patience = PATIENCE
    _looked = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look(None)

    def _look(self, before: object) -> None:
        """Close it where nothing was asked since the last look, and nothing is being answered."""
        if self.transport.is_closing():
            return
        idle = self.cycle is before and (before is None or self.cycle.response_complete)
        if idle and self._looked:
            self.transport.close()
            return
        self._looked = True
        self.loop.call_later(self.patience, self._look, self.cycle)


@asynccontextmanager
async def open_door(
    app: Starlette | ASGIApp, door: socket.socket, *, patience: float = PATIENCE
) -> AsyncIterator[None]:
    """Serve `app` at `door` while entered, in the tasks of the running loop; signals stay ours."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        http=type("Line", (_Line,), {"patience": patience}),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # Not `serve`: that takes the signals, and looks ten times a second whether it is to end.
    await server.startup(sockets=[door])
    try:
        yield
    finally:
        await _close(server, door)


async def _close(server: uvicorn.Server, door: socket.socket) -> None:
    """As its own `shutdown`, which looks ten times a second whether it is done; with the same patience."""
    for each in server.servers:
        each.close()
    door.close()
    state = server.server_state
    for line in tuple(state.connections):
        line.shutdown()
    if state.tasks:
        _, late = await asyncio.wait(tuple(state.tasks), timeout=GRACE)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=GRACE)
    await asyncio.sleep(0)  # what is closed is closed in the next round


class Myself(Struct, frozen=True):
    """Whose key it is, and what it may do."""

    name: str
    scopes: list[Scope]


async def _myself(call: Call) -> Response:
    may = [scope for scope in _SCOPES if call.caller.may(scope)]
    content = msgspec.json.encode(Myself(call.caller.name, may))
    return Response(content, media_type="application/json", headers=FRESH)


_SCOPES: tuple[Scope, ...] = ("read", "run", "admin")
_OWN = Endpoint(
    method="GET",
    path="/v1/key",
    scope="read",
    handle=_myself,
    summary="Whose key is shown, and what it may do.",
    answer=Myself,
)


def endpoints(house: House, living: Runs) -> tuple[Endpoint, ...]:
    """`living` has to serve meanwhile; where it works, tools work for all callers."""
    return (
        _OWN,
        *runs.endpoints(house, living),
        *sessions.endpoints(house),
        *openai.endpoints(house, workdir=living.workdir),
    )
