"""The composition root: the one place that knows every name. Nothing imports it but the CLI."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from alipes.agent.chain import Chain
from alipes.agent.loop import Agent
from alipes.agent.prompt import system_prompt
from alipes.config.settings import Settings
from alipes.hooks.relay import Hooks
from alipes.kernel.errors import AlipesError
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Turn
from alipes.providers.choice import Choice, choose
from alipes.providers.opening import Models
from alipes.runtime.clients import ClientScope
from alipes.sessions.lobby import Lobby
from alipes.store.opening import Store, open_store


class App:
    """Everything that is open, and the lobby that uses it."""

    def __init__(self, settings: Settings, scope: ClientScope, store: Store, models: Models) -> None:
        self.settings, self.scope, self.store, self.models = settings, scope, store, models
        self.hooks = Hooks()
        self.tools: dict[str, Tool] = {}
        self.lobby = Lobby(store, hooks=self.hooks, agent=self._agent)
        self._system = system_prompt(settings.home)
        self._chain = Chain()
        self._choosing = asyncio.Lock()
        self._choice: Choice | None = None

    async def choice(self) -> Choice:
        """The model that answers unless a message names another; found once."""
        async with self._choosing:
            if self._choice is None:
                self._choice = await choose(self.settings, self.scope)
            return self._choice

    async def _agent(self, turn: Turn) -> Agent:
        return Agent(
            models=self.models,
            model=turn.inbound.model or (await self.choice()).model,
            fallback=self.settings.fallback,
            tools=self.tools,
            hooks=self.hooks,
            system=self._system,
            max_steps=self.settings.max_steps,
            max_tokens=self.settings.max_tokens,
            effort=self.settings.effort,
            chain=self._chain,
        )


@asynccontextmanager
async def open_app(settings: Settings) -> AsyncIterator[App]:
    """Whatever must be closed is opened here, and closed here in reverse; the lobby serves meanwhile."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(settings.home))
        scope = await stack.enter_async_context(ClientScope(settings.proxies))
        models = await stack.enter_async_context(Models(settings, scope))
        app = App(settings, scope, store, models)
        async with _serving(app.lobby):
            yield app


@asynccontextmanager
async def _serving(lobby: Lobby) -> AsyncIterator[None]:
    """Run the lobby beside the body; what ends the lobby ends the body, as one error and not a group."""
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(lobby.run(), name="lobby")
            yield
            serving.cancel()
    except* AlipesError as errors:
        raise _first(errors) from errors


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = errors.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
