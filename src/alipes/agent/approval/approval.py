"""Approval of tool calls: a `before_tool` hook that asks about dangerous ones, or denies them."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import structs

from alipes.agent.approval.assessment import COMMAND_TOOLS, assess_off_loop
from alipes.agent.approval.command_files import CHANGED, CommandFileCheck, ShownFiles
from alipes.agent.approval.files import FileApproval, named_files
from alipes.agent.approval.risk import Risk
from alipes.agent.approval.terminal_lines import TerminalLines
from alipes.kernel.conversations import ApprovalDecision, DeniedBecause, QuestionWithdrawn, denial_reason
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import PermissionMode, Turn
from alipes.plugins.specs import Verdict
from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.sandbox.project import project_root
from alipes.tools.boundary import CallScope, FileBoundary, UnjudgedCall

AskApproval: TypeAlias = Callable[[ToolCall, Risk, Turn, ShownFiles | None], Awaitable[ApprovalDecision]]
"""Asks the user, or returns an earlier decision; None if nobody can be asked. The files: what a command reads that acts
on the machine itself."""
MAX_CHANGES = 3
"""Times that a person is asked again because files changed meanwhile."""
MAX_DIFF_CHARS = 60_000
"""A longer diff is not shown; the arguments of the call are."""
EDIT_TOOLS = frozenset(("write_file", "patch"))
_PLAN_TOOLS = frozenset(("todo", "tool_search", "agent_tool"))
"""Tools that change nothing but notes of the conversation, the list of its tools, and what another agent does in its
own plan mode."""
PLAN_DENIAL = (
    "Not run: plan mode is on, and only tools that read may be used. Do not try to work around this. Finish your "
    "investigation and answer with a plan."
)
_SEALED = (
    "The sandbox never lets commands do this, so nobody was asked. Use write_file or patch, or run the command with "
    "outside=true; the user is asked then."
)


class ProtectedPaths(Protocol):
    """Paths of the project that the sandbox protects, and can open for one command."""

    @property
    def protects(self) -> bool:
        """Whether there is such a sandbox."""

    def open_paths(self, call: ToolCall, turn: Turn, paths: tuple[str, ...]) -> None:
        """Let the command of this call change these paths."""


class CallReviewer(Protocol):
    """Finds risks that the rules do not know."""

    async def review(self, call: ToolCall, turn: Turn) -> Risk | None: ...


class Permissions(Protocol):
    """What a turn may do without asking."""

    async def mode(self, turn: Turn) -> PermissionMode: ...

    def effect(self, call: ToolCall) -> Literal["read", "write"]: ...


class PermissionsOfMessage:
    """Only what the message itself says: everything, or what needs no approval."""

    async def mode(self, turn: Turn) -> PermissionMode:
        return "all" if turn.inbound.trusted else "ask"

    def effect(self, call: ToolCall) -> Literal["read", "write"]:
        return "write"


class ApprovalGate:
    """Decides before each tool call whether it may run, and asks about dangerous ones."""

    def __init__(  # noqa: PLR0913
        self,
        boundary: FileBoundary,
        ask: AskApproval | None = None,
        *,
        contained: Callable[[ToolCall, Turn], bool] = lambda call, turn: False,
        judge: CallReviewer | None = None,
        permissions: Permissions | None = None,
        tool_risk: Callable[[ToolCall], Risk | None] = lambda call: None,
        sandbox: ProtectedPaths | None = None,
        command_files: CommandFileCheck | None = None,
    ) -> None:
        """Without `ask`, dangerous calls are denied.

        `contained`: whether what the call runs is in a sandbox; then only what crosses its boundary is asked about.
        `judge` is asked about calls for which the rules need no approval; it can only add questions. `tool_risk`: the
        risk of tools that come from elsewhere. `sandbox`: opens for a command what was approved.
        """
        self._ask, self._contained, self._judge, self._tool_risk = ask, contained, judge, tool_risk
        self._sandbox, self._files, self._lines = sandbox, FileApproval(boundary), TerminalLines()
        self._command_files = command_files or CommandFileCheck(boundary.places)
        self._rights = permissions or PermissionsOfMessage()

    async def before_tool(self, call: ToolCall, turn: Turn) -> Verdict | None:
        """Hook: deny the call, or let it run."""
        mode = await self._rights.mode(turn)
        if mode == "plan" and not is_allowed_in_plan(call.name, self._rights.effect(call)):
            return Verdict("deny", PLAN_DENIAL)
        whole = await asyncio.to_thread(self._lines.complete, call, turn) if call.name == "process" else call
        guarded = self._find_guard(call, turn)
        risk = self._tool_risk(call) or await assess_off_loop(
            whole, turn, self._files, contained=self._contained(call, turn), protected=guarded is not None
        )
        if guarded is not None and risk is not None and (refusal := self._refuse_sealed(call, risk, turn)):
            return Verdict("deny", refusal)
        needs_no_yes = mode == "all" or (mode == "edits" and _is_project_edit(call, risk))
        if risk is None and self._judge is not None and not needs_no_yes:
            risk = await self._judge.review(call, turn)
        if (
            risk is not None
            and (risk.floor or not needs_no_yes)
            and (denial := await self._decide(call, whole, risk, turn))
        ):
            return Verdict("deny", denial)
        if guarded is not None and risk is not None and risk.paths:
            guarded.open_paths(call, turn, risk.paths)
        if call.name == "process":
            await asyncio.to_thread(self._lines.keep, whole, turn)
        return None

    def _find_guard(self, call: ToolCall, turn: Turn) -> ProtectedPaths | None:
        """The sandbox of a command, if it protects files of the project."""
        runs_there = call.name in COMMAND_TOOLS and not call.args.get("outside") and self._contained(call, turn)
        return self._sandbox if runs_there and self._sandbox and self._sandbox.protects else None

    def _refuse_sealed(self, call: ToolCall, risk: Risk, turn: Turn) -> str:
        """Why a command in the sandbox cannot have an effect, whatever is approved; empty if it can."""
        places = self._files.boundary.places
        project = project_root(turn.inbound.workdir, places.home, places.root)
        sealed = call.name == "process" or is_inside(os.path.realpath(places.home), project)
        if risk.paths and (sealed or any(_is_sealed(path, project) for path in risk.paths)):
            return f"Not run: it {risk.reason} (rule: {risk.rule}). {_SEALED}"
        return ""

    async def _decide(self, call: ToolCall, whole: ToolCall, risk: Risk, turn: Turn) -> str:
        """Ask about a risk. Returns why the call must not run; empty if it may."""
        decision: ApprovalDecision = None
        if self._ask is not None and not risk.floor:
            on_machine = call.name in COMMAND_TOOLS and (
                bool(call.args.get("outside")) or not self._contained(call, turn)
            )
            asked = self._ask_with_files(call, whole, risk, turn) if on_machine else self._ask(call, risk, turn, None)
            decision = await asked
        if denial_reason(decision):
            return format_denial(risk, decision)
        if withdrawn := await asyncio.to_thread(self._files.why_withdrawn, call, turn):
            return withdrawn
        self._files.note_answer(risk, turn, decision)
        return ""

    async def _ask_with_files(self, call: ToolCall, whole: ToolCall, risk: Risk, turn: Turn) -> ApprovalDecision:
        """Ask about a command that acts on the machine itself, and again if what it reads changes before the answer."""
        assert self._ask is not None
        reason = risk.reason
        for _ in range(MAX_CHANGES):
            shown = await self._command_files.read(whole, turn)
            changed = structs.replace(risk, reason=reason, exact=risk.exact or shown.is_exact)
            decision = await self._ask(call, changed, turn, shown)
            withdrawn = isinstance(decision, QuestionWithdrawn)
            if denial_reason(decision) and not withdrawn:
                return decision
            if not withdrawn and await shown.are_current():
                self._command_files.approve(whole, turn, shown)
                return decision
            reason = f"{risk.reason}; asked again: {CHANGED}"
        return QuestionWithdrawn()


def _is_sealed(path: str, project: str) -> bool:
    """True outside of the project, and for files of git except for the settings that git changes itself."""
    folders, _, name = path.rpartition("/")
    return not is_inside(path, project) or (
        ".git" in path.split("/") and not (folders.endswith("/.git") and name == "config")
    )


def is_allowed_in_plan(name: str, effect: Literal["read", "write"]) -> bool:
    """True if plan mode offers and runs this tool."""
    return effect == "read" or name in _PLAN_TOOLS


def _is_project_edit(call: ToolCall, risk: Risk | None) -> bool:
    """True if the call edits files of the project and nothing else; git's own files are not edited that way."""
    if call.name not in EDIT_TOOLS or (risk is not None and (risk.rule, risk.scope) != ("trusted", "workspace")):
        return False
    return not any(".git" in path.split("/") for path in named_files(call))


def preview_change(call: ToolCall, turn: Turn, boundary: FileBoundary) -> str:
    """The diff that a file tool would make; empty if there is none that may be shown."""
    act = UnjudgedCall(turn.inbound.workdir, turn.session, call.id)
    try:
        if call.name not in EDIT_TOOLS or any(_holds_secrets(path, act, boundary) for path in named_files(call)):
            return ""
        if call.name == "patch":
            from alipes.tools.files.patch import preview_patch  # noqa: PLC0415

            diff = preview_patch(call.args, boundary, act)
        else:
            from alipes.tools.files.write_file import preview_write  # noqa: PLC0415

            diff = preview_write(str(call.args.get("path")), str(call.args.get("content")), boundary, act)
    except (ToolError, ValueError):  # the tool reports it
        return ""
    return diff if len(diff) <= MAX_DIFF_CHARS else ""


def _holds_secrets(path: str, act: CallScope, boundary: FileBoundary) -> bool:
    with boundary.opened(path, act) as opened:
        return bool(boundary.places.secrecy(opened.real))


def format_denial(risk: Risk, decision: ApprovalDecision) -> str:
    """The result of a denied call, for the model."""
    if risk.floor:
        return (
            f"Not run: it {risk.reason} (rule: {risk.rule}). No tool may do this, whatever is approved. Do not try "
            "to work around it. If it is necessary, say what the user can do by hand in their own terminal."
        )
    what = f"Not run: it {risk.reason} (rule: {risk.rule}); {denial_reason(decision)}. Do not try to work around this."
    if decision is None and risk.question is not None:
        return f"{what} If it is necessary, say so; the user can list the folder there, or run again with --yes."
    if decision is None:
        return f"{what} If it is necessary, say so; the user can approve it by running again with --yes."
    if isinstance(decision, DeniedBecause):
        return f"{what} Follow what the user said."
    if decision == "no":
        return what
    return f"{what} If it is necessary, say so, and try again when the user replies."
