"""The composition root: opens everything and connects it. Imported only by the CLI and the test kit."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from alipes.agent.approval.approval import build_approval_hook, preview_change
from alipes.agent.approval.egress import AskEgress
from alipes.agent.approval.judge import ApprovalJudge
from alipes.agent.approval.paths import Risk
from alipes.agent.approval.sent_files import SentFileApproval, UploadApproval
from alipes.agent.approval.taint import TaintTracker
from alipes.agent.attachments import FileAttacher
from alipes.agent.auxiliary import AuxiliaryModels, ConversationTitles, MixtureRunner
from alipes.agent.budget import SpendingLimits
from alipes.agent.builtin_tools import (
    Clarification,
    PluginOutputRewriter,
    StepLimitQuestion,
    StoredTodos,
    VisionModel,
    make_image_generator,
)
from alipes.agent.checkpoints import TurnCheckpoints
from alipes.agent.compaction.compaction import Compactor
from alipes.agent.learning.learning import Learning
from alipes.agent.loop import Agent
from alipes.agent.model_call import ModelCooldowns, RetryPolicy
from alipes.agent.prompt import system_prompt
from alipes.agent.provider_calls import compare_by_meaning
from alipes.agent.skills.catalog import PluginSkill
from alipes.agent.skills.skills import Skills
from alipes.agent.skills.tools import SkillManage, SkillsList, SkillView
from alipes.agent.web_services import PageQuestions, PageService, SearchPlugins, SearchService
from alipes.app_resources import Resources, hide_secrets, make_places, open_resources, tool_environment
from alipes.config.environment import EnvFileWatch
from alipes.config.mcp import McpServerConfig
from alipes.config.mcp_files import add_project_servers
from alipes.config.settings import Settings
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.kernel.conversations import ApprovalDecision
from alipes.kernel.formatting import format_excerpt
from alipes.kernel.mcp import split_mcp_name
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import Provider, Tool
from alipes.kernel.turns import Envelope, Inbound, Notice, Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.loader import PluginLoader, Plugins, open_plugins
from alipes.plugins.owner import CORE
from alipes.plugins.registry import Contributions, PromptTemplate, SkillContribution
from alipes.providers.registry import ModelChoice, choose_model
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.sandbox.policy import is_inside
from alipes.sessions.commands.context import CommandContext
from alipes.sessions.commands.registry import BY_NAME
from alipes.sessions.commands.templates import TemplateFolders
from alipes.sessions.memory import make_memory_service
from alipes.sessions.permissions import TurnPermissions
from alipes.sessions.plugin_host import PluginHost
from alipes.sessions.questions import PlanQuestion
from alipes.sessions.services import OutboundFor, SessionDefaults
from alipes.sessions.sessions import Sessions
from alipes.sessions.subagents.delegation import Delegation
from alipes.sessions.tool_access import ToolAccess
from alipes.sessions.user_shell import UserShell
from alipes.store.conversations import set_title_if_empty
from alipes.store.history import SqliteCompactionStore
from alipes.store.usage import SqliteUsageLedger
from alipes.tools.backends import ChosenBackend
from alipes.tools.browser import specs as browser_specs
from alipes.tools.clarify import Clarify
from alipes.tools.common import Places
from alipes.tools.delegate import DelegateTask, MixtureOfAgents
from alipes.tools.documents.documents import DocumentConverter
from alipes.tools.execute_code import CodeLimits, ExecuteCode
from alipes.tools.files.patch import Patch
from alipes.tools.files.read_file import ReadFile
from alipes.tools.files.write_file import WriteFile
from alipes.tools.images import ImageGenerate, ImageLoader, VisionAnalyze
from alipes.tools.memory import MemoryTool
from alipes.tools.search.search_files import SearchFiles
from alipes.tools.send_file import SendFileTool
from alipes.tools.shell.output import SpillFolder
from alipes.tools.shell.terminal import ProcessTool, TerminalTool
from alipes.tools.todo import Todo
from alipes.tools.web.page_reader import PageReader
from alipes.tools.web.source_numbers import SourceNumbers
from alipes.tools.web.web_extract import WebExtract
from alipes.tools.web.web_search import WebSearch

if TYPE_CHECKING:
    from alipes.tools.browser.sessions import BrowserSessions
    from alipes.tools.mcp.servers import McpServers

LOCAL_FILE_TOOLS = ("read_file", "write_file", "patch", "search_files", "execute_code")
"""Tools that read or change files of this machine."""
MCP = "alipes.agent.mcp"
"""Imported only if an MCP server is configured."""
HERMES = "alipes.compat.hermes.loader"
"""Imported only if a Hermes plugin or hook is to be loaded."""


class App:
    """Everything that is open, and the sessions that use it."""

    def __init__(
        self, settings: Settings, resources: "Resources", *, defaults: SessionDefaults, retry: RetryPolicy
    ) -> None:
        store, models = resources.store, resources.models
        self.settings, self.store, self.models, self.scope = settings, store, models, resources.scope
        self.background, self.backend, self.network = resources.background, resources.backend, resources.network
        self.checkpoints = resources.checkpoints
        self.documents = DocumentConverter(
            settings.documents, backend=resources.backend, env=tool_environment(settings)
        )
        self.files: FileAttacher
        self.secrets, self._env_file = resources.secrets, EnvFileWatch(settings.paths.env)
        self.hooks = Hooks(settings.plugins.deadline, self._report, deadlines=settings.plugins.deadlines)
        self.workdir = settings.workdir or os.getcwd()
        self.templates = _template_folders(settings)
        self.contributions = Contributions(lambda: BY_NAME, self._load_templates)
        self.user_shell = UserShell(store, self.contributions, make_places(settings))
        self.plugins: Plugins
        self.mcp: McpServers | None = None
        """The MCP servers; None if none is configured."""
        self.sessions = Sessions(store, hooks=self.hooks, agent=self._open_agent, defaults=defaults)
        self.spending = SpendingLimits(
            SqliteUsageLedger(store.database), settings.spend, self.sessions.questions.ask_approval
        )
        self.auxiliary = AuxiliaryModels(
            models, self.spending, settings.auxiliary, choice=self._default_model, retry=retry
        )
        self.tool_access = ToolAccess(settings, self.contributions, store.tool_choices, self._unavailable_tools)
        self._step_question = StepLimitQuestion(self.sessions.questions, settings.clarify.timeout)
        self.todos = StoredTodos(store.todos)
        self.images = make_image_generator(settings, self.scope, self.contributions, self.spending)
        self.compactor = Compactor(
            self.auxiliary,
            SqliteCompactionStore(store.database),
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
        self.skills = Skills(settings.skills, resources.skill_catalog, resources.skill_store, store.database)
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
            memory=self.memory,
            learning=self.learning,
            skills=self.skills,
        )

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
        model = turn.inbound.model or turn.model or (await self.choice()).model
        await self.backend.choose()
        if self.mcp is not None:
            await self.mcp.prepare(turn)
        unavailable = await self._unavailable_tools()
        off = await self.tool_access.off_in_conversation(turn)
        standing = await self.store.sessions.active(turn.key)
        effort = standing.effort if standing is not None and standing.session == turn.session else ""
        skills = await self.skills.begin_turn(turn)
        self.secrets.add(*self._env_file.changed_values())
        memory = await self.memory.snapshot(turn)
        # No await from here on, so that tools and hooks are from the same moment.
        tools = self.tool_access.select(turn, unavailable, off)
        return Agent(
            models=self.models,
            model=model,
            fallback=self.settings.fallback,
            tools=tools,
            deferrable=self.tool_access.deferrable(tools),
            rank_tools=partial(compare_by_meaning, self.contributions),
            hooks=self.hooks.dispatcher,
            system=partial(self._system_prompt, skills=skills if SkillView.spec.name in tools else "", memory=memory),
            max_steps=self.settings.delegation.steps if turn.inbound.parent else self.settings.max_steps,
            max_tokens=self.settings.max_tokens,
            effort=effort or self.settings.effort,
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


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    interactive: bool = False,
    lent: Mapping[str, Provider] | None = None,
    retry: RetryPolicy | None = None,
    outbound: OutboundFor | None = None,
    workdir: str = "",
) -> AsyncIterator[App]:
    """Open everything, serve sessions meanwhile, and close everything in reverse order.

    `interactive`: a person watches who can answer questions and send messages while a turn runs. `lent`:
    in-process providers, by the name of the endpoint they replace. `retry`: how model calls are retried.
    `outbound`: the chat messages to send for the events of a turn. `workdir`: resume interrupted turns of this folder
    only.
    """
    settings = add_project_servers(settings, settings.workdir or os.getcwd())
    hide_secrets(settings)

    async def ask(call: ToolCall, reason: str, turn: Turn) -> ApprovalDecision:
        return await app.sessions.questions.ask_approval(call, reason, turn)

    async with AsyncExitStack() as stack:
        resources = await open_resources(stack, settings, lent, ask)
        defaults = SessionDefaults(
            busy=settings.terminal.busy if interactive else "queue",
            interactive=interactive,
            runs_on=interactive,
            permission_mode=settings.approvals.mode,
            workdir=workdir,
            background=resources.background,
            max_silence=settings.silence,
            outbound=outbound or _outbound_policy(settings),
            max_subagent_seconds=settings.delegation.minutes * 60,
            mask=resources.secrets,
        )
        app = App(settings, resources, defaults=defaults, retry=retry or RetryPolicy())
        await _open_tools(stack, app, resources)
        turn_checkpoints = TurnCheckpoints(app.checkpoints, app.contributions, app.store, resources.tasks)
        await stack.enter_async_context(turn_checkpoints)
        app.hooks.add(CORE, turn_checkpoints.around_tool, patient=True)
        app.hooks.add(CORE, turn_checkpoints.turn_ended)
        set_title = partial(set_title_if_empty, app.store.database)
        app.hooks.add(CORE, ConversationTitles(app.auxiliary, set_title, resources.tasks).turn_ended)
        if interactive:  # otherwise the process ends with the turn
            app.hooks.add(CORE, app.learning.turn_ended)
        app.hooks.add(CORE, app.compactor.turn_ended)
        app.hooks.add(CORE, app.compactor.session_left)
        app.plugins = await stack.enter_async_context(
            open_plugins(
                settings, hooks=app.hooks, contributions=app.contributions, host=app.host, loaders=_plugin_loaders(app)
            )
        )
        async with app.sessions.serve():
            yield app


async def _ask_nobody(_call: ToolCall, _reason: str, _turn: Turn) -> ApprovalDecision:
    return None


@asynccontextmanager
async def open_for_checks(settings: Settings, ask: AskEgress = _ask_nobody) -> AsyncIterator[App]:
    """An app that loads no plugin and runs no turn, for commands that look at tools and MCP servers. `ask`: asks about
    connections of servers."""
    settings = add_project_servers(settings, settings.workdir or os.getcwd())
    async with AsyncExitStack() as stack:
        resources = await open_resources(stack, settings, None, ask)
        app = App(settings, resources, defaults=SessionDefaults(), retry=RetryPolicy())
        await _open_tools(stack, app, resources)
        await app.backend.choose()
        yield app


async def _open_tools(stack: AsyncExitStack, app: App, resources: Resources) -> None:
    if app.settings.mcp.servers or app.settings.mcp.in_conversations:
        app.mcp = await stack.enter_async_context(_make_mcp_servers(app, resources))
        app.contributions.add_source("mcp", app.mcp.tools)
        app.tool_access.find_hidden = partial(import_module(MCP).hidden_tools, app.mcp)
    app.files = FileAttacher(app.settings, mask=app.secrets, documents=app.documents, resources=app.mcp)
    _add_builtin_tools(app, resources)


def _add_browser_tools(app: App, browser: "BrowserSessions | None", places: Places) -> None:
    if browser is None:
        off = map(browser_specs.BrowserOffTool, browser_specs.ALL)
        app.contributions.add_builtin(*off, why_unavailable=lambda: browser_specs.OFF)
        return
    from alipes.tools.browser.tools import browser_tools  # noqa: PLC0415

    tools = browser_tools(browser, places, app.secrets)
    app.contributions.add_builtin(*tools, why_unavailable=browser.why_unavailable)
    app.hooks.add(CORE, UploadApproval().before_tool)
    app.hooks.add(CORE, browser.session_left)


def _outbound_policy(settings: Settings) -> OutboundPolicy:
    """A turn of a chat may be finished by any process: its answer is sent to the chat in any case."""
    folders = (str(settings.paths.outgoing),)
    private = make_places(settings).is_withheld
    return OutboundPolicy(tuple(settings.messengers.configured), folders, is_private=private)


def _template_folders(settings: Settings) -> TemplateFolders:
    workdir = Path(settings.workdir or os.getcwd())
    return TemplateFolders(settings.home, Path(os.path.expanduser("~")), workdir)


def _plugin_loaders(app: App) -> Mapping[str, Callable[[], PluginLoader]]:
    @cache
    def hermes() -> PluginLoader:
        loader: PluginLoader = import_module(HERMES).open_loader(app.host, app.settings)
        return loader

    return dict.fromkeys(("hermes", "file-hook", "shell-hooks"), hermes)


def _add_builtin_tools(app: App, resources: Resources) -> None:
    settings, backend, env = app.settings, resources.backend, tool_environment(app.settings)
    places = structs.replace(make_places(settings), map_path=partial(_map_path, backend))
    guard, background, mask = resources.guard, resources.background, app.secrets
    spill = SpillFolder(settings.paths.spill, mask=mask)
    terminal = TerminalTool(
        places, env, spill, backend=backend, background=background, rewriter=PluginOutputRewriter(app.hooks)
    )
    file_tools: tuple[Tool, ...] = (
        ReadFile(places, mask=mask, documents=app.documents),
        WriteFile(places, mask=mask),
        Patch(places, mask=mask),
        SearchFiles(env, places, keeper=guard, mask=mask),
    )
    code = ExecuteCode(
        [tool.spec for tool in (*file_tools, terminal)],
        env,
        spill,
        backend=backend,
        limits=CodeLimits(settings.code.timeout, settings.code.calls),
    )
    app.contributions.add_builtin(
        terminal,
        ProcessTool(background, mask=mask),
        *file_tools,
        *_agent_tools(app),
        *_media_tools(app, resources, places),
        code,
    )
    app.contributions.add_builtin(MemoryTool(app.memory), why_unavailable=app.memory.why_unavailable)
    _add_web_tools(app, resources)
    _add_browser_tools(app, resources.browser, places)
    manage = _add_skill_tools(app, places)
    taint = TaintTracker(app.store.sources, app.contributions, places, attachments=str(settings.paths.files))
    judge = ApprovalJudge(app.auxiliary) if settings.approvals.judge else None
    approval = build_approval_hook(
        places,
        partial(_ask_approval, app, taint, partial(_preview_change, places, manage)),
        contained=partial(_is_contained, resources),
        judge=judge,
        permissions=TurnPermissions(app.sessions.permissions, app.contributions),
        tool_risk=lambda call: manage.assess(call) or _assess_mcp_call(app, call),
    )
    app.hooks.add(CORE, approval, patient=True)
    app.hooks.add(CORE, taint.after_tool, patient=True)
    for memory_hook in app.memory.hooks():
        app.hooks.add(CORE, memory_hook, patient=True)
    app.hooks.add(CORE, background.session_left)
    app.hooks.add(CORE, resources.namespaces.session_left)
    app.hooks.add(CORE, backend.session_left)
    app.hooks.add(CORE, resources.network.turn_ended)
    app.hooks.add(CORE, resources.network.agent_loop_stopped)
    sent_files = SentFileApproval(places)
    for hook in (sent_files.before_tool, sent_files.after_tool, sent_files.turn_ended):
        app.hooks.add(CORE, hook)


def _make_mcp_servers(app: App, resources: Resources) -> "McpServers":
    """Imported only here: without servers it would cost every start."""
    module, settings = import_module(MCP), app.settings
    host = module.McpHost(
        resources.backend,
        app.scope,
        tool_environment(settings),
        settings.paths.logs / "mcp",
        auth_for=partial(_make_mcp_auth, app),
        requests=module.PeopleAndModels(app.sessions.questions, app.auxiliary, settings.clarify.timeout),
        network=resources.namespaces,
        mask=app.secrets,
    )
    spill = SpillFolder(settings.paths.spill, mask=app.secrets)
    servers: McpServers = module.make_servers(settings, host, spill, app.notify)
    return servers


def _make_mcp_auth(app: App, name: str, config: McpServerConfig) -> object:
    """Called for a server that is connected over HTTP, so the SDK is imported already."""
    store = import_module("alipes.tools.mcp.token_store").make_store(app.settings, app.secrets.add)
    return import_module("alipes.tools.mcp.oauth").make_auth(name, config, store, clients=app.scope)


def _assess_mcp_call(app: App, call: ToolCall) -> Risk | None:
    if app.mcp is None or split_mcp_name(call.name) is None:
        return None
    risk: Risk | None = import_module(MCP).assess_mcp_call(app.mcp, call)
    return risk


def _is_contained(resources: Resources, call: ToolCall, turn: Turn) -> bool:
    """True if a call of a tool that runs commands acts inside a sandbox."""
    if call.name == "process" and resources.background.runs_outside(turn.session, str(call.args.get("session_id"))):
        return False
    return resources.backend.contains


def _map_path(backend: ChosenBackend, path: str, workdir: str) -> str:
    return backend.host_path(path, CommandScope(workdir=workdir))


def _agent_tools(app: App) -> tuple[Tool, ...]:
    """Subagents and model mixtures."""
    limits, mixtures = app.settings.delegation, MixtureRunner(app.auxiliary, app.settings.moa)
    app.models.consult = mixtures.ask
    delegation = Delegation(
        app.sessions,
        app.store,
        limits,
        models=app.models,
        tools=app.tool_names,
        allow_background=app.sessions.defaults.runs_on,
    )
    return (*((DelegateTask(delegation),) if limits.depth else ()), MixtureOfAgents(mixtures))


def _media_tools(app: App, resources: Resources, places: Places) -> tuple[Tool, ...]:
    """Vision, images, todos and questions to the user."""
    settings = app.settings
    network = resources.network
    fetcher = PublicFetcher(app.scope, settings.fetch.allow, decide=network.rights.decide, counts=network.proxy.counts)
    loader = ImageLoader(places, fetcher)
    return (
        VisionAnalyze(loader.load, VisionModel(app.auxiliary).ask),
        ImageGenerate(settings.paths.outgoing, loader.load, app.images.generate),
        Todo(app.todos.read, app.todos.write),
        Clarify(Clarification(app.sessions.questions, settings.clarify.timeout).ask),
        SendFileTool(places, settings.paths.outgoing),
    )


def _add_web_tools(app: App, resources: Resources) -> None:
    settings, network, numbers = app.settings, resources.network, SourceNumbers()
    rights, counts = network.rights, network.proxy.counts
    plugins = SearchPlugins(app.contributions, settings.web.timeout)
    service = SearchService(settings, plugins, scope=app.scope, rights=rights, counts=counts)
    fetcher = PublicFetcher(app.scope, settings.fetch.allow, name="web", decide=rights.decide, counts=counts)
    pages = PageService(settings, plugins)
    reader = PageReader(
        fetcher, resources.converter, settings.web, documents=app.documents, choose_remote=pages.choose_remote
    )
    search = WebSearch(service.choose, numbers)
    questions, vision = PageQuestions(app.auxiliary), VisionModel(app.auxiliary)
    extract = WebExtract(reader, numbers, ask_model=questions.ask, ask_vision=vision.ask)
    app.contributions.add_builtin(search, why_unavailable=service.describe_problem)
    app.contributions.add_builtin(extract, why_unavailable=pages.describe_problem)
    app.hooks.add(CORE, numbers.turn_ended)
    app.hooks.add(CORE, reader.session_left)


def _add_skill_tools(app: App, places: Places) -> SkillManage:
    manage = SkillManage(app.skills, places, mask=app.secrets)
    if app.settings.skills.enabled:
        app.contributions.add_builtin(SkillsList(app.skills), SkillView(app.skills), manage)
    return manage


def _preview_change(places: Places, manage: SkillManage, call: ToolCall, workdir: str) -> str:
    return manage.preview(call) if call.name == manage.spec.name else preview_change(call, workdir, places)


async def _ask_approval(
    app: App, taint: TaintTracker, preview: Callable[[ToolCall, str], str], call: ToolCall, risk: Risk, turn: Turn
) -> ApprovalDecision:
    diff = app.secrets(await asyncio.to_thread(preview, call, turn.inbound.workdir))
    questions = app.sessions.questions
    decision = await questions.ask_approval(call, risk.reason, turn, diff=diff, exact=risk.exact)
    return await taint.record_secret(risk, turn, decision)
