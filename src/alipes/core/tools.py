"""The built-in tools of an app, and the hooks that they need."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import structs

from alipes.agent.approval.approval import build_approval_hook, preview_change
from alipes.agent.approval.judge import ApprovalJudge
from alipes.agent.approval.paths import Risk
from alipes.agent.approval.sent_files import SentFileApproval, UploadApproval
from alipes.agent.approval.taint import TaintTracker
from alipes.agent.attachments import FileAttacher
from alipes.agent.auxiliary import MixtureRunner
from alipes.agent.builtin_tools import Clarification, PluginOutputRewriter, VisionModel
from alipes.agent.search.session_search import SessionSearch
from alipes.core.resources import Resources, tool_environment
from alipes.features.browser import specs as browser_specs
from alipes.features.mcp.settings import McpServerConfig
from alipes.features.memory.tool import MemoryTool
from alipes.features.schedules.editor import ScheduleApproval, ScheduleEditor
from alipes.features.schedules.tool import CronjobTool
from alipes.features.skills.tool import SkillManage, SkillsList, SkillView
from alipes.features.subagents.delegation import Delegation
from alipes.features.subagents.tool import DelegateTask, MixtureOfAgents
from alipes.features.web_search.page_reader import PageReader
from alipes.features.web_search.services import PageQuestions, PageService, SearchPlugins, SearchService
from alipes.features.web_search.source_numbers import SourceNumbers
from alipes.features.web_search.web_extract import WebExtract
from alipes.features.web_search.web_search import WebSearch
from alipes.kernel.conversations import ApprovalDecision
from alipes.kernel.mcp import split_mcp_name
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Turn
from alipes.plugins.owner import CORE
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.runtime.sandbox.backend import CommandScope
from alipes.sessions.permissions import TurnPermissions
from alipes.tools.backends import ChosenBackend
from alipes.tools.clarify import Clarify
from alipes.tools.common import Places, make_places
from alipes.tools.execute_code import CodeLimits, ExecuteCode
from alipes.tools.files.patch import Patch
from alipes.tools.files.read_file import ReadFile
from alipes.tools.files.write_file import WriteFile
from alipes.tools.images import ImageGenerate, ImageLoader, VisionAnalyze
from alipes.tools.search.search_files import SearchFiles
from alipes.tools.send_file import SendFileTool
from alipes.tools.shell.output import SpillFolder
from alipes.tools.shell.terminal import ProcessTool, TerminalTool
from alipes.tools.todo import Todo

if TYPE_CHECKING:
    from alipes.features.browser.sessions import BrowserSessions
    from alipes.features.mcp.client.servers import McpServers
from alipes.core.app import MCP, App


async def open_tools(stack: AsyncExitStack, app: App, resources: Resources) -> None:
    if app.settings.mcp.servers or app.settings.mcp.in_conversations:
        app.mcp = await stack.enter_async_context(_make_mcp_servers(app, resources))
        app.contributions.add_source("mcp", app.mcp.tools)
        app.tool_access.find_hidden = partial(import_module(MCP).hidden_tools, app.mcp)
    app.files = FileAttacher(app.settings, mask=app.secrets, documents=app.documents, resources=app.mcp)
    _add_builtin_tools(app, resources)


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
    if resources.chat_files.store is not None:
        app.hooks.add(CORE, resources.chat_files.tool_arguments, patient=True)
    app.hooks.add(CORE, background.session_left)
    app.hooks.add(CORE, resources.namespaces.session_left)
    app.hooks.add(CORE, backend.session_left)
    app.hooks.add(CORE, resources.network.turn_ended)
    app.hooks.add(CORE, resources.network.agent_loop_stopped)
    app.hooks.add(CORE, ScheduleApproval(app.store.sources).before_tool)
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
    store = import_module("alipes.features.mcp.client.token_store").make_store(app.settings, app.secrets.add)
    return import_module("alipes.features.mcp.client.oauth").make_auth(name, config, store, clients=app.scope)


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
    """Vision, images, todos, earlier conversations and questions to the user."""
    settings = app.settings
    network = resources.network
    fetcher = PublicFetcher(app.scope, settings.fetch.allow, decide=network.rights.decide, counts=network.proxy.counts)
    loader = ImageLoader(places, fetcher)
    return (
        VisionAnalyze(loader.load, VisionModel(app.auxiliary).ask),
        ImageGenerate(settings.paths.outgoing, loader.load, app.images.generate),
        Todo(app.todos.read, app.todos.write),
        SessionSearch(app.search, app.store.sources),
        Clarify(Clarification(app.sessions.questions, settings.clarify.timeout).ask),
        SendFileTool(places, settings.paths.outgoing),
        CronjobTool(ScheduleEditor(app.store.sources, lambda: app.schedules)),
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


def _add_browser_tools(app: App, browser: "BrowserSessions | None", places: Places) -> None:
    if browser is None:
        off = map(browser_specs.BrowserOffTool, browser_specs.ALL)
        app.contributions.add_builtin(*off, why_unavailable=lambda: browser_specs.OFF)
        return
    from alipes.features.browser.tools import browser_tools  # noqa: PLC0415

    tools = browser_tools(browser, places, app.secrets)
    app.contributions.add_builtin(*tools, why_unavailable=browser.why_unavailable)
    app.hooks.add(CORE, UploadApproval().before_tool)
    app.hooks.add(CORE, browser.session_left)
