"""The HTTP door: who is let in, and the server that holds it open. It answers nothing by itself."""

import asyncio
import hmac
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from alipes.kernel.errors import ConfigError

GRACE = 2
"""Seconds that requests have to be answered when we leave."""


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


def is_loopback(host: str) -> bool:
    """Is it this machine alone, by number or by its one reserved name?"""
    name = host.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


class Porter:
    """Turns away who should not ask.

    A page in a browser must not reach us: neither under a name that was rebound to this machine, nor
    from another origin. From elsewhere than this machine a key is asked for. `open_paths` guard themselves.
    """

    def __init__(self, app: ASGIApp, *, host: str, key: str, open_paths: tuple[str, ...] = ()) -> None:
        self._app, self._host, self._key, self._open = app, host, key, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open:
            status, why = self._verdict(Headers(scope=scope), alive=scope["path"] == "/health")
            if status:
                response = JSONResponse({"error": why}, status, headers={"cache-control": "no-store"})
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _verdict(self, headers: Headers, *, alive: bool) -> tuple[int, str]:
        if self._knows(headers.get("authorization", "")):
            return 0, ""
        if not is_loopback(self._host):
            if alive:  # whoever watches over us, such as a container's own check, need not have the key
                return 0, ""
            return 401, "show the key: Authorization: Bearer KEY (`alipes serve key` shows it)"
        if not is_loopback(_bare(headers.get("host", ""))):
            return 421, "this door is for callers on this machine; call it by its number"
        if headers.get("origin") or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "pages of others may not ask"
        return 0, ""

    def _knows(self, shown: str) -> bool:
        scheme, _, key = shown.partition(" ")
        known = hmac.compare_digest(key.strip().encode(), self._key.encode())
        return bool(self._key) and scheme.lower() == "bearer" and known


def _bare(host: str) -> str:
    """The `Host` header without its port."""
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


@asynccontextmanager
async def open_door(app: Starlette | ASGIApp, door: socket.socket) -> AsyncIterator[None]:
    """Serve `app` at `door` while entered, in the tasks of the running loop; signals stay ours."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    # Not `serve`: that takes the signals, and looks ten times a second whether it is to end.
    await server.startup(sockets=[door])
    try:
        yield
    finally:
        await server.shutdown(sockets=[door])
        if server.server_state.tasks:  # cancelled by now
            await asyncio.wait(server.server_state.tasks, timeout=GRACE)
