"""Waits on this machine for the browser that an authorization server sends back after a login (RFC 8252)."""

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from html import escape
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.runtime.tasks import run_to_completion

HOST, PATH = "127.0.0.1", "/callback"
MAX_REQUEST_BYTES = 16_384
READ_TIMEOUT_S = 10.0
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


class LoginError(ToolError):
    """A login that did not succeed, or that is needed; the message says what to do."""


class RedirectAnswer(Struct, frozen=True):
    code: str
    state: str
    issuer: str | None = None


class RedirectListener:
    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://{HOST}:{port}{PATH}"
        """Where the browser is to be sent."""
        self._state = ""
        self._open: dict[asyncio.Task[object], asyncio.StreamWriter] = {}
        self._answer: asyncio.Future[RedirectAnswer] = asyncio.get_running_loop().create_future()

    def expect(self, state: str) -> None:
        """Only a browser that brings this `state` is from the login that was started here."""
        self._state = state

    async def wait(self, timeout_s: float) -> RedirectAnswer:
        """Raises `LoginError` if the person refuses or nobody comes."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer
        except TimeoutError as late:
            raise LoginError(
                f"nobody logged in within {timeout_s:.0f} s. Run the command again, and open the URL in a browser on "
                "this machine."
            ) from late

    async def close(self) -> None:
        """End the connections that are still open."""
        if self._answer.done() and not self._answer.cancelled():
            self._answer.exception()  # perhaps nobody waited for it
        for task, writer in tuple(self._open.items()):
            writer.transport.abort()
            await asyncio.wait({task})

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = self._respond(head.split(b"\r\n", 1)[0].decode("latin-1"))
                writer.write(_format_page(status, text))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a connection that brings no request
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            del self._open[task]

    def _respond(self, line: str) -> tuple[int, str]:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.rpartition(" ")[0])
        if target.path != PATH:
            return 404, "There is nothing here."
        if method != "GET":
            return 405, "Only GET is possible here."
        given = {name: values[0] for name, values in parse_qs(target.query).items()}
        state = given.get("state", "")
        if not self._state or not secrets.compare_digest(state.encode(), self._state.encode()):
            return 400, "This is not the login that alipes is waiting for. Start it again."
        if self._answer.done():
            return 400, "This login is over."
        if code := given.get("code"):
            self._answer.set_result(RedirectAnswer(code, state, given.get("iss")))
            return 200, "You are logged in. You can close this window."
        why = given.get("error_description") or given.get("error") or "it sent no code"
        self._answer.set_exception(LoginError(f"the login was refused: {why[:300]}"))
        return 400, f"The login was refused: {why[:300]}"


@asynccontextmanager
async def open_redirect_listener(port: int = 0) -> AsyncIterator[RedirectListener]:
    """Listen on the loopback interface. `port`: the one to use if it is free; 0: any."""
    try:
        sock = socket.create_server((HOST, port))
    except OSError:
        sock = socket.create_server((HOST, 0))
    listener = RedirectListener(sock.getsockname()[1])
    server = await asyncio.start_server(listener.handle, sock=sock, limit=MAX_REQUEST_BYTES)
    try:
        yield listener
    finally:
        server.close()
        await server.wait_closed()
        await run_to_completion(listener.close)


def _format_page(status: int, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>alipes</title><p>{escape(text)}</p>\n".encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
