"""The runs and sessions of the API at a real door, on a real store; the model is the test's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from starlette.applications import Starlette

from alipes.kernel.ports import Provider, Tool
from alipes.web import sessions
from alipes.web.auth import Keys, Known, Limits, hashed
from alipes.web.endpoint import Caller
from alipes.web.routing import Api
from alipes.web.runs import endpoints
from alipes.web.runs.events import Runs
from alipes.web.server import address_of, listen, open_door
from tests.world.house import House, open_house

SCOPES = {"ann": "run", "bob": "run", "reader": "read", "root": "admin"}
"""Who may call; the key of each is `key-NAME`."""


async def _find(hash: bytes) -> Known | None:
    for name, scope in SCOPES.items():
        if hashed(f"key-{name}") == hash:
            return Known(Caller(name, frozenset({scope})))
    return None


class Heard:
    """One event, as a listener reads it."""

    def __init__(self, lines: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in lines)
        self.id, self.name = fields.get("id", ""), fields.get("event", "")
        self.data: dict[str, Any] = msgspec.json.decode(fields["data"])

    @property
    def text(self) -> str:
        """Of a message, what was said; of a piece, the piece."""
        if self.name == "said":
            return "".join(part.get("text", "") for part in self.data["message"]["parts"])
        return str(self.data.get("text", ""))


class Listener:
    """An open stream of events: iterate it, or take some."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    def __aiter__(self) -> "Listener":
        return self

    async def __anext__(self) -> Heard:
        lines: list[str] = []
        async for line in self._lines:
            if not line and lines:
                return Heard(lines)
            if line and not line.startswith(":"):
                lines.append(line)
        raise StopAsyncIteration

    async def until(self, name: str) -> Heard:
        async for heard in self:
            if heard.name == name:
                return heard
        raise AssertionError(f"the stream ended without {name}")

    async def rest(self) -> list[Heard]:
        return [heard async for heard in self]


class Front:
    """A caller in front of the door."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def ask(
        self, method: str, path: str, body: Any = None, *, by: str = "ann", **headers: str
    ) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else msgspec.json.encode(body)
        kind = {"content-type": "application/json"} if body is not None else {}
        shown = {"authorization": f"Bearer key-{by}"}
        return await self.client.request(
            method, f"/v1{path}", content=content, headers={**shown, **kind, **named}
        )

    async def begin(self, input: str, *, by: str = "ann", **more: Any) -> str:
        answer = await self.ask("POST", "/runs", {"input": input, **more}, by=by)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def look(self, run: str, *, by: str = "ann") -> dict[str, Any]:
        answer = await self.ask("GET", f"/runs/{run}", by=by)
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    @asynccontextmanager
    async def listening(self, run: str, last: str = "", *, by: str = "ann") -> AsyncIterator[Listener]:
        headers = {"authorization": f"Bearer key-{by}", **({"last-event-id": last} if last else {})}
        async with self.client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            yield Listener(response)

    async def finish(self, run: str, *, by: str = "ann") -> dict[str, Any]:
        """What became of it, once it is over."""
        async with self.listening(run, by=by) as listener:
            await listener.rest()
        return await self.look(run, by=by)


class ApiHouse(Front):
    def __init__(self, client: httpx2.AsyncClient, house: House, runs: Runs) -> None:
        super().__init__(client)
        self.house, self.runs = house, runs


@asynccontextmanager
async def open_api(home: Path, provider: Provider, *tools: Tool, **habits: Any) -> AsyncIterator[ApiHouse]:
    async with open_house(home, provider, *tools, interactive=True, **habits) as house:
        living = Runs(house)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(living.run())
            rooms = (*endpoints.endpoints(house, living), *sessions.endpoints(house))  # type: ignore[arg-type]
            app = Starlette(routes=Api(rooms, Keys("", _find), Limits(rate=0)).routes())
            with closing(listen("127.0.0.1", 0)) as door:
                async with open_door(app, door):
                    async with httpx2.AsyncClient(base_url=address_of(door), trust_env=False) as client:
                        yield ApiHouse(client, house, living)
                    living.hang_up()
            serving.cancel()
