"""Joins agents to models, tools, hooks and the end of the app, if there are some. Each is loaded when first used."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Self

from alipes.config.settings import AGENT_PREFIX
from alipes.core.app import App
from alipes.kernel.approvals import AGENT_TOOL
from alipes.kernel.errors import Refused, ToolError
from alipes.kernel.messages import Json, Message
from alipes.kernel.ports import Request, ToolContext, ToolOutput, ToolSpec
from alipes.kernel.turns import Delta, Turn
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.registry import PromptTemplate
from alipes.providers.registry import Backend
from alipes.tools.common import make_schema

if TYPE_CHECKING:
    from alipes.features.agents.agents import Agents


class AgentProvider:
    """An agent as a model: a provider whose answers are the work of a program."""

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


class AgentTool:
    """The tool through which an agent shows its work: each call of it is one that the agent makes itself."""

    spec = ToolSpec(
        name=AGENT_TOOL,
        description="What another agent does with a tool of its own.",
        schema=make_schema("title", title="string", kind="string"),
        untrusted=False,
    )

    def __init__(self, find_agents: "Callable[[], Agents | None]") -> None:
        """`find_agents()`: None if none was used yet."""
        self._find_agents = find_agents

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        """Wait until the agent has ended its call; its requests are served meanwhile."""
        agents = self._find_agents()
        prompt, found = (None, None) if agents is None else agents.find_call(act.turn, act.call_id)
        if agents is None or prompt is None or found is None:
            raise ToolError("this is a tool of another agent, which no longer waits for it")
        await agents.requests.calls.serve(prompt, found, act)
        if found.failed:
            raise ToolError(found.output or "it failed")
        return await asyncio.to_thread(found.describe, act.workdir)


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
