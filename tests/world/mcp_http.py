"""A small MCP server over streamable HTTP for tests, whose answers can be replaced: errors, redirects, silence."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

Reply: TypeAlias = tuple[int, dict[str, str], bytes]
Handler: TypeAlias = Callable[[str, dict[str, str], dict[str, Any]], Awaitable[Reply | None]]
"""Called with method, headers and message; None: the usual answer."""
TOOLS = [
    {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
]


class McpHttpServer:
    """Answers one JSON message per request."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.override: Handler | None = None
        self.session = "one"
        self.stream: asyncio.StreamWriter | None = None
        """Of the older transport, on which answers arrive."""
        self.is_sse = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def methods(self) -> list[str]:
        return [str(message.get("method", verb)) for verb, _, message in self.requests]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                verb = line.split()[0].decode()
                headers = {}
                while (line := await reader.readline()).strip():
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                message = json.loads(body) if body else {}
                self.requests.append((verb, headers, message))
                reply = await self.override(verb, headers, message) if self.override else None
                if self.is_sse and verb == "GET":
                    self.stream = writer
                    writer.write(b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\n\r\n")
                    writer.write(b"event: endpoint\ndata: /mcp\n\n")
                    continue
                status, more, content = reply or self.answer(verb, headers, message)
                if self.is_sse and content:
                    status, more, content = self.send_on_stream(content)
                lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}"]
                lines += [f"{name}: {value}" for name, value in more.items()]
                writer.write("\r\n".join([*lines, "", ""]).encode() + content)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def answer(self, verb: str, headers: dict[str, str], message: dict[str, Any]) -> Reply:
        if verb != "POST":
            return (200 if verb == "DELETE" else 405), {}, b""
        if "id" not in message:
            return 202, {}, b""
        method = message["method"]
        if method == "initialize":
            result: Any = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "http", "version": "1"},
            }
            return self.reply(message, result, {"mcp-session-id": self.session})
        if headers.get("mcp-session-id") != self.session and not self.is_sse:
            return 404, {}, b""
        if method == "server/discover":
            error = {"code": -32601, "message": "unknown method"}
            return 200, {}, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
        if method == "tools/list":
            return self.reply(message, {"tools": TOOLS})
        return self.reply(message, {"content": [{"type": "text", "text": f"echo {message['params']['arguments']}"}]})

    def send_on_stream(self, content: bytes) -> Reply:
        if self.stream is None:
            return 405, {}, b""
        self.stream.write(b"event: message\ndata: " + content + b"\n\n")
        return 202, {}, b""

    def reply(self, message: dict[str, Any], result: Any, more: dict[str, str] | None = None) -> Reply:
        content = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        return 200, {"content-type": "application/json", **(more or {})}, content


@asynccontextmanager
async def open_mcp_http() -> AsyncIterator[McpHttpServer]:
    fake = McpHttpServer()
    server = await asyncio.start_server(fake.handle, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        server.close_clients() if hasattr(server, "close_clients") else None
        await asyncio.sleep(0)
