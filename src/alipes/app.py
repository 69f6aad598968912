"""The composition root: the one place that knows every name. Nothing imports it but the CLI."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from importlib import import_module
from typing import TypeAlias

from alipes.agent.after_turn import Aside
from alipes.agent.approval.approval import approval
from alipes.agent.approval.paths import Risk
from alipes.agent.auxiliary import Auxiliary, Mixing
from alipes.agent.budget import Spending
from alipes.agent.builtin_tools import Parts, open_todos, senses
from alipes.agent.compaction.compaction import Compaction
from alipes.agent.loop import Agent
from alipes.agent.model_call import Chain, Patience
from alipes.agent.plugin_edits import rewriting
from alipes.agent.prompt import system_prompt
from alipes.config.environment import inherited, resettle
from alipes.config.settings import Settings
from alipes.gateway.outbound.owed import Owing
from alipes.kernel.conversations import Leave
from alipes.kernel.errors import AlipesError
from alipes.kernel.formatting import brief
from alipes.kernel.messages import ToolCall
from alipes.kernel.outbox import Outbound
from alipes.kernel.ports import Provider, Tool
from alipes.kernel.turns import Envelope, Event, Inbound, Noted, Turn
from alipes.plugins.attribution import TURN
from alipes.plugins.dispatch import Hooks
from alipes.plugins.loader import Door, Plugins, open_plugins
from alipes.plugins.owner import CORE
from alipes.plugins.registry import Offers, SkillOffer
from alipes.providers.registry import Backend, Choice, Models, choose
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.process_setup import close_memory, wipe_environment
from alipes.runtime.processes.orphans import Keeper, open_keeper
from alipes.runtime.redaction import masking
from alipes.runtime.tasks import first
from alipes.runtime.watchdog import Watchdog
from alipes.sessions.commands import BY_NAME
from alipes.sessions.commands.context import Context
from alipes.sessions.plugin_host import Hosting
from alipes.sessions.sessions import Habits, Lobby
from alipes.sessions.subagents.delegation import NEED_A_PERSON, Delegation
from alipes.store.conversations import entitle
from alipes.store.store import Store, open_store
from alipes.store.summaries import SqliteDigests
from alipes.store.usage import SqliteBill
from alipes.tools.code.execute_code import ExecuteCode, Limits
from alipes.tools.common import Places, child_environment, is_hidden
from alipes.tools.delegate import Delegate
from alipes.tools.files.patch import Patch
from alipes.tools.files.read_file import ReadFile
from alipes.tools.files.write_file import WriteFile
from alipes.tools.mixture import MixtureOfAgents
from alipes.tools.search.search_files import SearchFiles
from alipes.tools.shell.background import Background
from alipes.tools.shell.output import Spill
from alipes.tools.shell.process import Process
from alipes.tools.shell.terminal import Terminal

Owes: TypeAlias = Callable[[Turn, Event], tuple[Outbound, ...]]
HERMES = "alipes.compat.hermes.loader"
"""Loaded by name, when something is to be opened that was written for Hermes."""


class App:
    """Everything that is open, and the lobby that uses it."""

    def __init__(
        self,
        settings: Settings,
        scope: ClientScope,
        store: Store,
        *,
        models: Models,
        background: Background,
        habits: Habits,
    ) -> None:
        self.settings, self.scope, self.store, self.models = settings, scope, store, models
        self.background = background
        self.mask = masking(settings.secrets())
        self.hooks = Hooks(settings.plugins.deadline, self._report, deadlines=settings.plugins.deadlines)
        self.offers = Offers(lambda: BY_NAME)
        self.plugins: Plugins
        self.patience = Patience()
        self.lobby = Lobby(store, hooks=self.hooks, agent=self._agent, habits=habits)
        self.spending = Spending(SqliteBill(store.database), settings.side.spend, self.lobby.approvals.ask)
        self.auxiliary = Auxiliary(models, self.spending, settings.side, choice=self._model)
        self.compaction = Compaction(
            self.auxiliary, SqliteDigests(store.database), settings.side.compaction, self._keeps
        )
        self.host = Hosting(settings, self.lobby, self.auxiliary, hooks=self.hooks, offers=self.offers)
        self._system = system_prompt(settings.home, self._skills)
        self._chain = Chain()
        self.undrawn: Callable[[], tuple[str, ...]] = tuple
        """Names of tools of the house that cannot be used now."""
        self._choosing = asyncio.Lock()
        self._choice: Choice | None = None

    async def choice(self) -> Choice:
        """The model that answers unless a message or a session names another; found once."""
        async with self._choosing:
            if self._choice is None:
                self._choice = await choose(self.settings, self.scope)
            return self._choice

    async def _model(self) -> str:
        return (await self.choice()).model

    def context(self, inbound: Inbound, *, files: bool = True) -> Context:
        """What a command that came as `inbound` is run with; `files`: the person works on this machine."""
        return Context(
            inbound=inbound,
            lobby=self.lobby,
            store=self.store,
            models=self.models,
            choice=self.choice,
            background=self._background,
            offers=self.offers,
            hooks=self.hooks,
            plugins=self.plugins,
            files=files,
            compaction=self.compaction,
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know at the start."""
        broken = (each for each in self.plugins.facts() if each.state == "failed")
        return (*self.settings.notes, *(f"plugin {each.name} is not loaded: {each.why}" for each in broken))

    async def _agent(self, turn: Turn) -> Agent:
        model = turn.inbound.model or turn.model or (await self.choice()).model
        unavailable = (*await self.offers.unavailable(), *self.undrawn())
        # From here on nothing is waited for: tools and hooks are those of one moment, and are held from it.
        return Agent(
            models=self.models,
            model=model,
            fallback=self.settings.fallback,
            tools=self._tools(turn, unavailable),
            hooks=self.hooks.relay,
            system=self._system,
            max_steps=self.settings.delegation.steps if turn.inbound.parent else self.settings.max_steps,
            max_tokens=self.settings.max_tokens,
            effort=self.settings.effort,
            patience=self.patience,
            chain=self._chain,
            consent=self.lobby.approvals.ask,
            spending=self.spending,
            compaction=self.compaction,
            mask=self.mask,
        )

    def _background(self, session: str) -> str:
        jobs = (job.title for job in self.background.living(session))
        return ", ".join((*jobs, *(f"subagent {each}" for each in self._detached(session))))

    async def _keeps(self, session: str) -> tuple[str, ...]:
        """What a session has beside its words, for a model that is told them only in short."""
        jobs = (f"a background process: {job.title}" for job in self.background.living(session))
        children = (f"a subagent in the background: {each}" for each in self._detached(session))
        return (*await open_todos(self.store.todos, session), *children, *jobs)

    def _detached(self, session: str) -> tuple[str, ...]:
        return tuple(f"{turn[:6]} {brief(goal)}" for turn, goal in self.lobby.delegated.detached(session))

    async def tool_names(self, turn: Turn) -> tuple[str, ...]:
        """What a turn may use if it began now."""
        return tuple(self._tools(turn, (*await self.offers.unavailable(), *self.undrawn())))

    def _tools(self, turn: Turn, unavailable: Iterable[str]) -> Mapping[str, Tool]:
        """Those of the place where its person is, and of these the ones that the message itself allows."""
        origin, only = turn.inbound.origin, turn.inbound.only
        place = origin.address if origin is not None else turn.inbound.address
        left_out = {*unavailable, *(NEED_A_PERSON if origin is not None else ())}
        tools = self.offers.tools(self.settings.toolsets.get(place.platform), without=left_out)
        return tools if only is None else {name: tool for name, tool in tools.items() if name in only}

    def _skills(self) -> tuple[tuple[str, str, str], ...]:
        return tuple((each.name, each.description, each.path) for each in self.offers.all(SkillOffer))

    def _report(self, what: str, offered: Mapping[str, object]) -> None:
        """What a plugin did wrong is told in the turn that it was done to."""
        turn = offered.get("turn") or TURN.get()
        if isinstance(turn, Turn):
            self.store.bus.publish(Envelope(turn.key, turn.id, Noted(what)))


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    interactive: bool = False,
    lent: Mapping[str, Provider] | None = None,
    patience: Patience | None = None,
    owes: Owes | None = None,
) -> AsyncIterator[App]:
    """Whatever must be closed is opened here, and closed here in reverse; the lobby serves meanwhile.

    `interactive`: a person watches, who can answer a question and may change their mind while a turn runs.
    `lent`: providers that live in this process, by the name of the endpoint they stand in for; `patience`:
    how long a model is asked, and by which clock. `owes`: what a chat is owed for what a turn tells.
    """
    _close_off(settings)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Watchdog())
        store = await stack.enter_async_context(open_store(settings.home))
        scope = await stack.enter_async_context(ClientScope(settings.proxies, trust=settings.ca_file or None))
        models = await stack.enter_async_context(Models(settings, scope, lent))
        keeper = await stack.enter_async_context(open_keeper(settings.paths.run))
        background = await stack.enter_async_context(_open_background(settings, keeper))
        habits = Habits(
            busy=settings.terminal.busy if interactive else "queue",
            interactive=interactive,
            keeps=background.mention,
            silence=settings.silence,
            owes=owes or _owing(settings),
            longest=settings.delegation.minutes * 60,
        )
        app = App(settings, scope, store, models=models, background=background, habits=habits)
        app.patience = app.host.patience = app.auxiliary.patience = patience or app.patience
        _equip(app, keeper)
        aside = Aside(app.auxiliary, app.compaction, partial(entitle, store.database))
        app.hooks.add(CORE, (await stack.enter_async_context(aside)).turn_ended)
        app.hooks.add(CORE, app.compaction.session_left)
        app.plugins = await stack.enter_async_context(
            open_plugins(settings, hooks=app.hooks, offers=app.offers, host=app.host, doors=_doors(app))
        )
        async with _serving(app.lobby):
            yield app


def _close_off(settings: Settings) -> None:
    """Before anything is started: what runs here as the same user finds no secret in this process."""
    secrets = frozenset(settings.secrets())
    wipe_environment(resettle(lambda name, value: is_hidden(name, value, secrets)))
    if not settings.debuggable:
        close_memory()


def _owing(settings: Settings) -> Owing:
    """A turn that was begun in a chat may be finished anywhere: its chat is owed the answer all the same."""
    folders = (str(settings.paths.outgoing),)
    return Owing(tuple(settings.messengers.wanted), folders, keeps=_places(settings).keeps)


def _places(settings: Settings) -> Places:
    return Places(home=os.path.expanduser("~"), own=str(settings.home))


def _doors(app: App) -> Mapping[str, Callable[[], Door]]:
    @cache
    def hermes() -> Door:
        door: Door = import_module(HERMES).open_door(app.host, app.settings)
        return door

    return dict.fromkeys(("hermes", "file-hook", "shell-hooks"), hermes)


def _parts(app: App, places: Places) -> Parts:
    def turn() -> Turn:
        living = TURN.get()
        assert living is not None, "a tool runs in the course of a turn"
        return living

    async def backend(turn: Turn) -> Backend:
        return await app.models.open(turn.inbound.model or turn.model or (await app.choice()).model)

    return Parts(
        settings=app.settings,
        scope=app.scope,
        places=places,
        offers=app.offers,
        auxiliary=app.auxiliary,
        spending=app.spending,
        todos=app.store.todos,
        turn=turn,
        open=backend,
        ask=app.lobby.questions.ask,
    )


def _company(app: App) -> tuple[Tool, ...]:
    """What has others at work: subagents, and models that answer together."""
    limits, mixing = app.settings.delegation, Mixing(app.auxiliary, app.settings.mixtures)
    app.models.consult = mixing.ask
    delegation = Delegation(
        app.lobby,
        app.store,
        limits,
        models=app.models,
        tools=app.tool_names,
        lasting=app.lobby.habits.interactive,
    )
    return (*((Delegate(delegation),) if limits.depth else ()), MixtureOfAgents(mixing))


def _open_background(settings: Settings, keeper: Keeper) -> Background:
    return Background(Spill(settings.paths.spill), keeper=keeper, mask=masking(settings.secrets()))


def _equip(app: App, keeper: Keeper) -> None:
    """The tools, and the hooks of the house itself."""
    settings, background = app.settings, app.background
    places = _places(settings)
    env, mask = child_environment(inherited(), settings.secrets()), app.mask
    terminal = Terminal(
        places, env, Spill(settings.paths.spill), keeper=keeper, mask=mask, background=background
    )
    tools: tuple[Tool, ...] = (
        terminal,
        Process(background, mask=mask),
        ReadFile(places, mask=mask),
        WriteFile(places, mask=mask),
        Patch(places, mask=mask),
        SearchFiles(env, places, keeper=keeper, mask=mask),
    )
    code = ExecuteCode(
        [tool.spec for tool in (*tools[2:], terminal)],
        env,
        Spill(settings.paths.spill),
        keeper=keeper,
        mask=mask,
        limits=Limits(settings.senses.code_timeout, settings.senses.code_calls),
    )
    more, app.undrawn = senses(_parts(app, places))
    app.offers.build_in(*tools, *_company(app), *more, code)
    terminal.rewrite = rewriting(app.hooks)

    async def ask(call: ToolCall, risk: Risk, turn: Turn) -> Leave:
        return await app.lobby.approvals.ask(call, risk.reason, turn)

    app.hooks.add(CORE, approval(places, ask), patient=True)
    app.hooks.add(CORE, background.session_left)


@asynccontextmanager
async def _serving(lobby: Lobby) -> AsyncIterator[None]:
    """Run the lobby beside the body; what ends the lobby ends the body, as one error and not a group."""
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(lobby.run(), name="lobby")
            yield
            serving.cancel()
    except* AlipesError as errors:
        raise first(errors) from errors
