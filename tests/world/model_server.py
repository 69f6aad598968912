"""The scripted model server: three real wire formats over real sockets, HTTP/1.1, plain or TLS. No framework.

In a test:  `async with ModelServer([Say("hello")]) as server:` and use `server.url(api)` as the base URL.
On its own: `python -m tests.world.model_server --port-file F --plan PLAN.json [--log F] [--tls [CA.pem]]`.
"""

import argparse
import asyncio
import functools
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import unquote

import msgspec
import trustme
from msgspec import Struct

from tests.world import model_validation as rules
from tests.world import model_wires as wires
from tests.world.model_http import Connection, HttpRequest
from tests.world.model_replies import (
    Broken,
    Call,
    Calls,
    Cut,
    Fail,
    Plan,
    Raw,
    Refusal,
    Reply,
    Say,
    Stall,
    Tokens,
    Truncated,
)

__all__ = [
    "Broken", "Call", "Calls", "Cut", "Fail", "ModelServer", "Plan", "Raw", "Refusal", "Reply", "Say",
    "Stall", "Tokens", "Truncated", "serve",
]  # fmt: skip

Script: TypeAlias = Sequence[Reply] | Callable[[dict[str, Any]], Reply] | Plan
APIS = {"/v1/chat/completions": "openai-chat", "/v1/responses": "openai-responses", "/v1/messages": "anthropic"}
BURST = 64 * 1024


class ModelRequest(Struct, frozen=True):
    """One request."""

    path: str
    api: str
    headers: dict[str, str]
    """Names in lower case."""
    body: dict[str, Any]
    connection: int
    raw: bytes
    """The raw body."""


class ModelServer:
    """Answers model requests by a script. Leaving the context closes every connection.

    `script`: replies in order; or a function of the request's body; or a stateless `Plan`.
    `tls`: True for a certificate by `server.trust`'s authority, or a server context.
    `key`: if given, a request without it gets a 401.
    `strict`: reject what the real APIs reject.
    """

    def __init__(
        self,
        script: Script = (),
        tls: ssl.SSLContext | bool | None = None,
        *,
        key: str = "",
        models: Sequence[str] = ("scripted", "scripted-large"),
        strict: bool = True,
        log: BinaryIO | None = None,
        window: int = 0,
        host: str = "127.0.0.1",
    ) -> None:
        """`window`: the context window that the list of models names. `host`: the address of loopback to bind."""
        self.script, self.key, self.models, self.strict = script, key, models, strict
        self.window, self.host = window, host
        self.requests: list[ModelRequest] = []
        self.connections = 0
        """TCP connections accepted so far."""
        self.open_connections = 0
        self.open_requests = 0
        """Requests in progress."""
        self.answered = 0
        self.left = 0
        """Requests whose client disconnected early."""
        self.port = 0
        self._tls = _certified()[0] if tls is True else tls or None
        self._log = log
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [asked.body for asked in self.requests]

    @property
    def trust(self) -> ssl.SSLContext:
        """A client context that trusts the certificate of `tls=True`."""
        return _certified()[1]

    def url(self, api: str) -> str:
        """The base_url for `api`, in the form that its vendor's SDK expects."""
        root = f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"
        return root if api == "anthropic" else f"{root}/v1"

    async def asked(self, count: int = 1) -> None:
        """Wait until `count` requests have arrived."""
        await self._until(lambda: len(self.requests) >= count)

    async def closed_early(self, count: int = 1) -> None:
        """Wait until `count` clients disconnected early."""
        await self._until(lambda: self.left >= count)

    async def idle(self) -> None:
        """Wait until no request is in progress."""
        await self._until(lambda: self.open_requests == 0)

    async def disconnected(self) -> None:
        """Wait until no connection is open."""
        await self._until(lambda: self.open_connections == 0)

    async def __aenter__(self) -> "ModelServer":
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        loop = asyncio.get_running_loop()
        self._living: set[Connection] = set()
        self._server = await loop.create_server(
            lambda: Connection(self, self._tasks), self.host, self.port, ssl=self._tls, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *why: Any) -> None:
        self._server.close()
        for connection in tuple(self._living):
            connection.transport.abort()
        await self._until(lambda: not self._living)
        # Only a cancellation reaches the task group: it may be its own, after a broken reply.
        mine = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._tasks.__aexit__(*((kind, *why) if mine else (None, None, None)))

    async def _until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            self._waiters.append(waiter := asyncio.get_running_loop().create_future())
            await waiter

    def record(self, kind: str, **fields: object) -> None:
        """Log a change and wake the waiters."""
        if self._log:
            line = {"kind": kind, "time": time.time(), "n": len(self.requests), **fields}
            self._log.write(msgspec.json.encode(line) + b"\n")
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def reply(self, asked: ModelRequest) -> Reply:
        """Choose the answer to a request."""
        if self.key and not _knows(asked, self.key):
            return Fail(401, "invalid api key")
        try:
            if self.strict:
                rules.check(asked.api, asked.body)
            if asked.api == "anthropic" and "anthropic-version" not in asked.headers:
                return Fail(400, "anthropic-version: header is required")
        except (rules.Invalid, KeyError, TypeError, AttributeError) as invalid:
            self.record("rejected", why=str(invalid))
            return Fail(400, f"invalid request: {invalid!s}")
        if isinstance(self.script, Plan):
            said, words = rules.since_user(asked.api, asked.body)
            replies: Sequence[Reply] = self.script.replies
            for fragment, others in self.script.by.items():
                replies = others if fragment in words else replies
        elif callable(self.script):
            return self.script(asked.body)
        else:
            said, replies = len(self.requests) - 1, self.script
        return replies[said] if said < len(replies) else Fail(400, f"the script has no reply number {said}")

    def opened(self, connection: Connection) -> None:
        self.connections += 1
        self.open_connections += 1
        connection.number = self.connections
        self._living.add(connection)
        self.record("connected", connection=connection.number)

    def lost(self, connection: Connection, answering: bool) -> None:
        self.open_connections -= 1
        self.left += answering
        self._living.discard(connection)
        self.record("disconnected", connection=connection.number)

    async def serve(self, connection: Connection, request: HttpRequest) -> None:
        path = request.path
        if request.method == "GET" and path.rstrip("/").endswith("/models"):
            return connection.whole(200, msgspec.json.encode(_catalogue(self.models, request.headers, self.window)))
        api = next((api for suffix, api in APIS.items() if path.endswith(suffix)), "")
        gemini = re.search(r"/models/([^/]+):streamGenerateContent", path)
        bedrock = re.search(r"/model/([^/]+)/converse-stream", path)
        api = "gemini" if gemini else "bedrock" if bedrock else api
        api = "anthropic" if path.endswith(":streamRawPredict") else api
        if not api:
            return connection.whole(404, wires.failure("openai-chat", Fail(404, f"no route {path}")))
        body = msgspec.json.decode(request.raw)
        vertex = re.search(r"/models/([^/]+):streamRawPredict", path)
        if named := gemini or bedrock or vertex:
            body |= {"model": unquote(named[1]), "stream": True}
        asked = ModelRequest(path, api, request.headers, body, connection.number, request.raw)
        self.requests.append(asked)
        self.open_requests += 1
        self.record("request", path=path, connection=connection.number, body=asked.body)
        try:
            await _answer(connection, asked, self.reply(asked))
            self.answered += 1
        finally:
            self.open_requests -= 1
            self.record("answered" if not connection.transport.is_closing() else "left")
        return None


async def _answer(connection: Connection, asked: ModelRequest, reply: Reply) -> None:
    if wait := getattr(reply, "wait", 0.0):
        await asyncio.sleep(wait)
    match reply:
        case Fail(status, retry_after=wish, headers=more):
            wished = {} if wish is None else {"retry-after": str(wish)}
            kind = "application/json" if reply.body is None else "text/html"
            connection.whole(status, wires.failure(asked.api, reply), kind, wished | more)
        case Raw():
            await _raw(connection, reply)
        case Cut(where="head"):
            _end(connection, reply)
        case Stall(after=None):
            await asyncio.Event().wait()
        case _ if not asked.body.get("stream"):
            known = {"model": asked.body["model"], "serial": rules.serial(asked.api, asked.body)}
            connection.whole(200, wires.whole(asked.api, reply, **known))
        case _:
            await _stream(connection, asked, reply)


async def _stream(connection: Connection, asked: ModelRequest, reply: Reply) -> None:
    connection.head(200, "text/event-stream; charset=utf-8", {"transfer-encoding": "chunked"})
    delay = getattr(reply, "delay", 0.0)
    burst: list[bytes] = []
    size = 0
    for frame in _frames(asked, reply):
        burst.append(b"%x\r\n%s\r\n" % (len(frame), frame))
        size += len(frame)
        if delay or size > BURST:
            await connection.send(b"".join(burst))
            burst, size = [], 0
            if delay:
                await asyncio.sleep(delay)
    match reply:
        case Stall():
            await connection.send(b"".join(burst))
            await asyncio.Event().wait()
        case Cut(where="text" | "call"):
            await connection.send(b"".join(burst))
            _end(connection, reply)
        case _:
            await connection.send(b"".join(burst) + b"0\r\n\r\n")


async def _raw(connection: Connection, reply: Raw) -> None:
    more = {"content-encoding": reply.encoding} if reply.encoding else {}
    connection.head(reply.status, reply.content_type, {"transfer-encoding": "chunked"} | more)
    step = reply.step or max(1, len(reply.data))
    for at in range(0, len(reply.data), step):
        piece = reply.data[at : at + step]
        await connection.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        if reply.step:
            await asyncio.sleep(0)
    await connection.send(b"0\r\n\r\n")


def _end(connection: Connection, reply: Cut) -> None:
    if reply.reset:
        connection.transport.abort()
    else:
        connection.transport.close()


def _frames(asked: ModelRequest, reply: Reply) -> list[bytes]:
    known = (asked.api, asked.body["model"], rules.serial(asked.api, asked.body))
    if isinstance(reply, Say):
        return _spoken(reply, *known)
    return wires.frames(known[0], reply, model=known[1], serial=known[2])


@functools.lru_cache(maxsize=16)
def _spoken(reply: Say, api: str, model: str, serial: int) -> list[bytes]:
    return wires.frames(api, reply, model=model, serial=serial)


@functools.cache
def _authority() -> trustme.CA:
    return trustme.CA()


@functools.cache
def _certified() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server context and a client context that trusts it, created once per process."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    _authority().issue_cert("127.0.0.1", "localhost").configure_cert(server)
    _authority().configure_trust(client)
    return server, client


def _knows(asked: ModelRequest, key: str) -> bool:
    own = ("x-api-key", "x-goog-api-key")
    return key in (*map(asked.headers.get, own), asked.headers.get("authorization", "").removeprefix("Bearer "))


def _catalogue(models: Sequence[str], headers: dict[str, str], window: int) -> dict[str, object]:
    if "anthropic-version" in headers:
        data = [{"type": "model", "id": name, "display_name": name} for name in models]
        return {"data": data, "has_more": False, "first_id": models[0], "last_id": models[-1]}
    more = {"context_length": window} if window else {}
    listed = [{"id": name, "object": "model", "owned_by": "nobody", **more} for name in models]
    return {"object": "list", "data": listed}


@asynccontextmanager
async def serve(plan: str, folder: Path, *, tls: bool = False) -> AsyncIterator["ModelProcess"]:
    """Run the server as its own process, so that its CPU and its life are not the client's."""
    (folder / "plan.json").write_text(plan)
    files = ("--port-file", str(folder / "port"), "--plan", str(folder / "plan.json"), "--log", str(folder / "log"))
    secure = ("--tls", str(folder / "ca.pem")) if tls else ()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.world.model_server", *files, *secure,
        cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert child.stdout
        port = int(await child.stdout.readline())
        yield ModelProcess(port, folder / "log", folder / "ca.pem" if tls else None)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


class ModelProcess(Struct, frozen=True):
    """A model server in another process."""

    port: int
    log: Path
    ca: Path | None

    def url(self, api: str) -> str:
        root = f"{'https' if self.ca else 'http'}://127.0.0.1:{self.port}"
        return root if api == "anthropic" else f"{root}/v1"

    def log_lines(self, kind: str = "request") -> list[dict[str, Any]]:
        """The lines of the log: `request`, `rejected`, `answered`, `left`, `connected`, `disconnected`."""
        lines = self.log.read_bytes().splitlines() if self.log.exists() else []
        return [line for line in map(msgspec.json.decode, lines) if line["kind"] == kind]


async def _main(options: argparse.Namespace) -> None:
    plan = msgspec.json.decode(Path(options.plan).read_bytes(), type=tuple[Reply, ...] | Plan)
    script = Plan(plan) if isinstance(plan, tuple) else plan
    if options.tls:
        _authority().cert_pem.write_to_path(options.tls)
    with ExitStack() as files:
        log = files.enter_context(open(options.log, "ab", buffering=0)) if options.log else None
        server = ModelServer(script, tls=bool(options.tls), log=log)
        await _serve_for_ever(server, Path(options.port_file))


async def _serve_for_ever(server: ModelServer, port_file: Path) -> None:
    async with server:
        temporary = port_file.with_suffix(".new")
        temporary.write_text(str(server.port))
        temporary.rename(port_file)
        print(server.port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port-file", required=True)
    parser.add_argument("--plan", required=True, help="JSON: a list of replies, or {replies: [...], by: {...}}")
    parser.add_argument("--log", help="one JSON line per request, answer and departure")
    parser.add_argument("--tls", nargs="?", const="model-ca.pem", help="speak TLS; write the authority here")
    asyncio.run(_main(parser.parse_args()))
