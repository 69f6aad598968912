"""`App`: everything that is open, and the sessions that use it."""

import asyncio
import os
from collections.abc import Mapping
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

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
from alipes.core.resources import Resources, tool_environment
from alipes.features.learning.learning import Learning
from alipes.features.memory.people import make_memory_service
from alipes.features.skills.catalog import PluginSkill
from alipes.features.skills.skills import Skills
from alipes.features.skills.tool import SkillView
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.turns import SCHEDULED, Envelope, Inbound, Notice, Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.loader import Plugins
from alipes.plugins.registry import Contributions, PromptTemplate, SkillContribution
from alipes.providers.registry import ModelChoice, choose_model
from alipes.runtime.sandbox.policy import is_inside
from alipes.sessions.commands.context import CommandContext
from alipes.sessions.commands.templates import TemplateFolders
from alipes.sessions.plugin_host import PluginHost
from alipes.sessions.questions import PlanQuestion
from alipes.sessions.services import SessionDefaults
from alipes.sessions.sessions import Sessions
from alipes.sessions.tool_access import ToolAccess
from alipes.sessions.user_shell import UserShell
from alipes.tools.common import make_places
from alipes.tools.documents.documents import DocumentConverter
from alipes.tools.images import ImageGenerate

if TYPE_CHECKING:
    from alipes.features.mcp.client.servers import McpServers
    from alipes.features.schedules.schedules import Schedules

LOCAL_FILE_TOOLS = ("read_file", "write_file", "patch", "search_files", "execute_code")
"""Tools that read or change files of this machine."""
MCP = "alipes.features.mcp.requests"
"""Imported only if an MCP server is configured."""


class App:
    """Everything that is open, and the sessions that use it."""

    def __init__(
        self, settings: Settings, resources: "Resources", *, defaults: SessionDefaults, retry: RetryPolicy
    ) -> None:
        store, models = resources.store, resources.models
        self.settings, self.store, self.models, self.scope = settings, store, models, resources.scope
        self.background, self.backend, self.network = resources.background, resources.backend, resources.network
        self.checkpoints, self.chat_files = resources.checkpoints, resources.chat_files
        env = tool_environment(settings)
        self.documents = DocumentConverter(settings.documents, backend=resources.backend, env=env)
        self.files: FileAttacher
        self.secrets, self._env_file = resources.secrets, EnvFileWatch(settings.paths.env)
        self.hooks = Hooks(settings.plugins.deadline, self._report, deadlines=settings.plugins.deadlines)
        self.workdir = settings.workdir or os.getcwd()
        self.templates = _template_folders(settings)
        self.contributions = Contributions(_builtin_commands, self._load_templates)
        self.user_shell = UserShell(store, self.contributions, make_places(settings))
        self.plugins: Plugins
        self.mcp: McpServers | None = None
        """The MCP servers; None if none is configured."""
        self.sessions = Sessions(store, hooks=self.hooks, agent=self._open_agent, defaults=defaults)
        self.spending = SpendingLimits(store.usage_ledger, settings.spend, self.sessions.questions.ask_approval)
        self.auxiliary = AuxiliaryModels(
            models, self.spending, settings.auxiliary, choice=self._default_model, retry=retry
        )
        self.tool_access = ToolAccess(settings, self.contributions, store.tool_choices, self._unavailable_tools)
        self._step_question = StepLimitQuestion(self.sessions.questions, settings.clarify.timeout)
        self.todos = StoredTodos(store.todos)
        embed, indexer = partial(embed_by_meaning, self.contributions), store.search_indexer
        self.search = ConversationSearch(store.archive, indexer, resources.tasks, embed)
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
        self.memory = make_memory_service(
            settings,
            store,
            self.sessions,
            contributions=self.contributions,
            mask=resources.secrets,
            tasks=resources.tasks,
        )
        self._system_prompt = system_prompt(settings.home, commands=lambda: resources.backend.description)
        resources.skill_catalog.add_source(self._plugin_skills)
        self.skills = Skills(settings.skills, resources.skill_catalog, resources.skill_store, store)
        self.learning = Learning(
            settings.learning, self.auxiliary, self.memory, self.skills, tasks=resources.tasks, mask=resources.secrets
        )
        self._cooldowns, self._retry = ModelCooldowns(), retry
        self._plan_mode = PlanQuestion(self.sessions.questions, self.sessions.permissions, settings.clarify.timeout)
        self._choosing = asyncio.Lock()
        self._choice: ModelChoice | None = None

    async def choice(self) -> ModelChoice:
        """The default model, if neither the message nor the session names one; determined once."""
        async with self._choosing:
            if self._choice is None:
                self._choice = await choose_model(self.settings, self.scope)
            return self._choice

    async def _default_model(self) -> str:
        return (await self.choice()).model

    def context(self, inbound: Inbound, *, local_files: bool = True) -> CommandContext:
        """The context of a command; `local_files`: the person is on this machine."""
        return CommandContext(
            inbound=inbound,
            sessions=self.sessions,
            store=self.store,
            models=self.models,
            choice=self.choice,
            background=self._describe_background,
            processes=self.background,
            contributions=self.contributions,
            hooks=self.hooks,
            plugins=self.plugins,
            local_files=local_files,
            keys=self.settings.keys,
            compactor=self.compactor,
            shell=self.user_shell,
            tools=self.tool_access,
            checkpoints=self.checkpoints,
            default_effort=self.settings.effort,
            mcp=self.mcp,
            schedules=lambda: self.schedules,
            search=self.search,
            memory=self.memory,
            learning=self.learning,
            skills=self.skills,
        )

    @cached_property
    def schedules(self) -> "Schedules":
        """Scheduled jobs; imported with the first use."""
        from alipes.features.schedules.schedules import Schedules  # noqa: PLC0415

        return Schedules(self.settings, self.store, sessions=self.sessions, skills=self.skills)

    @property
    def broken_plugins(self) -> tuple[str, ...]:
        """Sentences about enabled plugins that are not loaded."""
        broken = (each for each in self.plugins.statuses() if each.state == "failed")
        return tuple(f"plugin {each.name} is not loaded: {each.why}" for each in broken)

    async def notes(self) -> tuple[str, ...]:
        """Notices to show at the start."""
        await self.backend.choose()
        warnings = tuple(filter(None, (self.backend.warning, self._describe_workdir())))
        return (*warnings, *self.settings.notes, *self.broken_plugins, *await self.skills.notes(self.workdir))

    def _describe_workdir(self) -> str:
        home, workdir = os.path.expanduser("~"), self.settings.workdir or os.getcwd()
        if self.backend.name != "sandbox" or not is_inside(os.path.realpath(home), os.path.realpath(workdir)):
            return ""
        return (
            "Commands cannot change files here, because your home is inside. Start alipes in a project, or set workdir."
        )

    async def _open_agent(self, turn: Turn) -> Agent:
        await self.sessions.permissions.begin_turn(turn)
        named = turn.inbound.model or turn.model
        choice = None if named else await self.choice()
        await self.backend.choose()
        if self.mcp is not None:
            await self.mcp.prepare(turn)
        unavailable = await self._unavailable_tools()
        off = await self.tool_access.off_in_conversation(turn)
        skills = await self.skills.begin_turn(turn)
        self.secrets.add(*self._env_file.changed_values())
        memory = await self.memory.snapshot(turn)
        # No await from here on, so that tools and hooks are from the same moment.
        tools = self.tool_access.select(turn, unavailable, off)
        return Agent(
            models=self.models,
            model=named if choice is None else choice.model,
            last_resort="" if choice is None else choice.last_resort,
            fallback=() if _is_pinned(turn.inbound) else self.settings.fallback,
            tools=tools,
            deferrable=self.tool_access.deferrable(tools),
            rank_tools=partial(compare_by_meaning, self.contributions),
            hooks=self.hooks.dispatcher,
            system=partial(self._system_prompt, skills=skills if SkillView.spec.name in tools else "", memory=memory),
            max_steps=self.settings.delegation.steps if turn.inbound.parent else self.settings.max_steps,
            max_tokens=self.settings.max_tokens,
            effort=turn.effort or self.settings.effort,
            retry=self._retry,
            cooldowns=self._cooldowns,
            ask_approval=self.sessions.questions.ask_approval,
            ask_for_steps=None if turn.inbound.parent else self._step_question.ask,
            spending=self.spending,
            compactor=self.compactor,
            mask=self.secrets,
            plan=self._plan_mode,
        )

    def _load_templates(self) -> Mapping[str, PromptTemplate]:
        files = {**self.skills.templates(self.workdir), **self.templates.load()}
        return files if self.mcp is None else {**import_module(MCP).prompt_templates(self.mcp), **files}

    def _describe_background(self, session: str) -> str:
        jobs = (job.title for job in self.background.running(session))
        return ", ".join((*jobs, *(f"subagent {each}" for each in self._background_subagents(session))))

    async def _session_notes(self, session: str) -> tuple[str, ...]:
        """Open todos and background work, for a model that sees only a summary."""
        jobs = (f"background process: {job.title}" for job in self.background.running(session))
        subagents = (f"background subagent: {each}" for each in self._background_subagents(session))
        return (*await self.todos.list_open(session), *subagents, *jobs)

    def _background_subagents(self, session: str) -> tuple[str, ...]:
        runs = self.sessions.subagents.background_runs(session)
        return tuple(f"{turn[:6]} {format_excerpt(goal)}" for turn, goal in runs)

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

    def _plugin_skills(self) -> tuple[PluginSkill, ...]:
        skills = self.contributions.all(SkillContribution)
        return tuple(PluginSkill(each.owner.name, each.name, each.path, each.description) for each in skills)

    def notify(self, text: str, turn: Turn | None = None) -> None:
        """Show a sentence in a turn; without one, in the turn that runs."""
        self._report(text, {"turn": turn})

    def _report(self, what: str, offered: Mapping[str, object]) -> None:
        """Show a plugin's failure in the turn it happened in."""
        turn = offered.get("turn") or TURN.get()
        if isinstance(turn, Turn):
            self.store.bus.publish(Envelope(turn.key, turn.id, Notice(what)))


def _builtin_commands() -> Mapping[str, object]:
    """The chat commands by name, imported when a plugin adds one: they have two dozen modules."""
    commands: Mapping[str, object] = import_module("alipes.sessions.commands.registry").BY_NAME
    return commands


def _is_pinned(inbound: Inbound) -> bool:
    """True for a job with a model of its own: no other model may answer."""
    return inbound.address.platform == SCHEDULED and bool(inbound.model)


def _template_folders(settings: Settings) -> TemplateFolders:
    workdir = Path(settings.workdir or os.getcwd())
    return TemplateFolders(settings.home, Path(os.path.expanduser("~")), workdir)
