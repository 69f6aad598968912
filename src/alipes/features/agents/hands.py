"""Our tools for a program: an MCP server on a socket in its sandbox, which answers while a turn runs."""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from alipes import __version__
from alipes.features.agents import relay
from alipes.kernel.messages import Json, ToolResult
from alipes.kernel.ports import ToolSpec
from alipes.runtime.process_lock import short_socket_path

SERVER = "alipes"
OFFERED = ("memory", "session_search", "cronjob", "send_file", "clarify")
"""Tools that only we have. It has files, commands and the web itself."""
RELAY = relay.__file__
"""What programs run to reach us; their sandbox shows it."""
MAX_LINE_BYTES = 4 << 20
INSTRUCTIONS = (
    "The tools of the person you talk with: their notes, their earlier conversations, their schedules, sending them a "
    "file, asking them a question."
)
_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
METHOD_NOT_FOUND, INVALID = -32601, -32602

UseTool: TypeAlias = Callable[[str, dict[str, Json]], Awaitable[ToolResult]]
ListTools: TypeAlias = Callable[[], Awaitable[tuple[ToolSpec, ...]]]


class Hands:
    """Listens on one socket, for one program."""

    def __init__(self, folder: str, seen: str, *, list_tools: ListTools, use: UseTool) -> None:
        """`folder`: one that the program sees as `seen`."""
        self._name = f".agent-{os.urandom(4).hex()}"
        self._path, self._seen = os.path.join(folder, self._name), os.path.join(seen, self._name)
        self._list_tools, self._use = list_tools, use

    @property
    def command(self) -> tuple[str, ...]:
        """What the program runs to reach us."""
        return (sys.executable, "-I", "-S", RELAY, self._seen)

    async def serve(self) -> None:
        """Serve until cancelled."""
        loop, listener = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        try:
            with short_socket_path(self._path) as name:
                listener.bind(name)
            listener.listen()
            listener.setblocking(False)
            async with asyncio.TaskGroup() as clients:
                while True:
                    client, _ = await loop.sock_accept(listener)
                    clients.create_task(self._serve_client(client), name="MCP client")
        finally:
            listener.close()
            with suppress(FileNotFoundError):
                os.unlink(self._path)

    async def _serve_client(self, client: socket.socket) -> None:
        loop, buffer, sending = asyncio.get_running_loop(), b"", asyncio.Lock()
        client.setblocking(False)

        async def answer(line: bytes) -> None:
            if reply := await self._answer(line):
                async with sending:
                    await loop.sock_sendall(client, msgspec.json.encode(reply) + b"\n")

        with client, suppress(OSError):
            async with asyncio.TaskGroup() as calls:
                while piece := await loop.sock_recv(client, 65536):
                    *lines, buffer = (buffer + piece).split(b"\n")
                    for line in filter(bytes.strip, lines):
                        calls.create_task(_ignore_lost_client(answer(line)), name="MCP call")
                    if len(buffer) > MAX_LINE_BYTES:
                        break

    async def _answer(self, line: bytes) -> dict[str, Any] | None:
        try:
            message = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return None
        if not isinstance(message, dict) or "id" not in message or not isinstance(message.get("method"), str):
            return None
        params = message.get("params")
        found = await self._handle(message["method"], params if isinstance(params, dict) else {})
        return {"jsonrpc": "2.0", "id": message["id"], **found}

    async def _handle(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                wanted = params.get("protocolVersion")
                version = wanted if wanted in _VERSIONS else _VERSIONS[-2]
                server = {"name": SERVER, "version": __version__}
                able: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
                return {"result": {**able, "instructions": INSTRUCTIONS}}
            case "ping":
                return {"result": {}}
            case "tools/list":
                listed = [
                    {"name": each.name, "description": each.description, "inputSchema": each.schema}
                    for each in await self._list_tools()
                ]
                return {"result": {"tools": listed}}
            case "tools/call":
                return await self._call(str(params.get("name")), params.get("arguments"))
        return {"error": {"code": METHOD_NOT_FOUND, "message": f"unknown method {method}"}}

    async def _call(self, name: str, given: object) -> dict[str, Any]:
        if name not in {each.name for each in await self._list_tools()}:
            return {"error": {"code": INVALID, "message": f"unknown tool {name}"}}
        result = await self._use(name, given if isinstance(given, dict) else {})
        content = [{"type": "text", "text": result.text}]
        return {"result": {"content": content, "isError": result.outcome != "ok"}}


async def _ignore_lost_client(work: Awaitable[None]) -> None:
    with suppress(OSError):
        await work
