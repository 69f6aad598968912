"""Loads plugins without a conversation: for their commands, their skills and the doctor."""

import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.kernel.errors import ProviderError, SessionError, ToolError
from alipes.kernel.messages import Json, Message, ToolResult
from alipes.kernel.models import Secret
from alipes.kernel.ports import Request, ToolContext, ToolOutput, ToolSpec
from alipes.kernel.turns import Inbound, ModelReply, Op, Turn
from alipes.plugins.context import Host
from alipes.plugins.dispatch import Hooks
from alipes.plugins.foreign_loaders import foreign_loaders
from alipes.plugins.loader import Plugins
from alipes.plugins.registry import Contributions
from alipes.providers.registry import Models, choose_model, open_models
from alipes.runtime.http.clients import ClientScope
from alipes.sessions.commands.registry import COMMANDS

if TYPE_CHECKING:
    from alipes.features.feature import Feature

CORE_TOOLS = (
    *("terminal", "process", "read_file", "write_file", "patch", "search_files"),
    *("mixture_of_agents", "vision_analyze", "image_generate"),
    *("todo", "clarify", "execute_code", "send_file", "session_search"),
)
"""Names of the built-in tools besides those of features; a test compares them with those of a conversation."""
_NO_CONVERSATION = "no conversation is available in a command of a plugin"


class StandaloneHost:
    """The host of a plugin without a conversation: it can only ask a model."""

    def __init__(self, settings: Settings, scope: ClientScope, models: Models) -> None:
        self._settings, self._scope, self._models = settings, scope, models

    async def submit(self, inbound: Inbound) -> str | None:
        raise SessionError(_NO_CONVERSATION)

    async def post(self, key: str, op: Op) -> None:
        raise SessionError(_NO_CONVERSATION)

    async def unfinished(self, key: str) -> tuple[str, ...]:
        return ()

    async def ask(
        self, messages: tuple[Message, ...], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> ModelReply:
        name = model or (await choose_model(self._settings, self._scope)).model
        backend = await self._models.open(name)
        request = Request(backend.model, system, messages, max_tokens=max_tokens or self._settings.max_tokens)
        async with backend.provider.stream(request) as deltas:
            async for delta in deltas:
                if isinstance(delta, ModelReply):
                    return delta
        raise ProviderError(f"{backend.name} gave no answer")

    async def run_tool(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        return ToolResult("", f"{name} was not run: {_NO_CONVERSATION}", "failed")

    def current_turn(self) -> Turn | None:
        return None

    def setting(self, key: str) -> object:
        value: object = self._settings
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
        return None if isinstance(value, Secret | Struct) or callable(value) else value


class LoadedPlugins(Struct, frozen=True):
    plugins: Plugins
    contributions: Contributions

    def report_failures(self) -> None:
        for facts in self.plugins.statuses():
            if facts.state != "on":
                sys.stderr.write(f"plugin {facts.name} could not be loaded: {facts.why}\n")


@asynccontextmanager
async def open_standalone(settings: Settings, features: "Iterable[type[Feature]]") -> AsyncIterator[LoadedPlugins]:
    """Load the enabled plugins. `plugins.statuses()` has the failures. `features`: plugins may not use their names."""
    offers = make_registry(features)
    async with open_host(settings) as host:
        plugins = Plugins(settings, Hooks(), offers, host=host, loaders=foreign_loaders(host, settings))
        async with plugins.open():
            yield LoadedPlugins(plugins, offers)


@asynccontextmanager
async def open_host(settings: Settings) -> AsyncIterator[Host]:
    async with open_models(settings) as (scope, models):
        yield StandaloneHost(settings, scope, models)


class _ReservedTool:
    """Reserves the name of a built-in tool, as in a conversation."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        raise ToolError(_NO_CONVERSATION)


def make_registry(features: "Iterable[type[Feature]]") -> Contributions:
    """An empty registry that refuses the names of built-in commands and tools."""
    offers = Contributions(lambda: COMMANDS)
    names = list(CORE_TOOLS)
    for feature in features:
        offers.add_commands(feature.commands)
        names += feature.tool_names
    offers.add_builtin(*(_ReservedTool(ToolSpec(name, "", {})) for name in names))
    return offers
