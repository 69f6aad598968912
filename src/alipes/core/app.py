"""`App`: everything that is open, and the sessions that use it."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import structs

from alipes.agent.approval.risk import Risk
from alipes.agent.attachments import FileAttacher
from alipes.agent.auxiliary import AuxiliaryModels
from alipes.agent.budget import SpendingLimits
from alipes.agent.builtin_tools import StepLimitQuestion, StoredTodos, make_image_generator
from alipes.agent.compaction.compaction import Compactor
from alipes.agent.loop import Agent
from alipes.agent.model_call import ModelCooldowns, RetryPolicy
from alipes.agent.prompt import system_prompt
from alipes.agent.provider_calls import compare_by_meaning, embed_by_meaning
from alipes.agent.search.conversations import ConversationSearch
from alipes.config.environment import EnvFileWatch
from alipes.config.settings import Settings
from alipes.core.extras import ExtraInstaller
from alipes.core.resources import Resources, tool_environment
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import SCHEDULED, Envelope, Inbound, Notice, Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.features import OpenFeatures
from alipes.plugins.foreign_loaders import foreign_loaders
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.loader import Plugins
from alipes.plugins.owner import CORE
from alipes.plugins.registry import Contributions
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.policy import is_inside
from alipes.sessions.commands.context import CommandContext, CommandServices
from alipes.sessions.commands.templates import TemplateFolders
from alipes.sessions.plugin_host import PluginHost
from alipes.sessions.questions import PlanQuestion
from alipes.sessions.services import SessionDefaults
from alipes.sessions.sessions import Sessions
from alipes.sessions.tool_access import ToolAccess
from alipes.sessions.user_shell import UserShell
from alipes.tools.backends import ChosenBackend
from alipes.tools.boundary import FileBoundary
from alipes.tools.common import make_places
from alipes.tools.documents.documents import DocumentConverter
from alipes.tools.images import ImageGenerate

LOCAL_FILE_TOOLS = ("read_file", "write_file", "patch", "search_files", "execute_code")
"""Tools that read or change files of this machine."""


class App:
    """Everything that is open, and the sessions that use it."""

    def __init__(
        self, settings: Settings, resources: "Resources", *, defaults: SessionDefaults, retry: RetryPolicy
    ) -> None:
        store, models = resources.store, resources.models
        self.settings, self.resources, self.store, self.models = settings, resources, store, models
        self.scope, self.network, self.backend = resources.scope, resources.network, resources.backend
        self.background, self.chat_files, self.secrets = resources.background, resources.chat_files, resources.secrets
        self.workdir = settings.workdir or os.getcwd()
        self.places = structs.replace(make_places(settings), map_path=partial(_map_path, resources.backend))
        """Paths as the tools resolve them."""
        self.boundary = FileBoundary(self.places, resources.backend.policy)
        resources.sandbox_extras.add_grants(self.boundary.granted)
        env = tool_environment(settings)
        self.features = OpenFeatures()
        self.hooks = Hooks(settings.plugins.deadline, self._report, deadlines=settings.plugins.deadlines)
        self.contributions = Contributions(_load_commands, _template_folders(settings).load)
        self.sessions = Sessions(store, hooks=self.hooks, agent=self._open_agent, defaults=defaults)
        questions, permissions = self.sessions.questions, self.sessions.permissions
        self.extras = ExtraInstaller(questions, settings, self.notify)
        self.documents = DocumentConverter(
            settings.documents, backend=resources.backend, env=env, require=self.extras.require
        )
        self.files = FileAttacher(settings, mask=self.secrets, documents=self.documents)
        self.spending = SpendingLimits(store.usage_ledger, settings.spend, questions.ask_approval)
        self.auxiliary = AuxiliaryModels(
            models, self.spending, settings.auxiliary, choice=self._default_model, retry=retry
        )
        self.tool_access = ToolAccess(settings, self.contributions, store.tool_choices, self._unavailable_tools)
        self.todos = StoredTodos(store.todos)
        embed = partial(embed_by_meaning, self.contributions)
        self.search = ConversationSearch(store.archive, store.search_indexer, resources.tasks, embed)
        self.images = make_image_generator(settings, self.scope, self.contributions, self.spending)
        self.compactor = Compactor(
            self.auxiliary,
            store.compaction,
            settings.compaction,
            session_notes=self._session_notes,
            tasks=resources.tasks,
        )
        self.host = PluginHost(
            settings, self.sessions, self.auxiliary, hooks=self.hooks, contributions=self.contributions
        )
        loaders = foreign_loaders(self.host, settings, self.features.get)
        self.plugins = Plugins(settings, self.hooks, self.contributions, host=self.host, loaders=loaders)
        self.user_shell = UserShell(store, self.contributions, make_places(settings))
        self.command_services = CommandServices(
            sessions=self.sessions,
            store=store,
            models=models,
            plugins=self.plugins,
            features=self.features,
            tools=self.tool_access,
            processes=self.background,
            compactor=self.compactor,
            shell=self.user_shell,
            search=self.search,
            open_agent=self._open_agent,
            auxiliary=self.auxiliary,
        )
        self._system_prompt = system_prompt(settings.home, commands=lambda: resources.backend.description)
        self._cooldowns, self._retry, self._env_file = ModelCooldowns(), retry, EnvFileWatch(settings.paths.env)
        self._step_question = StepLimitQuestion(questions, settings.clarify.timeout)
        self._plan_mode = PlanQuestion(questions, permissions, settings.clarify.timeout)
        self._preparations: list[Callable[[Turn], Awaitable[None]]] = []
        self._tool_risks: list[Callable[[ToolCall], Risk | None]] = []
        self._previews: list[Callable[[ToolCall], str | None]] = []
        self._prompt_sections: list[tuple[Callable[[Turn], Awaitable[str]], str]] = []
        self._start_notes: list[Callable[[], Awaitable[Sequence[str]]]] = []

    async def _default_model(self) -> str:
        return (await self.models.default()).model

    def context(self, inbound: Inbound, *, local_files: bool = True) -> CommandContext:
        """The context of a command; `local_files`: the person is on this machine."""
        return CommandContext(inbound, self.command_services, local_files=local_files, keys=self.settings.keys)

    @property
    def broken_plugins(self) -> tuple[str, ...]:
        """Sentences about enabled plugins that are not loaded."""
        broken = (each for each in self.plugins.statuses() if each.state == "failed")
        return tuple(f"plugin {each.name} is not loaded: {each.why}" for each in broken)

    async def notes(self) -> tuple[str, ...]:
        """Notices to show at the start."""
        await self.backend.choose()
        warnings = tuple(filter(None, (self.backend.warning, self._describe_workdir())))
        added = [note for make in self._start_notes for note in await make()]
        return (*warnings, *self.settings.notes, *self.broken_plugins, *added)

    def _describe_workdir(self) -> str:
        home, workdir = os.path.expanduser("~"), self.settings.workdir or os.getcwd()
        if self.backend.name != "sandbox" or not is_inside(os.path.realpath(home), os.path.realpath(workdir)):
            return ""
        return "This is your home folder: commands can read it but not change it. cd into a project first."

    async def _open_agent(self, turn: Turn) -> Agent:
        await self.sessions.permissions.begin_turn(turn)
        named = turn.inbound.model or turn.model
        choice = None if named else await self.models.default()
        await self.backend.choose()
        for prepare in self._preparations:
            await prepare(turn)
        unavailable = await self._unavailable_tools()
        off = await self.tool_access.off_in_conversation(turn)
        self.secrets.add(*self._env_file.changed_values())
        sections = [(await make(turn), tool) for make, tool in self._prompt_sections]
        # No await from here on, so that tools and hooks are from the same moment.
        tools, model = self.tool_access.select(turn, unavailable, off), named if choice is None else choice.model
        own = self.models.own_tools(model)
        added = tuple(text for text, tool in sections if text and (not tool or tool in tools))
        return Agent(
            models=self.models,
            model=model,
            last_resort="" if choice is None else choice.last_resort,
            fallback=() if own or _is_pinned(turn.inbound) else self.settings.fallback,
            tools={**tools, **own},
            deferrable=self.tool_access.deferrable(tools),
            rank_tools=partial(compare_by_meaning, self.contributions),
            hooks=self.hooks.dispatcher,
            system=partial(self._system_prompt, added=added),
            max_steps=self.settings.delegation.steps if turn.inbound.parent else self.settings.max_steps,
            max_tokens=self.settings.max_tokens,
            effort=turn.effort or self.settings.effort,
            retry=self._retry,
            cooldowns=self._cooldowns,
            ask_approval=self.sessions.questions.ask_approval,
            require_extra=self.extras.require,
            ask_for_steps=None if turn.inbound.parent else self._step_question.ask,
            spending=self.spending,
            compactor=self.compactor,
            mask=self.secrets,
            plan=self._plan_mode,
        )

    def add_preparation(self, prepare: Callable[[Turn], Awaitable[None]]) -> None:
        """Wait for `prepare(turn)` before the tools of a turn are chosen."""
        self._preparations.append(prepare)

    def add_tool_risk(self, assess: Callable[[ToolCall], Risk | None]) -> None:
        """`assess(call)`: why a call needs approval; None if it does not, or is not of this kind."""
        self._tool_risks.append(assess)

    def assess_tool(self, call: ToolCall) -> Risk | None:
        return next((risk for assess in self._tool_risks if (risk := assess(call)) is not None), None)

    def add_preview(self, show: Callable[[ToolCall], str | None]) -> None:
        """`show(call)`: the diff shown with the question about a call; None if the call is not of this kind."""
        self._previews.append(show)

    def preview_tool(self, call: ToolCall) -> str | None:
        return next((diff for show in self._previews if (diff := show(call)) is not None), None)

    def add_prompt_section(self, make: Callable[[Turn], Awaitable[str]], *, tool: str = "") -> None:
        """`make(turn)`: a section of the system prompt, or an empty text; it is asked for at every turn. `tool`: shown
        only to turns that have this tool."""
        self._prompt_sections.append((make, tool))

    def add_start_notes(self, make: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """`make()`: sentences to show at the start."""
        self._start_notes.append(make)

    def add_hooks(self, *hooks: Callable[..., Any], patient: bool = False) -> None:
        """Add hooks of alipes itself. `patient`: without a deadline."""
        for hook in hooks:
            self.hooks.add(CORE, hook, patient=patient)

    async def _session_notes(self, session: str) -> tuple[str, ...]:
        """Open todos and background work, for a model that sees only a summary."""
        jobs = (f"background process: {job.title}" for job in self.background.running(session))
        subagents = (f"background subagent: {each}" for each in self.sessions.subagents.list_background(session))
        return (*await self.todos.list_open(session), *subagents, *jobs)

    async def tool_names(self, turn: Turn) -> tuple[str, ...]:
        """The tools of a turn that starts now."""
        unavailable = await self._unavailable_tools()
        off = await self.tool_access.off_in_conversation(turn)
        return tuple(self.tool_access.select(turn, unavailable, off))

    async def _unavailable_tools(self) -> dict[str, str]:
        """The tools that cannot be used now, and why."""
        unavailable = await self.contributions.unavailable()
        if self.backend.name == "ssh":
            unavailable |= dict.fromkeys(LOCAL_FILE_TOOLS, "The project is on another machine (sandbox.backend = ssh).")
        if not await self.images.is_available():
            unavailable[ImageGenerate.spec.name] = "No image model is configured: set images.model."
        return unavailable

    def notify(self, text: str, turn: Turn | None = None) -> None:
        """Show a sentence in a turn; without one, in the turn that runs."""
        self._report(text, {"turn": turn})

    def _report(self, what: str, offered: Mapping[str, object]) -> None:
        """Show a plugin's failure in the turn it happened in."""
        turn = offered.get("turn") or TURN.get()
        if isinstance(turn, Turn):
            self.store.bus.publish(Envelope(turn.key, turn.id, Notice(what)))


def _is_pinned(inbound: Inbound) -> bool:
    """True for a job with a model of its own: no other model may answer."""
    return inbound.address.platform == SCHEDULED and bool(inbound.model)


def _map_path(backend: ChosenBackend, path: str, workdir: str) -> str:
    turn = TURN.get()
    return backend.host_path(path, CommandScope("" if turn is None else turn.session, workdir, turn))


def _template_folders(settings: Settings) -> TemplateFolders:
    workdir = Path(settings.workdir or os.getcwd())
    return TemplateFolders(settings.home, Path(os.path.expanduser("~")), workdir)


def _load_commands() -> Iterable[Any]:
    commands: Iterable[Any] = import_module("alipes.sessions.commands.registry").COMMANDS
    return commands
