"""The client of the plugin `remote`: a real socket, lines of JSON."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.world.environment import LIMIT_S


class RemoteClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.heard: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def hear(self, kind: str) -> dict[str, Any]:
        """The next message of this kind."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    line = await self._reader.readline()
                    assert line, f"closed before {kind} came: {self.heard}"
                    self.heard.append(json.loads(line))
                    if self.heard[-1]["type"] == kind:
                        return self.heard[-1]
        except TimeoutError:
            raise AssertionError(f"no {kind} came after {self.heard}") from None

    async def bring(self, *names: str) -> None:
        schema = {"type": "object", "properties": {"words": {"type": "string"}}}
        about = [{"name": name, "description": "Far away.", "parameters": schema} for name in names]
        self.send(type="register", tools=about)
        await self.hear("registered")

    async def take_back(self, name: str) -> None:
        self.send(type="remove", name=name)
        await self.hear("removed")

    async def answer(self, result: Any) -> dict[str, Any]:
        """Wait for a call and answer it; the call."""
        call = await self.hear("call")
        self.send(type="result", id=call["id"], result=result)
        return call

    async def notices(self) -> list[str]:
        """How the ends of calls were reported so far: all of them, as far as they were sent."""
        await self.bring()
        return [each["type"] for each in self.heard if each["type"] in ("cancelled", "timeout")]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def open_client(home: Path, *names: str) -> AsyncIterator[RemoteClient]:
    """Connect, and bring tools of these names."""
    async with asyncio.timeout(LIMIT_S):
        while not (home / "remote.port").exists() or not (home / "remote.port").read_text():
            await asyncio.sleep(0.01)
    port = int((home / "remote.port").read_text())
    wire = RemoteClient(*await asyncio.open_connection("127.0.0.1", port))
    try:
        await wire.bring(*names)
        yield wire
    finally:
        await wire.close()
