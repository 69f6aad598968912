"""An agent as a model: a provider whose answers are the work of a program."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from alipes.config.settings import AGENT_PREFIX
from alipes.kernel.errors import Refused, ToolError
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta
from alipes.plugins.interruption.attribution import TURN

if TYPE_CHECKING:
    from alipes.features.agents.agents import Agents


class AgentProvider:
    def __init__(self, name: str, load: "Callable[[], Awaitable[Agents]]") -> None:
        """`load()`: raises `ToolError` if a package is missing."""
        self._name, self._load = name, load

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        turn = TURN.get()
        if turn is None or request.session != turn.session:
            name = f"{AGENT_PREFIX}/{self._name}"
            raise Refused(f"{name} answers in conversations only: set auxiliary.TASK.model for everything else.")
        try:
            agents = await self._load()
        except ToolError as error:
            raise Refused(str(error)) from error
        conversation = agents.conversation(self._name, turn.session)
        async with aclosing(conversation.step(request, turn)) as deltas:
            yield deltas
