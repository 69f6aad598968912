"""Runs and sessions of the API on a real server and store, with a model by the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from starlette.applications import Starlette

from alipes.agent.auxiliary import BackgroundTasks
from alipes.agent.search.conversations import ConversationSearch
from alipes.config.loader import load_settings
from alipes.config.settings import SpendConfig
from alipes.features.checkpoints.checkpoints import Checkpoints
from alipes.features.checkpoints.endpoints import CheckpointEndpoints
from alipes.features.checkpoints.feature import CheckpointsFeature
from alipes.features.mcp.server.http import McpEndpoint
from alipes.features.mcp.server.tools import ConversationTools
from alipes.features.usage.endpoints import UsageEndpoints
from alipes.features.usage.store import UsageReports
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.kernel.errors import ConfigError
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Provider, Tool
from alipes.kernel.turns import Inbound
from alipes.plugins.features import OpenFeatures
from alipes.plugins.registry import Contributions
from alipes.providers.registry import Backend, ModelChoice
from alipes.sessions.commands.context import CommandContext
from alipes.store.search.indexer import SqlSearchIndexer
from alipes.tools.shell.background import BackgroundProcesses
from alipes.web.admission import TurnAdmission
from alipes.web.auth import Authenticator, KeyHolder, RequestLimits, hash_key
from alipes.web.endpoint import Caller, endpoints_of
from alipes.web.files import UPLOADS, ApiFiles
from alipes.web.router import ApiRouter
from alipes.web.runs.events import LiveRuns
from alipes.web.server import bind_socket, conversation_endpoints, open_server, server_url
from alipes.web.templates import TemplateEndpoints
from tests.world.commands import NoProcesses, core_commands, make_services
from tests.world.session_harness import SessionHarness, SingleModel, open_sessions

SCOPES = {"ann": "run", "bob": "run", "reader": "read", "root": "admin", "page": "admin", "phone": "read"}
"""The callers; the key of each is `key-NAME`. `page` and `phone` are browsers, which see everything."""


async def _find(hash: bytes) -> KeyHolder | None:
    for name, scope in SCOPES.items():
        if hash_key(f"key-{name}-0123456789abcdef") == hash:
            return KeyHolder(Caller(name, frozenset({scope}), sees_all=name in ("page", "phone")))
    return None


class NoText:
    """Attaches files without their text."""

    async def attach_received(self, inbound: Inbound, _files: Any) -> Inbound:
        return inbound


class KnownModels(SingleModel):
    """Models `a/b` and `a/c`."""

    async def open(self, name: str) -> Backend:
        if name not in ("a/b", "a/c"):
            raise ConfigError(f"No model or provider is called {name!r}. Did you mean a/b?")
        return await super().open(name)

    async def default(self) -> ModelChoice:
        return ModelChoice("a/b", "for tests")

    def names(self) -> tuple[str, ...]:
        return "a/b", "a/c"

    def is_for_tests(self, _name: str) -> bool:
        return False

    def facts(self, name: str) -> ModelFacts:
        return ModelFacts(window=1000, price_input=1.0, price_output=2.0) if name == "a/b" else ModelFacts()


class StreamEvent:
    """One event of the stream."""

    def __init__(self, lines: list[str]) -> None:
        fields = dict(line.split(": ", 1) for line in lines)
        self.id, self.name = fields.get("id", ""), fields.get("event", "")
        self.data: dict[str, Any] = msgspec.json.decode(fields["data"])

    @property
    def text(self) -> str:
        """The text of the message or the delta."""
        if self.name == "said":
            return "".join(part.get("text", "") for part in self.data["message"]["parts"])
        return str(self.data.get("text", ""))


class EventListener:
    """An open event stream: iterate it, or take some."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    def __aiter__(self) -> "EventListener":
        return self

    async def __anext__(self) -> StreamEvent:
        lines: list[str] = []
        async for line in self._lines:
            if not line and lines:
                return StreamEvent(lines)
            if line and not line.startswith(":"):
                lines.append(line)
        raise StopAsyncIteration

    async def until(self, name: str) -> StreamEvent:
        async for heard in self:
            if heard.name == name:
                return heard
        raise AssertionError(f"the stream ended without {name}")

    async def rest(self) -> list[StreamEvent]:
        return [heard async for heard in self]


class ApiClient:
    """An API client."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def ask(
        self, method: str, path: str, body: Any = None, *, by: str = "ann", **headers: str
    ) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else msgspec.json.encode(body)
        kind = {"content-type": "application/json"} if body is not None else {}
        shown = {"authorization": f"Bearer key-{by}-0123456789abcdef"}
        return await self.client.request(method, f"/v1{path}", content=content, headers={**shown, **kind, **named})

    async def begin(self, input: str, *, by: str = "ann", **more: Any) -> str:
        answer = await self.ask("POST", "/runs", {"input": input, **more}, by=by)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def look(self, run: str, *, by: str = "ann") -> dict[str, Any]:
        answer = await self.ask("GET", f"/runs/{run}", by=by)
        assert answer.status_code == 200, answer.text
        run_json: dict[str, Any] = answer.json()
        return run_json

    @asynccontextmanager
    async def listening(self, run: str, last: str = "", *, by: str = "ann") -> AsyncIterator[EventListener]:
        headers = {"authorization": f"Bearer key-{by}-0123456789abcdef", **({"last-event-id": last} if last else {})}
        async with self.client.stream("GET", f"/v1/runs/{run}/events", headers=headers) as response:
            yield EventListener(response)

    async def finish(self, run: str, *, by: str = "ann") -> dict[str, Any]:
        """The run, once it has ended."""
        async with self.listening(run, by=by) as listener:
            await listener.rest()
        return await self.look(run, by=by)


class ApiHarness(ApiClient):
    def __init__(self, client: httpx2.AsyncClient, house: SessionHarness, runs: LiveRuns) -> None:
        super().__init__(client)
        self.house, self.runs = house, runs


def _context(house: Any, inbound: Inbound, *, local_files: bool = True) -> CommandContext:
    more = {"features": house.features, "processes": house.background}
    services = make_services(house, house.models, house.contributions, **more)
    return CommandContext(inbound, services, local_files=local_files)


async def _send(to: str, text: str) -> str:
    if to != "telegram:7":
        raise ConfigError(f"unknown chat {to}")
    return f"Queued: {text}"


@asynccontextmanager
async def open_api(
    home: Path,
    provider: Provider,
    *tools: Tool,
    limits: dict[str, int] | None = None,
    contributions: Contributions | None = None,
    run: Path | None = None,
    checkpoints: Checkpoints | None = None,
    workdir: str = "",
    spend: SpendConfig | None = None,
    background: BackgroundProcesses | None = None,
    **habits: Any,
) -> AsyncIterator[ApiHarness]:
    """`limits`: of `TurnAdmission`; `contributions`: with templates; `run`: names the processes of the agent;
    `workdir`: of tools."""
    async with open_sessions(home, provider, *tools, interactive=True, **habits) as house, BackgroundTasks() as tasks:
        house.settings = load_settings(home, {})  # type: ignore[attr-defined]
        house.models = KnownModels(provider)  # type: ignore[attr-defined]
        house.contributions = contributions or core_commands()  # type: ignore[attr-defined]
        house.features = OpenFeatures()  # type: ignore[attr-defined]
        if checkpoints is not None:
            feature = CheckpointsFeature(house)  # type: ignore[arg-type]
            feature.checkpoints = checkpoints
            house.features.add(feature)  # type: ignore[attr-defined]
        house.background = background or NoProcesses()  # type: ignore[attr-defined]
        house.context = partial(_context, house)  # type: ignore[attr-defined]
        indexer = SqlSearchIndexer(house.store.database)
        house.search = ConversationSearch(house.store.archive, indexer, tasks)  # type: ignore[attr-defined]
        living = LiveRuns(house, workdir=workdir)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(living.run())
            admission = TurnAdmission(house, **(limits or {}))  # type: ignore[arg-type]
            request_limits = RequestLimits(rate=0)
            files = ApiFiles(home / "files" / UPLOADS, OutboundPolicy((), [str(home)]), NoText(), request_limits)
            rooms = (
                *conversation_endpoints(house, living, admission, files),  # type: ignore[arg-type]
                *endpoints_of(
                    UsageEndpoints(house.store.archive, UsageReports(house.store.database), spend or SpendConfig())
                ),
                *endpoints_of(TemplateEndpoints(house)),  # type: ignore[arg-type]
                *endpoints_of(CheckpointEndpoints(house, workdir=workdir)),  # type: ignore[arg-type]
            )
            keys = Authenticator("", _find, run=run)
            router = ApiRouter(rooms, keys, request_limits)
            tools = ConversationTools(house, living, admission, send=_send)  # type: ignore[arg-type]
            mcp = McpEndpoint(tools, router, keys, max_body=1_000_000)
            beside = group.create_task(mcp.run())
            app = Starlette(routes=[*router.routes(), mcp.route()])
            with closing(bind_socket("127.0.0.1", 0)) as door:
                async with open_server(app, door):
                    async with httpx2.AsyncClient(base_url=server_url(door), trust_env=False) as client:
                        yield ApiHarness(client, house, living)
                    living.disconnect_all()
            beside.cancel()
            serving.cancel()
