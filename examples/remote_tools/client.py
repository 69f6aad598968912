"""A client of remote tools: offers Python functions to the agent. Needs `websockets`, and nothing of alipes.

    tools = RemoteTools("ws://127.0.0.1:8765/ws", token, name="workshop")

    @tools.tool("Measure the temperature of a room.", {"room": {"type": "string"}}, effect="read", timeout=10)
    async def temperature(call: Call, room: str) -> str: ...

    await tools.run()

When the user stops the turn, the function is cancelled at once; its `finally` still runs.
"""

import argparse
import asyncio
import http
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

Payload: TypeAlias = dict[str, Any]
PROTOCOL = 1
FINAL = {4400, 4401, 4409}
"""Codes after which a retry is useless: wrong protocol, wrong token, replaced by the same client."""
FIRST_WAIT, LAST_WAIT = 0.1, 5.0


class Refused(Exception):
    """The server refused the connection or a tool; the message says why."""


class Failed(Exception):
    """Raise it in a tool: the model reads the message."""


class Call:
    """The call that a tool serves."""

    def __init__(self, message: Payload, connection: ClientConnection) -> None:
        self.id: str = message["call"]
        self.session: str = message["session"]
        self.timeout: float = message["timeout"]
        self._connection = connection

    async def progress(self, text: str) -> None:
        """Show it to the user."""
        await _send(self._connection, type="progress", call=self.id, text=text)


class RemoteTools:
    def __init__(self, url: str, token: str, *, name: str = "python") -> None:
        self.ready = asyncio.Event()
        """Set while connected with all tools registered."""
        self.on_message: Callable[[Payload], None] = lambda message: None
        """Called with every message of the server."""
        self._url = url
        self._hello = {"protocol": PROTOCOL, "token": token, "name": name, "instance": secrets.token_hex(8)}
        self._tools: dict[str, tuple[Payload, Callable[..., Awaitable[Any]]]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._wait = FIRST_WAIT

    def tool(
        self,
        description: str,
        properties: Payload | None = None,
        *,
        effect: str = "write",
        timeout: float | None = None,
    ) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
        """Offer an async function, under its own name: it gets the call, and the model's arguments by name.

        All `properties` are required. A result that is not text reaches the model as JSON.
        """
        given = properties or {}
        schema = {"type": "object", "properties": given, "required": list(given)}

        def offer(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            spec = {"name": function.__name__, "description": description, "schema": schema}
            self._tools[function.__name__] = ({**spec, "effect": effect, "timeout": timeout}, function)
            return function

        return offer

    async def run(self) -> None:
        """Serve until cancelled; reconnect and register again if the connection breaks.

        Raises `Refused` when a retry would be useless.
        """
        while True:
            try:
                async with connect(self._url, compression=None, max_size=None, proxy=None) as connection:
                    await self._serve(connection)
            except ConnectionClosed as closed:
                if closed.rcvd is not None and closed.rcvd.code in FINAL:
                    raise Refused(closed.rcvd.reason) from closed
            except InvalidStatus as error:
                if error.response.status_code == http.HTTPStatus.FORBIDDEN:
                    raise Refused(f"{self._url}: {(error.response.body or b'').decode()}") from error
            except (OSError, InvalidHandshake):
                pass  # no server there now, or it is shutting down
            await asyncio.sleep(self._wait)
            self._wait = min(2 * self._wait, LAST_WAIT)

    async def _serve(self, connection: ClientConnection) -> None:
        """Serve one connection; running tools are cancelled when it ends."""
        async with asyncio.TaskGroup() as group:
            try:
                await self._converse(connection, group)
            except (ConnectionClosed, Refused) as error:
                ended = error
            finally:
                self.ready.clear()
                for task in self._running.values():
                    task.cancel()
        raise ended

    async def _converse(self, connection: ClientConnection, group: asyncio.TaskGroup) -> None:
        await _send(connection, type="hello", **self._hello)
        self.on_message(json.loads(await connection.recv()))
        self._wait = FIRST_WAIT
        for name, (spec, _) in self._tools.items():
            await _send(connection, type="register", id=name, tool=spec)
        unanswered = set(self._tools)
        while True:
            if not unanswered:
                self.ready.set()
            message = json.loads(await connection.recv())
            self.on_message(message)
            if message["type"] == "error" and message["id"] in unanswered:
                raise Refused(message["message"])
            if message["type"] == "registered":
                unanswered.discard(message["id"])
            self._handle(message, connection, group)

    def _handle(self, message: Payload, connection: ClientConnection, group: asyncio.TaskGroup) -> None:
        match message:
            case {"type": "call", "call": id, "tool": name}:
                task = group.create_task(self._perform(message, connection), name=name)
                self._running[id] = task
                task.add_done_callback(lambda _: self._running.pop(id, None))
            case {"type": "cancelled" | "timeout", "call": id} if id in self._running:
                self._running[id].cancel()

    async def _perform(self, message: Payload, connection: ClientConnection) -> None:
        call = Call(message, connection)
        try:
            try:
                output = await self._tools[message["tool"]][1](call, **message["args"])
                await _send(connection, type="result", call=call.id, output=output)
            except Failed as error:
                await _send(connection, type="error", call=call.id, message=str(error))
            except (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
                why = f"{type(error).__name__}: {error}"
                await _send(connection, type="error", call=call.id, message=why)
        except ConnectionClosed:
            pass  # the server failed the call when we disconnected


async def _send(connection: ClientConnection, **message: Any) -> None:
    await connection.send(json.dumps(message))


def demo(url: str, token: str) -> RemoteTools:
    """A countdown: long enough to be stopped."""
    tools = RemoteTools(url, token, name="demo")

    @tools.tool("Count down, a number a second.", {"start": {"type": "integer", "minimum": 1}}, timeout=120)
    async def countdown(call: Call, start: int) -> str:
        for number in range(start, 0, -1):
            await call.progress(f"{number} ...")
            await asyncio.sleep(1)
        return f"counted down from {start}"

    tools.on_message = lambda message: print(json.dumps(message), flush=True)
    return tools


def main() -> None:
    parser = argparse.ArgumentParser(description="Offer a countdown to the agent.")
    parser.add_argument("--url", default="ws://127.0.0.1:8765/ws")
    parser.add_argument("--token-file", type=Path, required=True, help="ALIPES_HOME/plugin-data/remote_tools/token")
    args = parser.parse_args()
    try:
        asyncio.run(demo(args.url, args.token_file.read_text().strip()).run())
    except KeyboardInterrupt:
        pass
    except Refused as error:
        raise SystemExit(f"refused: {error}") from error


if __name__ == "__main__":
    main()
