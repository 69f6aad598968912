"""The plugin's server: one loopback port for WebSockets and for the page."""

import asyncio
import errno
import http
import logging
import socket
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Origin

from . import protocol as wire
from .config import Config
from .hub import Hub
from .tokens import Token

PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
RETRY_S = 0.5
"""Pause before a port in use is tried again."""


class Server:
    def __init__(self, hub: Hub, token: Token, log: logging.Logger) -> None:
        self._hub, self._token, self._config, self._log = hub, token, hub.config, log
        self._socket = _bind(self._config)

    @property
    def url(self) -> str:
        """Where the page is; empty while another process has the port."""
        return "" if self._socket is None else f"http://{_names(self._config.host, self._socket)[0]}/"

    async def run(self) -> None:
        """Serve until cancelled; then close the connections with 1001."""
        while self._socket is None:  # used by the previous version of this plugin, or by another process
            await asyncio.sleep(RETRY_S)
            self._socket = _bind(self._config)
        hosts = _names(self._config.host, self._socket)
        origins = [None, *(Origin(f"http://{host}") for host in hosts), *map(Origin, self._config.origins)]
        page = _read_page()

        def respond(connection: ServerConnection, request: Request) -> Response | None:
            return _response(connection, request, hosts, page)

        async with serve(
            self._receive,
            sock=self._socket,
            origins=origins,
            process_request=respond,
            server_header=None,
            compression=None,
            open_timeout=self._config.hello,
            ping_interval=self._config.heartbeat,
            ping_timeout=self._config.heartbeat,
            close_timeout=1,
            max_size=self._config.message_bytes,
            logger=self._log,
        ):
            await asyncio.Event().wait()

    def close(self) -> None:
        """Also if `run` was never reached."""
        if self._socket is not None:
            self._socket.close()

    async def _receive(self, connection: ServerConnection) -> None:
        """One client, from hello to disconnect."""
        hello = await self._hello(connection)
        if hello is None:
            return
        client = self._hub.admit(connection, hello)
        try:
            async for frame in connection:
                self._hub.handle(client, wire.read(frame))
        except ConnectionClosed as error:
            self._log.info("%s (%s): %s", client.name, client.id, error)
        finally:
            self._hub.remove(client)

    async def _hello(self, connection: ServerConnection) -> wire.Hello | None:
        try:
            async with asyncio.timeout(self._config.hello):
                message = wire.read(await connection.recv())
        except TimeoutError:
            await connection.close(wire.LATE_HELLO, f"no hello within {self._config.hello:g} s")
            return None
        except ConnectionClosed:
            return None
        match message:
            case wire.Hello(protocol=wire.VERSION, token=token) if self._token.matches(token):
                if len(self._hub.clients) < self._config.clients:
                    return message
                code, reason = wire.FULL, f"the limit of {self._config.clients} clients is reached"
            case wire.Hello(protocol=wire.VERSION):
                code, reason = wire.BAD_TOKEN, "this is not the token that /remote shows"
            case wire.Hello(protocol=other):
                code, reason = wire.BAD_HELLO, f"this is protocol {wire.VERSION}, not {other}"
            case _:
                code, reason = wire.BAD_HELLO, "the first message must be a hello"
        await connection.close(code, reason)
        return None


def _bind(config: Config) -> socket.socket | None:
    """A listening socket; None if the port is in use."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return None


def _names(host: str, listening: socket.socket) -> list[str]:
    """Accepted values of the Host header; any other name may be a rebound one."""
    port = listening.getsockname()[1]
    return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}", f"localhost:{port}"]


def _read_page() -> dict[str, tuple[str, bytes]]:
    found = {f"/{file.name}": (KINDS[file.suffix], file.read_bytes()) for file in PAGE.iterdir()}
    return found | {"/": found["/index.html"]}


def _response(
    connection: ServerConnection, request: Request, hosts: list[str], page: dict[str, tuple[str, bytes]]
) -> Response | None:
    """The page's files; None accepts a WebSocket if its origin is allowed."""
    path = request.path.partition("?")[0]
    if request.headers.get("Host") not in hosts:
        return connection.respond(http.HTTPStatus.FORBIDDEN, "Host not allowed.\n")
    if path == "/ws":
        return None
    if path not in page:
        return connection.respond(http.HTTPStatus.NOT_FOUND, "Not found.\n")
    kind, body = page[path]
    sockets = " ".join(f"ws://{host}" for host in hosts)
    headers = Headers(
        {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-cache",
            "Connection": "close",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
            f"img-src 'self'; connect-src {sockets}; "
            "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        }
    )
    return Response(http.HTTPStatus.OK, "OK", headers, body)
