"""Plugins opened outside of any conversation: for their own commands, their skills, and the doctor."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.hooks.context import Host
from alipes.hooks.loader import Door, Plugins, open_plugins
from alipes.hooks.offers import Offers
from alipes.hooks.relay import Hooks
from alipes.kernel.endpoints import Secret
from alipes.kernel.errors import ProviderError, SessionError, ToolError
from alipes.kernel.messages import Json, Message, ToolResult
from alipes.kernel.ports import Act, Output, Request, ToolSpec
from alipes.kernel.turns import Inbound, Op, Replied, Turn
from alipes.providers.choice import choose
from alipes.providers.opening import Models
from alipes.runtime.clients import ClientScope
from alipes.sessions.commands import BY_NAME

TOOLS = (
    *("terminal", "process", "read_file", "write_file", "patch", "search_files"),
    *("delegate_task", "mixture_of_agents", "vision_analyze", "image_generate"),
    *("todo", "clarify", "execute_code"),
)
"""Our own, by name; a test compares them with those of a conversation."""
_NOBODY = "there is no conversation here: a plugin's own command runs by itself"


class Alone:
    """The house for a plugin that nobody talks through: it may ask a model, and that is all."""

    def __init__(self, settings: Settings, scope: ClientScope, models: Models) -> None:
        self._settings, self._scope, self._models = settings, scope, models

    async def submit(self, inbound: Inbound) -> str | None:
        raise SessionError(_NOBODY)

    async def post(self, key: str, op: Op) -> None:
        raise SessionError(_NOBODY)

    async def unfinished(self, key: str) -> tuple[str, ...]:
        return ()

    async def ask(
        self, messages: tuple[Message, ...], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> Replied:
        name = model or (await choose(self._settings, self._scope)).model
        backend = await self._models.open(name)
        request = Request(backend.model, system, messages, max_tokens=max_tokens or self._settings.max_tokens)
        async with backend.provider.stream(request) as deltas:
            async for delta in deltas:
                if isinstance(delta, Replied):
                    return delta
        raise ProviderError(f"{backend.name} ended without an answer")

    async def use(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        return ToolResult("", f"{name} was not run: {_NOBODY}", "failed")

    def living(self) -> Turn | None:
        return None

    def setting(self, key: str) -> object:
        value: object = self._settings
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        return None if isinstance(value, Secret | Struct) or callable(value) else value


class Opened(Struct, frozen=True):
    plugins: Plugins
    offers: Offers


@asynccontextmanager
async def open_alone(settings: Settings) -> AsyncIterator[Opened]:
    """The enabled plugins, open, and what they offer. What fails is told by `plugins.facts()`."""
    async with open_host(settings) as host:
        offers = new_offers()
        async with open_plugins(
            settings, hooks=Hooks(), offers=offers, host=host, doors=doors(host, settings)
        ) as plugins:
            yield Opened(plugins, offers)


@asynccontextmanager
async def open_host(settings: Settings) -> AsyncIterator[Host]:
    async with (
        ClientScope(settings.proxies, trust=settings.ca_file or None) as scope,
        Models(settings, scope) as models,
    ):
        yield Alone(settings, scope, models)


class _Taken:
    """Stands where one of our own tools stands in a conversation, so that nobody else takes its name."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def run(self, args: Mapping[str, Json], act: Act) -> str | Output:
        raise ToolError(_NOBODY)


def new_offers() -> Offers:
    """Empty; names of commands and tools that are ours are refused, as in a conversation."""
    offers = Offers(lambda: BY_NAME)
    offers.build_in(*(_Taken(ToolSpec(name, "", {})) for name in TOOLS))
    return offers


def doors(host: Host, settings: Settings) -> dict[str, Callable[[], Door]]:
    """One door for all that was written for Hermes, loaded when the first of it is opened."""
    made: list[Door] = []

    def hermes() -> Door:
        if not made:
            made.append(import_module("alipes.compat.hermes.door").open_door(host, settings))
        return made[0]

    return dict.fromkeys(("hermes", "file-hook", "shell-hooks"), hermes)
