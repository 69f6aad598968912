"""The host that plugins talk to."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from alipes.agent.auxiliary import AuxiliaryModels, ignore_event
from alipes.agent.tool_calls import ToolRunner, run_calls
from alipes.config.schema import find_key
from alipes.config.settings import Settings
from alipes.config.toml_lines import split_key
from alipes.config.value_types import HEADERS
from alipes.kernel.messages import Json, Message, ToolCall, ToolResult
from alipes.kernel.models import Secret
from alipes.kernel.ports import Request
from alipes.kernel.turns import Address, Inbound, ModelReply, Op, Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.interruption.attribution import PLUGIN, TURN, on_behalf_of
from alipes.plugins.registry import Contributions
from alipes.sessions.sessions import Sessions

PLATFORM = "plugin"
"""The platform of what plugins do outside any conversation."""


class PluginHost:
    """Implements `plugins.context.Host`: what plugins may ask of alipes, done in its own name."""

    def __init__(
        self,
        settings: Settings,
        sessions: Sessions,
        auxiliary: AuxiliaryModels,
        *,
        hooks: Hooks,
        contributions: Contributions,
    ) -> None:
        self._settings, self._sessions, self._auxiliary = settings, sessions, auxiliary
        self._hooks, self._contributions = hooks, contributions

    async def submit(self, inbound: Inbound) -> str | None:
        with detached_context():
            return await self._sessions.submit(inbound)

    async def post(self, key: str, op: Op) -> None:
        with detached_context():
            await self._sessions.post(key, op)

    async def unfinished(self, key: str) -> tuple[str, ...]:
        return await self._sessions.unfinished(key)

    async def ask(
        self, messages: tuple[Message, ...], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> ModelReply:
        turn = self.current_turn() or _turn_outside()
        with on_behalf_of(None):
            backend = await self._auxiliary.backend("", turn, model)
            limit = max_tokens or self._settings.max_tokens
            request = Request(
                model=backend.model,
                system=system,
                messages=messages,
                max_tokens=min(limit, backend.facts.output or limit),
                effort=self._settings.effort,
            )
            return await self._auxiliary.send(request, backend, turn, task="plugin")

    async def run_tool(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        """The result goes to the plugin only: not to a transcript, and not to a screen."""
        turn = turn or self.current_turn() or _turn_outside()
        call = ToolCall(f"plugin-{os.urandom(6).hex()}", name, dict(args))
        with on_behalf_of(None):
            allowed = self._settings.toolsets.get(turn.inbound.address.platform)
            off = self._settings.tools.find_off(turn.inbound.address.platform, self._contributions.groups())
            left_out = {*off, *await self._contributions.unavailable()}
            tools = self._contributions.tools(allowed, without=left_out)
            desk = ToolRunner(
                tools, self._hooks.dispatcher, turn, ignore_event, ask_approval=self._sessions.questions.ask_approval
            )
            return (await run_calls(desk, (call,), {}))[call.id]

    def current_turn(self) -> Turn | None:
        return TURN.get()

    def setting(self, key: str) -> object:
        way = split_key(key) or ()
        known = find_key(way)
        if known is None or known.type is HEADERS:  # headers may contain secrets
            return None
        value: Any = self._settings
        for name in way:
            value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        return None if isinstance(value, Secret) else value


@contextmanager
def detached_context() -> Iterator[None]:
    """Code started inside belongs to no plugin and no turn."""
    turn, plugin = TURN.set(None), PLUGIN.set(None)
    try:
        yield
    finally:
        TURN.reset(turn)
        PLUGIN.reset(plugin)


def _turn_outside() -> Turn:
    """A placeholder outside any turn. Nobody can be asked in it."""
    address = Address(PLATFORM, "outside")
    return Turn("", "", Inbound("", address, PLATFORM, "", workdir=os.getcwd()))
