"""A proxy in front of the homeserver that causes faults on demand."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
from msgspec import Struct


class Fault(Struct):
    """A fault of the next calls of a kind: `limit` rejects with 429, `lose` executes without a reply,
    `break` answers with an HTML page."""

    kind: str
    verb: str
    """`send`, `edit`, or a part of the path."""
    room: str = ""
    times: int = 1
    retry_ms: int = 300


class FaultProxy:
    """Forwards every call to the real homeserver."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self.url = ""
        self.calls: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.shut = False
        """Accept connections and answer nothing."""
        self.forger = ""
        """If set: the sender that encrypted messages claim to have."""
        self._again: list[tuple[str, dict[str, Any]]] = []
        self._open: set[asyncio.StreamWriter] = set()

    def fault(self, kind: str, verb: str, room: str = "", times: int = 1, retry_ms: int = 300) -> None:
        self.faults.append(Fault(kind, verb, room, times, retry_ms))

    def again(self, room: str, event: dict[str, Any]) -> None:
        """Repeat this event in the next sync of that room."""
        self._again.append((room, event))

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.strip().split("\r\n")
                method, target, _ = first.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._answer(writer, method, target, headers, body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> None:
        path = unquote(urlsplit(target).path)
        self.calls.append((method, path))
        if self.shut:
            await asyncio.Event().wait()
        fault = self._due(path, body)
        if fault is not None and fault.kind == "limit":
            response = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests", "retry_after_ms": fault.retry_ms}
            return _write(writer, 429, "application/json", json.dumps(response).encode())
        if fault is not None and fault.kind == "break":
            return _write(writer, 502, "text/html", b"<h1>Bad Gateway</h1>")
        kept = {name: headers[name] for name in ("authorization", "content-type") if name in headers}
        answer = await self._http.request(method, target, headers=kept, content=body)
        if fault is not None:
            await asyncio.Event().wait()
        content = answer.content
        if path.endswith("/sync") and (self._again or self.forger):
            content = self._retold(content)
        return _write(writer, answer.status_code, answer.headers.get("content-type", "text/plain"), content)

    def _due(self, path: str, body: bytes) -> Fault | None:
        for fault in self.faults:
            if fault.room in path and _means(fault.verb, path, body):
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
                return fault
        return None

    def _retold(self, content: bytes) -> bytes:
        response = json.loads(content)
        for news in response.get("rooms", {}).get("join", {}).values() if self.forger else ():
            for event in news["timeline"]["events"]:
                if event["type"] == "m.room.encrypted":
                    event["sender"] = self.forger
        for room, event in tuple(self._again):
            news = response.get("rooms", {}).get("join", {}).get(room)
            if news is not None:
                news["timeline"]["events"].insert(0, event)
                self._again.remove((room, event))
        return json.dumps(response).encode()


def _means(verb: str, path: str, body: bytes) -> bool:
    if verb not in ("send", "edit"):
        return verb in path
    if "/send/m.room." not in path:
        return False
    related = json.loads(body).get("m.relates_to", {})
    return (related.get("rel_type") == "m.replace") == (verb == "edit")


def _write(writer: asyncio.StreamWriter, status: int, kind: str, body: bytes) -> None:
    head = f"HTTP/1.1 {status} Gate\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


@asynccontextmanager
async def open_fault_proxy(url: str) -> AsyncIterator[FaultProxy]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
        made = FaultProxy(http)
        async with asyncio.TaskGroup() as tasks:
            serving = set()

            def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = tasks.create_task(made.serve(reader, writer))
                serving.add(task)
                task.add_done_callback(serving.discard)

            server = await asyncio.start_server(begin, "127.0.0.1", 0)
            made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            try:
                yield made
            finally:
                server.close()
                for task in tuple(serving):
                    task.cancel()
