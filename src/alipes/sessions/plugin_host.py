"""What the house does for plugins that ask it to. It is done in the house's own name, never in theirs."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from alipes.agent.auxiliary import Auxiliary
from alipes.agent.budget import priced, worst
from alipes.agent.model_call import Asker, Patience, ask
from alipes.agent.tool_calls import Desk, perform
from alipes.config.schema import find_key
from alipes.config.settings import Settings
from alipes.config.toml_lines import split_key
from alipes.config.value_types import HEADERS
from alipes.kernel.messages import Json, Message, ToolCall, ToolResult
from alipes.kernel.models import Secret
from alipes.kernel.ports import Request
from alipes.kernel.turns import Address, Event, Inbound, Op, Replied, Turn
from alipes.kernel.usage import Billed
from alipes.plugins.attribution import PLUGIN, TURN, on_behalf_of
from alipes.plugins.dispatch import Hooks
from alipes.plugins.registry import Offers
from alipes.sessions.sessions import Lobby

PLATFORM = "plugin"
"""Of what plugins do outside every conversation."""


class Hosting:
    """See `hooks.context.Host`, whose words these are."""

    def __init__(
        self, settings: Settings, lobby: Lobby, auxiliary: Auxiliary, *, hooks: Hooks, offers: Offers
    ) -> None:
        self.patience = Patience()
        self._settings, self._lobby, self._auxiliary = settings, lobby, auxiliary
        self._hooks, self._offers = hooks, offers

    async def submit(self, inbound: Inbound) -> str | None:
        with by_itself():
            return await self._lobby.submit(inbound)

    async def post(self, key: str, op: Op) -> None:
        with by_itself():
            await self._lobby.post(key, op)

    async def unfinished(self, key: str) -> tuple[str, ...]:
        return await self._lobby.unfinished(key)

    async def ask(
        self, messages: tuple[Message, ...], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> Replied:
        turn = self.living() or _outside()
        with on_behalf_of(None):
            spending, backend = self._auxiliary.spending, await self._auxiliary.backend("", turn, model)
            limit = max_tokens or self._settings.max_tokens
            request = Request(
                model=backend.model,
                system=system,
                messages=messages,
                max_tokens=min(limit, backend.facts.output or limit),
                effort=self._settings.effort,
            )
            async with spending.call(turn, worst(request, backend.facts)):
                reply = await ask(backend, request, Asker(turn, _unheard, self.patience))
                reply = priced(reply, backend.facts)
                await spending.owe(Billed(turn, "plugin", backend.name, reply.usage))
            return reply

    async def use(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        """What it gives is for the plugin alone: no transcript has it, and nobody watches it."""
        turn = turn or self.living() or _outside()
        call = ToolCall(f"plugin-{os.urandom(6).hex()}", name, dict(args))
        with on_behalf_of(None):
            allowed = self._settings.toolsets.get(turn.inbound.address.platform)
            tools = self._offers.tools(allowed, without=await self._offers.unavailable())
            desk = Desk(tools, self._hooks.relay, turn, _unheard, consent=self._lobby.approvals.ask)
            return (await perform(desk, (call,), {}))[call.id]

    def living(self) -> Turn | None:
        return TURN.get()

    def setting(self, key: str) -> object:
        way = split_key(key) or ()
        known = find_key(way)
        if known is None or known.kind is HEADERS:  # headers may hold what stands in for secrets
            return None
        value: Any = self._settings
        for name in way:
            value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        return None if isinstance(value, Secret) else value


@contextmanager
def by_itself() -> Iterator[None]:
    """What begins inside belongs to no plugin and to no turn."""
    turn, plugin = TURN.set(None), PLUGIN.set(None)
    try:
        yield
    finally:
        TURN.reset(turn)
        PLUGIN.reset(plugin)


def _outside() -> Turn:
    """In place of a turn where none lives. Nobody can be asked in it."""
    address = Address(PLATFORM, "outside")
    return Turn("", "", Inbound("", address, PLATFORM, "", workdir=os.getcwd()))


async def _unheard(_event: Event) -> None:
    return None
