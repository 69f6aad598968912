"""The loopback Bot API: Telegram's wire format over real HTTP, with people and faults.

In a test:  `async with TelegramServer() as server:` then `server.chats.say("hello", chat=7)`, `await server.heard(7)`.
On its own: `telegram_control.serve()`, a process with a control port.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from tests.world.model_http import Connection, HttpRequest
from tests.world.telegram_faults import Fault, Limits
from tests.world.telegram_http import BotConnection, Request, Uploaded
from tests.world.telegram_methods import METHODS, Refused, bad, check_commands, decoded, number, truth
from tests.world.telegram_state import Media, StoredMessage, TelegramChats, Wire

__all__ = ["Call", "Fault", "StoredMessage", "Limits", "Media", "TelegramServer"]

TOKEN = "4200000001:AAF-loopback_bot_token_of_the_tests"
USUAL = ("message", "edited_message", "channel_post", "callback_query", "my_chat_member")
_encode = msgspec.json.encode


class Call(Struct, frozen=True):
    """One request of a bot."""

    at: float
    method: str
    given: dict[str, Any]
    """Its parameters; a file is given by name and size."""
    code: int
    """The status; 0: never answered."""
    came: float = 0.0
    """When the request was complete; `at` is when it was answered."""


class Update(Struct, frozen=True):
    number: int
    kind: str
    raw: bytes


class TelegramServer:
    """One bot's Bot API. Leaving the context closes every connection."""

    def __init__(self, token: str = TOKEN, *, port: int = 0, limits: Limits | None = None) -> None:
        self.token, self.port, self.limits = token, port, limits
        self.chats = TelegramChats(self._queue_update)
        self.calls: list[Call] = []
        self.commands: list[Wire] = []
        self.faults: list[Fault] = []
        self.webhook: Wire = {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
        self.behind = ""
        """The local address behind the webhook's public URL; empty: the URL itself."""
        self.polls = 0
        """Waiting long polls."""
        self._secret = ""
        self._allowed = USUAL
        self._updates: deque[Update] = deque()
        self._number = 7000
        self._poll: asyncio.Future[Refused | None] | None = None
        self._poller: Connection | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._living: set[Connection] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def unconfirmed(self) -> list[int]:
        """The ids of updates that the bot has not confirmed."""
        return [update.number for update in self._updates]

    # Queries of tests

    def fault(self, fault: Fault) -> Fault:
        fault.laid = time.monotonic()
        self.faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        self.faults.clear()

    def strike(self, does: str) -> None:
        """Break the waiting long poll: `hang` (no data from now on), `half_close`, `drop`."""
        poll, self._poll = self._poll, None
        assert poll and self._poller, "no poll waits"
        match does:
            case "half_close":
                self._poller.transport.write_eof()
            case "drop":
                self._poller.transport.abort()

    async def heard(self, chat: int, count: int = 1) -> list[StoredMessage]:
        """Wait until the bot has `count` messages in the chat."""
        await self.until(lambda: len(self.chats.mine(chat)) >= count)
        return self.chats.mine(chat)

    async def shows(self, chat: int, text: str) -> StoredMessage:
        """Wait until a message of the bot contains this."""
        await self.until(lambda: any(text in kept.text for kept in self.chats.mine(chat)))
        return next(kept for kept in self.chats.mine(chat) if text in kept.text)

    async def called(self, method: str, count: int = 1) -> list[Call]:
        """Wait until the method was called so often."""
        await self.until(lambda: len(self.of(method)) >= count)
        return self.of(method)

    async def confirmed(self) -> None:
        """Wait until the bot has confirmed every update."""
        await self.until(lambda: not self._updates)

    async def polled(self) -> None:
        """Wait until a long poll waits."""
        await self.until(lambda: self._poll is not None)

    def of(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method.lower()]

    async def until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            self._waiters.append(waiter := asyncio.get_running_loop().create_future())
            await waiter

    async def down(self) -> None:
        """Close the port until `up`."""
        self._server.close()
        for connection in tuple(self._living):
            connection.transport.abort()
        await self.until(lambda: not self._living)

    async def up(self) -> None:
        loop = asyncio.get_running_loop()
        made = lambda: BotConnection(self, self._tasks)  # noqa: E731
        self._server = await loop.create_server(made, "127.0.0.1", self.port, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aenter__(self) -> "TelegramServer":
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        await self.up()
        self._pusher = self._tasks.create_task(self._push())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *why: Any) -> None:
        self._pusher.cancel()
        await self.down()
        mine = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._tasks.__aexit__(*((kind, *why) if mine else (None, None, None)))

    # Connections

    def opened(self, connection: Connection) -> None:
        self._living.add(connection)

    def lost(self, connection: Connection, answering: bool) -> None:
        self._living.discard(connection)
        if connection is self._poller:
            self._poll = self._poller = None
        self._wake()

    async def serve(self, connection: Connection, request: HttpRequest) -> None:
        assert isinstance(request, Request)
        path = unquote(request.path)
        if path.startswith(f"/file/bot{self.token}/"):
            return self._file(connection, path.removeprefix(f"/file/bot{self.token}/"))
        if not path.startswith(f"/bot{self.token}/"):
            refused = Refused(401, "Unauthorized") if path.startswith("/bot") else Refused(404, "Not Found")
            return self._answer(connection, refused)
        method = path.rpartition("/")[2].lower()
        given = request.parameters()
        chat = int(given["chat_id"]) if str(given.get("chat_id", "")).lstrip("-").isdigit() else None
        fault = next((fault for fault in self.faults if fault.hits(method, chat)), None)
        if fault and not fault.accepted:
            return await self._harm(connection, fault, method, given)
        try:
            self._flooded(method, chat)
            result = await self._run(connection, method, given)
        except Refused as refused:
            self._note(method, given, refused.code, request.at)
            return self._answer(connection, refused)
        if fault:
            return await self._harm(connection, fault, method, given)
        self._note(method, given, 200, request.at)
        body = result if isinstance(result, bytes) else _encode(result)
        return connection.whole(200, b'{"ok":true,"result":' + body + b"}")

    async def _run(self, connection: Connection, method: str, given: Wire) -> Any:
        match method:
            case "getupdates":
                return await self._get_updates(connection, given)
            case "setwebhook" | "deletewebhook":
                return self._set_webhook(given if method == "setwebhook" else {**given, "url": ""})
            case "getwebhookinfo":
                return self.webhook | {"pending_update_count": len(self._updates)}
            case "setmycommands":
                self.commands = check_commands(given)
                return True
            case "getmycommands":
                return self.commands
            case "deletemycommands":
                self.commands = []
                return True
            case "logout" | "close":
                return True
            case _ if method in METHODS:
                return METHODS[method](self.chats, given)
        raise Refused(404, "Not Found: method not found")

    def _flooded(self, method: str, chat: int | None) -> None:
        if self.limits and chat is not None and method.startswith(("send", "edit")) and method != "sendchataction":
            wait = self.limits.wait(chat)
            if wait:
                raise Refused(429, f"Too Many Requests: retry after {wait}", retry_after=wait)

    async def _harm(self, connection: Connection, fault: Fault, method: str, given: Wire) -> None:
        codes = {"flood": 429, "fail": fault.status, "garbage": 200, "conflict": 409, "refuse": 400}
        self._note(method, given, codes.get(fault.does, 0))
        match fault.does:
            case "flood":
                wait = fault.retry_after
                self._answer(connection, Refused(429, f"Too Many Requests: retry after {wait}", retry_after=wait))
            case "fail":
                connection.whole(fault.status, b"<html><h1>Bad Gateway</h1></html>", "text/html")
            case "garbage":
                connection.whole(200, b"<html>Please sign in to this network</html>", "text/html")
            case "drop":
                connection.transport.abort()
            case "hang":
                await asyncio.Event().wait()
            case "half_close":
                connection.transport.write_eof()
                await asyncio.Event().wait()
            case "conflict":
                self._answer(connection, _conflict())
            case "refuse":
                self._answer(connection, bad(fault.why))

    def _answer(self, connection: Connection, refused: Refused) -> None:
        body: Wire = {"ok": False, "error_code": refused.code, "description": refused.why}
        if refused.parameters:
            body["parameters"] = refused.parameters
        connection.whole(refused.code, _encode(body))

    def _file(self, connection: Connection, path: str) -> None:
        fault = next((fault for fault in self.faults if fault.hits("download", None)), None)
        data = next((data for where, data in self.chats.files.values() if where == path), None)
        if fault:
            connection.transport.abort()
        elif data is None:
            self._answer(connection, Refused(404, "Not Found"))
        else:
            connection.whole(200, data, "application/octet-stream")

    def _note(self, method: str, given: Wire, code: int, came: float = 0.0) -> None:
        parameters = {
            name: f"<{value.name} {len(value.data)}>" if isinstance(value, Uploaded) else value
            for name, value in given.items()
        }
        self.calls.append(Call(time.time(), method, parameters, code, came))
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Updates

    def _queue_update(self, kind: str, wire: Wire) -> None:
        if kind not in self._allowed:
            return
        self._number += 1
        raw = b'{"update_id":%d,"%s":%s}' % (self._number, kind.encode(), _encode(wire))
        self._updates.append(Update(self._number, kind, raw))
        if self._poll and not self._poll.done():
            self._poll.set_result(None)
        self._wake()

    async def _get_updates(self, connection: Connection, given: Wire) -> bytes:
        if self.webhook["url"]:
            raise Refused(
                409,
                "Conflict: can't use getUpdates method while webhook is active; "
                "use deleteWebhook to delete the webhook first",
            )
        self._allow(given)
        offset, limit = number(given, "offset", 0), min(100, number(given, "limit", 100))
        if offset < 0:
            offset = self._updates[offset].number if len(self._updates) >= -offset else 0
        while self._updates and self._updates[0].number < offset:
            self._updates.popleft()
        self._wake()
        if self._poll and not self._poll.done():
            self._poll.set_result(_conflict())
        if not self._updates and float(given.get("timeout") or 0):
            await self._wait(connection, float(given.get("timeout") or 0))
        return b"[" + b",".join([update.raw for update in list(self._updates)[:limit]]) + b"]"

    async def _wait(self, connection: Connection, seconds: float) -> None:
        poll: asyncio.Future[Refused | None] = asyncio.get_running_loop().create_future()
        self._poll, self._poller = poll, connection
        self.polls += 1
        self._wake()
        try:
            done, _ = await asyncio.wait([poll], timeout=seconds)
            if self._poll is not poll and not done:
                await asyncio.Event().wait()  # it was broken: it gets no answer
            if done and (refused := poll.result()) is not None:
                raise refused
        finally:
            self.polls -= 1
            if self._poll is poll:
                self._poll = self._poller = None

    def _allow(self, given: Wire) -> None:
        if "allowed_updates" in given:
            self._allowed = tuple(decoded(given, "allowed_updates") or USUAL)

    def _set_webhook(self, given: Wire) -> bool:
        url = given.get("url") or ""
        if url and not url.startswith(("https://", "http://127.0.0.1:")):
            raise bad("bad webhook: An HTTPS URL must be provided for webhook")
        self._allow(given)
        self._secret = given.get("secret_token") or ""
        if truth(given, "drop_pending_updates"):
            self._updates.clear()
        self.webhook = {"url": url, "has_custom_certificate": False, "pending_update_count": 0}
        self._wake()
        return True

    async def _push(self) -> None:
        """Deliver updates to the webhook in order, each until it is accepted."""
        while True:
            await self.until(lambda: bool(self._updates) and bool(self.webhook["url"]))
            try:
                async with asyncio.timeout(10):
                    where = self.behind or self.webhook["url"]
                    status = await _post(where, self._secret, self._updates[0].raw)
            except (OSError, ValueError, TimeoutError):
                status = 0
            if 200 <= status < 300:
                self._updates.popleft()
                self._wake()
            else:
                why = f"Wrong response from the webhook: {status}" if status else "Connection refused"
                self.webhook |= {"last_error_date": int(time.time()), "last_error_message": why}
                await asyncio.sleep(0.05)


async def _post(url: str, secret: str, body: bytes) -> int:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = [f"POST {parts.path or '/'} HTTP/1.1", f"host: {parts.netloc}", "content-type: application/json"]
    head += [f"content-length: {len(body)}", "connection: close"]
    head += [f"X-Telegram-Bot-Api-Secret-Token: {secret}"] if secret else []
    try:
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        line = await reader.readline()
        return int(line.split(b" ")[1]) if line else 0
    finally:
        writer.close()


def _conflict() -> Refused:
    return Refused(
        409, "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
    )
