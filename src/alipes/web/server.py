"""The HTTP server: socket, Host and Origin checks, uvicorn, and the list of all API endpoints."""

import asyncio
import ipaddress
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager

import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope
from uvicorn.protocols.http.h11_impl import H11Protocol

from alipes.core.app import App
from alipes.kernel.errors import ConfigError
from alipes.runtime.http.proxies import is_loopback
from alipes.runtime.log_file import log_context
from alipes.runtime.step_limit import StepLimit
from alipes.web.activity import ActivityEndpoints
from alipes.web.admission import TurnAdmission
from alipes.web.auth import Authenticator, peer_address, unauthorized_problem
from alipes.web.commands import CommandEndpoints
from alipes.web.endpoint import (
    REQUEST_ID,
    SCOPES,
    ApiCall,
    ApiEndpoint,
    HttpProblem,
    Scope,
    endpoints_of,
    error_format_at,
    json_response,
    problem_response,
)
from alipes.web.events import EventEndpoints
from alipes.web.files import ApiFiles, FileEndpoints
from alipes.web.inbox import InboxEndpoints
from alipes.web.messages import MessageEndpoints
from alipes.web.runs.endpoints import RunEndpoints
from alipes.web.runs.events import LiveRuns
from alipes.web.runs.lookup import RunLookup
from alipes.web.sessions import SessionEndpoints
from alipes.web.templates import TemplateEndpoints
from alipes.web.versions import VersionEndpoints

log = logging.getLogger(__name__)

SHUTDOWN_GRACE_S = 2
"""Seconds that open requests have to finish at shutdown."""
IDLE_TIMEOUT_S = 20.0
"""Seconds in which a new connection must send a request."""


def bind_socket(host: str, port: int) -> socket.socket:
    """A bound socket. Raises ConfigError if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol: asyncio sets TCP_NODELAY only on sockets that say they are TCP.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        fix = "the port is in use: set serve.port" if error.errno == 98 else "set serve.host and serve.port"
        raise ConfigError(f"cannot listen on {format_address(host, port)} ({error.strerror}); {fix}") from error
    return sock


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server_url(sock: socket.socket) -> str:
    """The URL at which clients reach the socket."""
    host, port, *_ = sock.getsockname()
    return f"http://{format_address(host, port)}"


class HostPolicy(Struct, frozen=True):
    """Which Host and Origin headers are accepted."""

    host: str = "127.0.0.1"
    """The address the server listens on."""
    hosts: frozenset[str] = frozenset()
    """Accepted host names, besides IP addresses and this machine's own names."""
    origins: frozenset[str] = frozenset()
    """Accepted origins besides our own: `https://NAME`, with a port if it has one."""
    page: str = ""
    """The origin of the page behind a proxy, which is our own, whatever Host the proxy sends."""

    @property
    def is_local(self) -> bool:
        """True if only this machine can connect."""
        return is_loopback(self.host)

    def allows_host(self, name: str) -> bool:
        """True if the Host header may be `name`. Other names may be DNS rebinding attacks."""
        name = name.lower()
        if is_loopback(name) or name in self.hosts:
            return True
        return not self.is_local and (name == self.host.lower() or _is_ip_address(name))

    def allows_origin(self, headers: Headers) -> bool:
        """True if the request does not come from a web page, or from an accepted one."""
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        _, _, place = origin.partition("://")
        ours = place == headers.get("host") or origin == self.page
        return origin in self.origins or (bool(place) and ours)


class HostPolicyMiddleware:
    """Rejects requests from foreign web pages.

    A web page must not reach us, neither through DNS rebinding nor from another origin, with or without
    a key. `guarded` paths need a key if other machines can connect; all others check access themselves.
    """

    def __init__(self, app: ASGIApp, policy: HostPolicy, keys: Authenticator, *, guarded: Collection[str] = ()) -> None:
        self._app, self._policy, self._keys, self._guarded = app, policy, keys, frozenset(guarded)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        try:
            await self._check(headers, scope["path"], peer_address(scope.get("client")))
        except HttpProblem as problem:
            return await problem_response(problem, error_format_at(scope["path"]))(scope, receive, send)
        origin = headers.get("origin", "")
        if origin not in self._policy.origins:
            return await self._app(scope, receive, send)
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            return await Response(status_code=204, headers=_cors_headers(origin, headers))(scope, receive, send)
        return await self._app(scope, receive, _add_cors_headers(send, origin))

    async def _check(self, headers: Headers, path: str, peer: str) -> None:
        host = _HOST.fullmatch(headers.get("host", ""))
        if host is None:
            raise HttpProblem(400, "the Host header is not valid; send HOST or HOST:PORT", code="host")
        if not self._policy.allows_host(host[1]):
            raise HttpProblem(421, "Host not allowed; see api.hosts", code="host")
        if not self._policy.allows_origin(headers) and not (_may_be_opened(path) and _is_navigation(headers)):
            raise HttpProblem(403, "Origin not allowed; see api.origins", code="origin")
        if path not in self._guarded or self._policy.is_local:
            return
        if await self._keys.authenticate(headers.get("authorization", ""), peer) is None:
            raise unauthorized_problem()


NAVIGABLE = frozenset({"/", "/install"})
"""Documents without data: a link on any other page may lead to them, and to those that a link was made for."""
SHARED = "/shared/"


def _may_be_opened(path: str) -> bool:
    return path in NAVIGABLE or path.startswith(SHARED)


def _is_navigation(headers: Headers) -> bool:
    """True if a person opens the address in a tab, and not a script, a form or a frame of another page."""
    fetch = {name: headers.get(f"sec-fetch-{name}") for name in ("mode", "dest")}
    return "origin" not in headers and fetch == {"mode": "navigate", "dest": "document"}


_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]*)(?::[0-9]{1,5})?")
"""A `Host` header; the group is the host without its port."""


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _cors_headers(origin: str, headers: Headers) -> dict[str, str]:
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, POST, PATCH, DELETE",
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": "600",
        "vary": "origin",
    }


def _add_cors_headers(send: Send, origin: str) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = "retry-after, x-request-id, mcp-session-id"
            headers.add_vary_header("origin")
        await send(message)

    return sending


NO_SNIFF = ("x-content-type-options", "nosniff")
"""On every answer: a browser must not guess another content type."""
_DEFAULT_HEADERS = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
"""On every answer that does not set its own: no browser shows it as a page, in a frame or in another site."""
POSTS_PER_STEP = 4
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class BurstMiddleware:
    """Starts few POST requests per step of the event loop: hundreds that come at once must not delay the others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._starts = app, StepLimit(POSTS_PER_STEP)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            await self._starts.wait()
        await self._app(scope, receive, send)


class CommonHeadersMiddleware:
    """Adds the headers of all answers, and gives each request an id: its own `x-request-id` if that is valid."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"req_{os.urandom(12).hex()}"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                headers[NO_SNIFF[0]] = NO_SNIFF[1]
                if not _is_page_file(scope["path"], message["status"]):
                    headers["x-request-id"] = request_id
                    for name, value in _DEFAULT_HEADERS.items():
                        headers.setdefault(name, value)
                _log_answer(scope, message["status"])
            await send(message)

        token = REQUEST_ID.set(request_id)
        try:
            with log_context(request=request_id):
                await self._app(scope, receive, send_with_headers)
        finally:
            REQUEST_ID.reset(token)


def _is_page_file(path: str, status: int) -> bool:
    """True for scripts and styles of the page: many, and never shown by themselves, so their heads are short."""
    return status == 200 and path.startswith("/static/") and path.endswith((".js", ".css"))


def _log_answer(scope: AsgiScope, status: int) -> None:
    """A failure of ours as a warning; not 503, with which we say on purpose that we are not ready."""
    level = logging.WARNING if status >= 500 and status != 503 else logging.DEBUG
    log.log(level, "%s %s was answered with status %d", scope["method"], scope["path"], status)


class _IdleTimeoutProtocol(H11Protocol):
    """Closes connections that do not send a request in time."""

    idle_timeout_s = IDLE_TIMEOUT_S
    _checked = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._check_idle(None)

    def _check_idle(self, before: object) -> None:
        """Close the connection if no request came since the last check and none is being answered."""
        if self.transport.is_closing():
            return
        idle = self.cycle is before and (before is None or self.cycle.response_complete)
        if idle and self._checked:
            self.transport.close()
            return
        self._checked = True
        self.loop.call_later(self.idle_timeout_s, self._check_idle, self.cycle)

    def send_400_response(self, msg: str) -> None:
        """The answer to what is not HTTP, with the headers of all answers."""
        headers = (("content-type", "text/plain; charset=utf-8"), NO_SNIFF, ("connection", "close"))
        lines = ("HTTP/1.1 400 Bad Request", *(f"{name}: {value}" for name, value in headers), "", msg)
        self.transport.write("\r\n".join(lines).encode("ascii", "replace"))
        self.transport.close()


@asynccontextmanager
async def open_server(
    app: Starlette | ASGIApp, sock: socket.socket, *, patience: float = IDLE_TIMEOUT_S
) -> AsyncIterator[None]:
    """Serve `app` on `sock` while entered, on the running loop and without signal handlers."""
    config = uvicorn.Config(
        BurstMiddleware(CommonHeadersMiddleware(app)),
        lifespan="off",
        http=type("Line", (_IdleTimeoutProtocol,), {"idle_timeout_s": patience}),
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
    # Not `serve`: it installs signal handlers and polls ten times a second.
    await server.startup(sockets=[sock])
    try:
        yield
    finally:
        await _close(server, sock)


async def _close(server: uvicorn.Server, sock: socket.socket) -> None:
    """Like uvicorn's `shutdown`, but without polling."""
    for each in server.servers:
        each.close()
    sock.close()
    state = server.server_state
    for connection in tuple(state.connections):
        connection.shutdown()
    if state.tasks:
        _, pending = await asyncio.wait(tuple(state.tasks), timeout=SHUTDOWN_GRACE_S)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=SHUTDOWN_GRACE_S)
    await asyncio.sleep(0)  # transports close in the next iteration of the loop


class KeyInfo(Struct, frozen=True, omit_defaults=True):
    """A key's name and scopes."""

    name: str
    scopes: list[Scope]
    clustered: bool = False
    """True if several workers may serve the store: GET /v1/cluster shows them."""


class KeyEndpoint:
    def __init__(self, app: App) -> None:
        self._app = app

    @ApiEndpoint("GET", "/v1/key", "read", answer=KeyInfo)
    async def show(self, call: ApiCall) -> Response:
        """The name and scopes of your key."""
        scopes = [scope for scope in SCOPES if call.caller.may(scope)]
        return json_response(KeyInfo(call.caller.name, scopes, self._app.store.clustered))


def conversation_endpoints(
    app: App, live_runs: LiveRuns, admission: TurnAdmission, files: ApiFiles
) -> Iterator[ApiEndpoint]:
    """Endpoints for conversations and runs, and what the page shows beside them."""
    inbox = InboxEndpoints(app)
    yield from endpoints_of(RunEndpoints(app, live_runs, admission, files))
    yield from endpoints_of(SessionEndpoints(app, admission))
    yield from endpoints_of(MessageEndpoints(app))
    yield from endpoints_of(ActivityEndpoints(app, inbox))
    yield from endpoints_of(inbox)
    yield from endpoints_of(EventEndpoints(app, live_runs))
    yield from endpoints_of(FileEndpoints(app, files))
    yield from endpoints_of(CommandEndpoints(app, RunLookup(app, live_runs)))
    yield from endpoints_of(VersionEndpoints(app, RunLookup(app, live_runs)))


def endpoints(app: App, live_runs: LiveRuns, admission: TurnAdmission, files: ApiFiles) -> tuple[ApiEndpoint, ...]:
    """All API endpoints of the core. `live_runs` must be running; tools of all callers work in its `workdir`."""
    return (
        *endpoints_of(KeyEndpoint(app)),
        *conversation_endpoints(app, live_runs, admission, files),
        *endpoints_of(TemplateEndpoints(app)),
    )
