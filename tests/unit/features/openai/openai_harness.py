"""The API's rooms for OpenAI's clients behind a real door, on a real house; the model is the test's."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from msgspec import structs
from starlette.applications import Starlette

from alipes.config.settings import OnTimeout
from alipes.features.openai.chat import ChatCompletions
from alipes.features.openai.documents import RequestDocuments
from alipes.features.openai.embeddings import EmbeddingEndpoints
from alipes.features.openai.endpoints import ModelEndpoints
from alipes.features.openai.responses import ResponseEndpoints
from alipes.features.openai.turns import OpenAiTurns
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Inbound
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.sessions.commands.context import CommandContext
from alipes.testing.scripted_provider import ScriptedProvider
from alipes.web.admission import TurnAdmission
from alipes.web.auth import Authenticator, KeyHolder, RequestLimits, hash_key
from alipes.web.endpoint import Caller, endpoints_of
from alipes.web.files import ApiFiles
from alipes.web.router import ApiRouter
from alipes.web.server import bind_socket, open_server, server_url
from tests.world.commands import core_commands, make_services
from tests.world.session_harness import SessionHarness, SingleModel, open_sessions

KEY = "the-operators-key"
OTHERS = {hash_key("anns-key"): "ann", hash_key("bobs-key"): "bob"}


class Models(SingleModel):
    def names(self) -> tuple[str, ...]:
        return ("test/m", "test/mighty", "far/family/m")

    async def open(self, name: str) -> Any:
        if name not in (*self.names(), "test"):
            raise ConfigError(f"No model or provider is called {name!r}. Did you mean test/m?")
        return await super().open(name)


class PlainText:
    """Attaches files as they are."""

    async def attach_received(self, inbound: Inbound, files: Any) -> Inbound:
        (file,) = files
        content = Path(file.path).read_text()
        return structs.replace(inbound, text=f"{inbound.text}\n{content}", untrusted=f"the file {file.name}")


class Desk:
    """What the rooms need of an app; and a few words for tests."""

    def __init__(self, house: SessionHarness, provider: ScriptedProvider) -> None:
        self.house, self.provider = house, provider
        self.sessions, self.store, self.hooks = house.sessions, house.store, house.hooks
        self.models = Models(provider)
        self.contributions = core_commands()
        self.http: httpx2.AsyncClient
        self.url = ""

    def context(self, inbound: Inbound, *, local_files: bool = True) -> CommandContext:
        services = make_services(self, self.models, self.contributions)
        return CommandContext(inbound, services, local_files=local_files)

    async def post(self, path: str, *, key: str = KEY, **body: Any) -> httpx2.Response:
        return await self.http.post(path, json=body, headers={"authorization": f"Bearer {key}"})

    async def get(self, path: str, *, key: str = KEY) -> httpx2.Response:
        return await self.http.get(path, headers={"authorization": f"Bearer {key}"})

    async def chat(self, *messages: Any, key: str = KEY, **more: Any) -> Any:
        """What is answered; each message is a user's words or a whole message."""
        answer = await self.post("/v1/chat/completions", key=key, messages=talk(*messages), **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def streamed(self, path: str, *, key: str = KEY, **body: Any) -> list[tuple[str, Any]]:
        """The events by name, with what they carry."""
        answer = await self.post(path, key=key, stream=True, **body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return [read(event) for event in answer.text.split("\n\n") if event.strip()]

    async def list_sessions(self) -> list[Any]:
        return await self.store.archive.sessions()

    def asked(self, place: int = -1) -> list[tuple[str, str]]:
        """What the model was sent, as roles and texts; results as they are."""
        seen = self.provider.asked[place].messages
        return [
            (each.role, " ".join(part.name if isinstance(part, ToolCall) else part.text for part in each.parts))
            for each in seen
        ]


def read(event: str) -> tuple[str, Any]:
    lines = dict(line.split(": ", 1) for line in event.splitlines())
    data = lines["data"]
    return lines.get("event", ""), data if data == "[DONE]" else msgspec.json.decode(data)


def talk(*messages: Any) -> list[Any]:
    return [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def tool(name: str = "weather") -> dict[str, Any]:
    """A tool of the client's, as chat completions have it."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": "tells the weather", "parameters": schema}}


def result(id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


@asynccontextmanager
async def open_desk(
    home: Path,
    script: Any = None,
    *tools: Any,
    limits: RequestLimits | None = None,
    fetch_from: tuple[str, ...] = (),
    trust: ssl.SSLContext | None = None,
    on_timeout: OnTimeout = "continue",
    **habits: Any,
) -> AsyncIterator[Desk]:
    """`fetch_from`: private hosts from which images may be fetched."""
    provider = script if hasattr(script, "stream") else ScriptedProvider(script)

    async def find(hash: bytes) -> KeyHolder | None:
        name = OTHERS.get(hash)
        return KeyHolder(Caller(name, frozenset({"run"}))) if name else None

    async with open_sessions(home, provider, *tools, **habits) as house, ClientScope(trust=trust) as scope:
        desk = Desk(house, provider)
        turns, fetcher = OpenAiTurns(desk, TurnAdmission(desk), on_timeout=on_timeout), PublicFetcher(scope, fetch_from)
        uploads = ApiFiles(home / "uploads", OutboundPolicy((), [str(home)]), PlainText(), RequestLimits())
        documents = RequestDocuments(fetcher, uploads)
        embeddings = EmbeddingEndpoints(desk)
        served = (
            *(ChatCompletions(turns, documents), ResponseEndpoints(desk, turns, documents)),
            *(ModelEndpoints(desk), embeddings),
        )
        api = ApiRouter(
            tuple(each for group in served for each in endpoints_of(group)),
            Authenticator(KEY, find),
            limits or RequestLimits(),
        )
        door = bind_socket("127.0.0.1", 0)
        async with open_server(Starlette(routes=api.routes()), door):
            desk.url = server_url(door)
            async with httpx2.AsyncClient(base_url=desk.url, trust_env=False, timeout=20) as desk.http:
                yield desk
        door.close()


__all__ = ["KEY", "Desk", "open_desk", "read", "result", "said", "talk", "tool"]
