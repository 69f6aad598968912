"""Joins agents to models, hooks and the end of the app, if some are configured. They are loaded when first used."""

import asyncio
from contextlib import AsyncExitStack
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Self

from alipes.config.settings import AGENT_PREFIX
from alipes.core.app import App
from alipes.features.agents.calls import AgentTool
from alipes.features.agents.provider import AgentProvider
from alipes.kernel.messages import Message
from alipes.kernel.turns import Turn
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.registry import PromptTemplate
from alipes.providers.registry import Backend

if TYPE_CHECKING:
    from alipes.features.agents.agents import Agents


class AgentService:
    """An async context manager."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._group = asyncio.TaskGroup()
        self.agents: Agents | None = None
        """None until one is used."""

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.agents is not None:
            self.agents.close()
        # only a cancellation is passed on: the group would wrap other errors of the body
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))

    async def load(self) -> "Agents":
        """Raises `ToolError` if the package of the protocol is not installed."""
        if self.agents is None:
            await self._app.extras.require("acp", TURN.get())
            module = await asyncio.to_thread(import_module, "alipes.features.agents.agents")
            self.agents = self.agents or module.Agents(self._app, self._group)
        return self.agents

    async def open_backend(self, name: str) -> Backend:
        """An agent as a model. It is not started for this."""
        return Backend(f"{AGENT_PREFIX}/{name}", name, AgentProvider(name, self.load), keeps_history=True)

    def templates(self) -> dict[str, PromptTemplate]:
        return {} if self.agents is None else self.agents.templates()

    # Hooks

    async def agent_loop_stopped(self, turn_id: str) -> None:
        """Hook: the events of a turn that is stopped are dropped, and requests for it refused."""
        if self.agents is not None:
            self.agents.stop(turn_id)

    async def turn_ended(self, turn: Turn, ending: str, said: tuple[Message, ...]) -> None:
        """Hook: an agent has seen the conversation so far."""
        if self.agents is not None:
            self.agents.end_turn(turn, ending, said)

    async def session_left(self, session: str) -> None:
        """Hook: its program ends with a conversation."""
        if self.agents is not None:
            await self.agents.leave(session)


async def open_service(app: App, stack: AsyncExitStack) -> AgentService:
    service = await stack.enter_async_context(AgentService(app))
    tool = AgentTool(lambda: service.agents)
    app.models.add_agents(service.open_backend, {tool.spec.name: tool})
    app.contributions.add_templates(service.templates)
    app.add_hooks(service.agent_loop_stopped, service.turn_ended, service.session_left)
    return service
