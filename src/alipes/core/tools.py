"""The built-in tools of an app, and the hooks that they need."""

import asyncio
from collections.abc import Mapping
from functools import partial

from alipes.agent.approval.approval import ApprovalGate, preview_change
from alipes.agent.approval.command_files import CommandFileCheck, ShownFiles
from alipes.agent.approval.files import FileApproval
from alipes.agent.approval.judge import ApprovalJudge
from alipes.agent.approval.risk import Risk
from alipes.agent.approval.sent_files import SentFileApproval
from alipes.agent.approval.taint import TaintTracker
from alipes.agent.auxiliary import MixtureRunner
from alipes.agent.builtin_tools import Clarification, PluginOutputRewriter, VisionModel
from alipes.agent.search.session_search import SessionSearch
from alipes.core.app import App
from alipes.core.resources import Resources, tool_environment
from alipes.kernel.conversations import ApprovalDecision
from alipes.kernel.messages import ToolCall
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Turn
from alipes.plugins.owner import CORE
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.sessions.permissions import TurnPermissions
from alipes.tools.clarify import Clarify
from alipes.tools.common import LazyTool
from alipes.tools.execute_code import CodeLimits, ExecuteCode
from alipes.tools.file_specs import PATCH, READ_FILE, SEARCH_FILES, WRITE_FILE
from alipes.tools.images import ImageGenerate, ImageLoader, VisionAnalyze
from alipes.tools.mixture import MixtureOfAgents
from alipes.tools.send_file import SendFileTool
from alipes.tools.shell.background import BackgroundProcesses
from alipes.tools.shell.output import SpillFolder
from alipes.tools.shell.terminal import ProcessTool, TerminalTool
from alipes.tools.todo import Todo


def open_tools(app: App, resources: Resources) -> None:
    settings, backend, env = app.settings, resources.backend, tool_environment(app.settings)
    places, background, mask = app.places, resources.background, app.secrets
    files = app.boundary
    spill = SpillFolder(settings.paths.spill, mask=mask)
    command_files = CommandFileCheck(places, mask, resources.network.commands.list_folders)
    terminal = TerminalTool(
        places,
        env,
        spill,
        backend=backend,
        background=background,
        rewriter=PluginOutputRewriter(app.hooks),
        check_start=command_files.check_start,
    )
    file_tools = _file_tools(app, resources, env)
    code = ExecuteCode(
        [tool.spec for tool in (*file_tools, terminal)],
        env,
        spill,
        backend=backend,
        limits=CodeLimits(settings.code.timeout, settings.code.calls),
    )
    mixtures = MixtureRunner(app.auxiliary, settings.moa)
    app.models.add_mixture_access(mixtures.ask)
    app.contributions.add_builtin(
        terminal,
        ProcessTool(background, mask=mask),
        *file_tools,
        MixtureOfAgents(mixtures),
        *_media_tools(app, resources),
        code,
    )
    taint = _track_taint(app, background)
    judge = ApprovalJudge(app.auxiliary) if settings.approvals.judge else None
    approval = ApprovalGate(
        files,
        partial(_ask_approval, app, taint),
        contained=partial(_is_contained, resources),
        judge=judge,
        permissions=TurnPermissions(app.sessions.permissions, app.contributions),
        tool_risk=app.assess_tool,
        sandbox=backend,
        command_files=command_files,
    )
    app.hooks.add(CORE, approval.before_tool, patient=True)
    for each in (taint.turn_context, taint.before_tool, taint.after_tool, taint.turn_ended):
        app.hooks.add(CORE, each, patient=True)
    if resources.chat_files.store is not None:
        app.hooks.add(CORE, resources.chat_files.tool_arguments, patient=True)
    for left in (background, backend, resources.namespaces):
        app.hooks.add(CORE, left.session_left)
    for hook in (resources.network.turn_ended, resources.network.agent_loop_stopped):
        app.hooks.add(CORE, hook)
    _add_file_hooks(app)


def _file_tools(app: App, resources: Resources, env: Mapping[str, str]) -> tuple[Tool, ...]:
    """Imported with their first call: most questions need none."""

    def read_file() -> Tool:
        from alipes.tools.files.read_file import ReadFile  # noqa: PLC0415

        return ReadFile(app.boundary, mask=app.secrets, documents=app.documents)

    def write_file() -> Tool:
        from alipes.tools.files.write_file import WriteFile  # noqa: PLC0415

        return WriteFile(app.boundary, mask=app.secrets)

    def patch() -> Tool:
        from alipes.tools.files.patch import Patch  # noqa: PLC0415

        return Patch(app.boundary, mask=app.secrets)

    def search_files() -> Tool:
        from alipes.tools.search.search_files import SearchFiles  # noqa: PLC0415

        return SearchFiles(env, app.boundary, keeper=resources.guard, mask=app.secrets)

    return (
        LazyTool(READ_FILE, read_file),
        LazyTool(WRITE_FILE, write_file),
        LazyTool(PATCH, patch),
        LazyTool(SEARCH_FILES, search_files),
    )


def _track_taint(app: App, background: BackgroundProcesses) -> TaintTracker:
    received = str(app.settings.paths.files)
    taint = TaintTracker(app.store.sources, app.contributions, app.places, attachments=received, background=background)
    app.files.add_origins(taint.describe)
    return taint


def _add_file_hooks(app: App) -> None:
    """Approval of files that are sent, and the files of calls, which are closed at last."""
    sent, held = SentFileApproval(app.boundary), FileApproval(app.boundary, app.store.approvals)
    for each in (sent, held):
        for hook in (each.before_tool, each.after_tool, each.turn_ended):
            app.hooks.add(CORE, hook)


def _is_contained(resources: Resources, call: ToolCall, turn: Turn) -> bool:
    """True if a call of a tool that runs commands acts inside a sandbox."""
    if call.name == "process" and resources.background.runs_outside(turn.session, str(call.args.get("session_id"))):
        return False
    return resources.backend.contains


def _media_tools(app: App, resources: Resources) -> tuple[Tool, ...]:
    """Vision, images, todos, earlier conversations and questions to the user."""
    settings = app.settings
    network = resources.network
    fetcher = PublicFetcher(app.scope, settings.fetch.allow, decide=network.rights.decide, counts=network.proxy.counts)
    loader = ImageLoader(app.boundary, fetcher)
    return (
        VisionAnalyze(loader.load, VisionModel(app.auxiliary).ask),
        ImageGenerate(settings.paths.outgoing, loader.load, app.images.generate),
        Todo(app.todos.read, app.todos.write),
        SessionSearch(app.search, app.store.sources),
        Clarify(Clarification(app.sessions.questions, settings.clarify.timeout).ask),
        SendFileTool(app.boundary, settings.paths.outgoing),
    )


def _preview_change(app: App, call: ToolCall, turn: Turn) -> str:
    added = app.preview_tool(call)
    return preview_change(call, turn, app.boundary) if added is None else added


async def _ask_approval(
    app: App, taint: TaintTracker, call: ToolCall, risk: Risk, turn: Turn, files: ShownFiles | None
) -> ApprovalDecision:
    """Ask, and show what the call would change or reads."""
    diff = app.secrets(await asyncio.to_thread(_preview_change, app, call, turn))
    asked, why = app.sessions.questions.ask_approval, risk.why or risk.reason
    decision = await asked(risk.question or call, why, turn, diff=diff, exact=risk.exact, files=files)
    return await taint.record_secret(risk, turn, decision)
