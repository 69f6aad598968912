"""Approval of tool calls: a `before_tool` hook that asks about dangerous ones, or denies them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import structs

from alipes.agent.approval.files import FILE_TOOLS, FileApproval, named_files
from alipes.agent.approval.paths import Counts, Risk, first_risk
from alipes.agent.approval.terminal_lines import TerminalLines
from alipes.kernel.conversations import ApprovalDecision, DeniedBecause, denial_reason
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import PermissionMode, Turn
from alipes.plugins.dispatch import Hook
from alipes.plugins.specs import Verdict
from alipes.tools.boundary import CallScope, FileBoundary, UnjudgedCall
from alipes.tools.common import Places
from alipes.tools.files.patch import patched_paths, preview_patch
from alipes.tools.files.write_file import preview_write

AskApproval: TypeAlias = Callable[[ToolCall, Risk, Turn], Awaitable[ApprovalDecision]]
"""Asks the user, or returns an earlier decision; None if nobody can be asked."""
COMMAND_TOOLS = frozenset(("terminal", "process", "execute_code"))
"""Tools that run in the sandbox, if there is one."""
MAX_CHARS = 256_000
"""Longest text that is checked; a longer one needs approval."""
MAX_LINES = 100
"""Lines of input to a process that are checked one by one."""
MAX_REASONS = 6
MAX_DIFF_CHARS = 60_000
"""A longer diff is not shown; the arguments of the call are."""
EDIT_TOOLS = frozenset(("write_file", "patch"))
_PLAN_TOOLS = frozenset(("todo", "tool_search"))
"""Tools that change nothing but notes of the conversation, and the list of its tools."""
_EXACT_RULES = frozenset(("secret", "own", "startup", "trusted", "outside", "judge", "unclear", "hidden", "credential"))
"""Rules whose approval is for one call only; no pattern covers it."""
PLAN_DENIAL = (
    "Not run: plan mode is on, and only tools that read may be used. Do not try to work around this. Finish your "
    "investigation and answer with a plan."
)


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


def build_approval_hook(
    boundary: FileBoundary,
    ask: AskApproval | None = None,
    *,
    contained: Callable[[ToolCall, Turn], bool] = lambda call, turn: False,
    judge: CallReviewer | None = None,
    permissions: Permissions | None = None,
    tool_risk: Callable[[ToolCall], Risk | None] = lambda call: None,
) -> Hook:
    """The `before_tool` hook to register. Without `ask`, dangerous calls are denied.

    `contained`: whether what the call runs is in a sandbox; then only what crosses its boundary is asked
    about. `judge` is asked about calls for which the rules need no approval; it can only add questions. `tool_risk`:
    the risk of tools that come from elsewhere.
    """
    lines, rights = TerminalLines(), permissions or PermissionsOfMessage()
    files = FileApproval(boundary)

    async def before_tool(call: ToolCall, turn: Turn) -> Verdict | None:
        mode = await rights.mode(turn)
        if mode == "plan" and not is_allowed_in_plan(call.name, rights.effect(call)):
            return Verdict("deny", PLAN_DENIAL)
        whole = await asyncio.to_thread(lines.complete, call, turn) if call.name == "process" else call
        risk = tool_risk(call) or await _assess_off_loop(whole, turn, files, is_contained=contained(call, turn))
        needs_no_yes = mode == "all" or (mode == "edits" and _is_project_edit(call, risk))
        if risk is None and judge is not None and not needs_no_yes:
            risk = await judge.review(call, turn)
        if risk is not None and risk.floor:
            return Verdict("deny", format_denial(risk, None))
        if risk is not None and not needs_no_yes:
            decision = None if ask is None else await ask(call, risk, turn)
            if denial_reason(decision):
                return Verdict("deny", format_denial(risk, decision))
            if withdrawn := await asyncio.to_thread(files.why_withdrawn, call, turn):
                return Verdict("deny", withdrawn)
            files.note_answer(risk, turn, decision)
        if call.name == "process":
            await asyncio.to_thread(lines.keep, whole, turn)
        return None

    return before_tool


def is_allowed_in_plan(name: str, effect: Literal["read", "write"]) -> bool:
    """True if plan mode offers and runs this tool."""
    return effect == "read" or name in _PLAN_TOOLS


def _is_project_edit(call: ToolCall, risk: Risk | None) -> bool:
    """True if the call edits files of the project and nothing else; git's own files are not edited that way."""
    if call.name not in EDIT_TOOLS or (risk is not None and (risk.rule, risk.scope) != ("trusted", "workspace")):
        return False
    paths = [str(call.args.get("path"))] if call.name == "write_file" else patched_paths(call.args)
    return not any(".git" in path.split("/") for path in paths)


async def _assess_off_loop(call: ToolCall, turn: Turn, files: FileApproval, *, is_contained: bool) -> Risk | None:
    """In a thread: a long text takes a while, and files are opened and script files are read."""
    workdir, places = turn.inbound.workdir, files.boundary.places
    if call.name in FILE_TOOLS:
        return _join_risks(await asyncio.to_thread(files.assess, call, (turn.session, call.id), workdir, turn))
    if call.name in COMMAND_TOOLS:
        return await asyncio.to_thread(assess_call, call, workdir, places, contained=is_contained)
    return assess_call(call, workdir, places)


def assess_call(call: ToolCall, workdir: str, places: Places, *, contained: bool = False) -> Risk | None:
    """The risk of a call, the same in every mode; None if it needs no approval.

    `contained`: the call runs in a sandbox. Several risks are joined, except for one that nothing allows.
    """
    outside = bool(call.args.get("outside"))
    if call.name in FILE_TOOLS:
        return _assess_files(call, workdir, places)
    if call.name in COMMAND_TOOLS and contained and not outside:
        return _join_risks(_find_risks(call, workdir, places, _crosses_boundary))
    risks = _find_risks(call, workdir, places, _any_risk)
    risk = _join_risks(risks)
    if risk is not None and not risk.floor:
        risk = _assess(call, workdir, places, _is_floor) or risk
    if call.name in COMMAND_TOOLS and outside:
        reason = f"runs outside the sandbox; {risk.reason}" if risk else "runs outside the sandbox"
        return Risk("outside", reason, floor=risk is not None and risk.floor, exact=True)
    return risk


def _find_risks(call: ToolCall, workdir: str, places: Places, counts: Counts) -> list[Risk]:
    """All risks with different reasons: each pass looks for one that is not known yet."""
    found: list[Risk] = []
    while len(found) < MAX_REASONS:
        known = {each.reason for each in found}

        def is_new(risk: Risk, known: set[str] = known) -> bool:
            return counts(risk) and risk.reason not in known and not (known and risk.rule == "unclear")

        risk = _assess(call, workdir, places, is_new)
        if risk is None or risk.reason in known:
            break
        found.append(risk)
    return found


def _join_risks(risks: list[Risk]) -> Risk | None:
    """One risk with all reasons. Its rule is that of the first; reading a secret comes before others."""
    if not risks:
        return None
    if (floor := next((each for each in risks if each.floor), None)) is not None:
        return floor
    risks = [*{each.reason: each for each in reversed(risks)}.values()][: -MAX_REASONS - 1 : -1]
    first = next((each for each in risks if each.rule == "secret"), risks[0])
    exact = any(each.exact or each.unseen or each.rule in _EXACT_RULES for each in risks)
    same = all((each.rule, each.scope) == (first.rule, first.scope) for each in risks)
    scope = first.scope if same else "machine"
    whys = "; ".join(each.why or each.reason for each in risks)
    joined = first if len(risks) == 1 else structs.replace(first, question=None, why=whys)
    reasons = "; ".join(each.reason for each in risks)
    return structs.replace(joined, reason=reasons, scope=scope, exact=exact)


def preview_change(call: ToolCall, turn: Turn, boundary: FileBoundary) -> str:
    """The diff that a file tool would make; empty if there is none that may be shown."""
    act = UnjudgedCall(turn.inbound.workdir, turn.session, call.id)
    try:
        if call.name not in EDIT_TOOLS or any(_holds_secrets(path, act, boundary) for path in named_files(call)):
            return ""
        if call.name == "patch":
            diff = preview_patch(call.args, boundary, act)
        else:
            diff = preview_write(str(call.args.get("path")), str(call.args.get("content")), boundary, act)
    except (ToolError, ValueError):  # the tool reports it
        return ""
    return diff if len(diff) <= MAX_DIFF_CHARS else ""


def _holds_secrets(path: str, act: CallScope, boundary: FileBoundary) -> bool:
    with boundary.opened(path, act) as opened:
        return bool(boundary.places.secrecy(opened.real))


def _crosses_boundary(risk: Risk) -> bool:
    return risk.scope != "machine"


def _any_risk(risk: Risk) -> bool:
    return True


def _is_floor(risk: Risk) -> bool:
    return risk.floor


def _shell_rules() -> Any:
    """The rules for commands, imported with the first one that is checked: they are two dozen modules."""
    return import_module("alipes.agent.approval.shell.rules")


def _assess(call: ToolCall, workdir: str, places: Places, counts: Counts) -> Risk | None:
    with suppress(ToolError):  # an invalid path, which the tool reports
        match call.name, call.args:
            case "terminal", {"command": str(command), **more}:
                folder = more.get("workdir")
                start = str(places.resolve(folder, workdir)) if isinstance(folder, str) and folder else ""
                if len(command) > MAX_CHARS:
                    return _too_long(command, counts)
                found: Risk | None = _shell_rules().judge(command, places, workdir, start, counts=counts)
                return found
            case "execute_code", {"code": str(code)}:
                if len(code) > MAX_CHARS:
                    return _too_long(code, counts)
                found = _shell_rules().judge_code(code, places, workdir, counts=counts)
                return found  # noqa: RET504 - typed
            case "process", {"action": "write", "data": str(data)}:  # it may go to a shell or to another program
                if len(data) > MAX_CHARS:
                    return _too_long(data, counts)
                return _assess_input(data, workdir, places, counts)
    return None


def _too_long(text: str, counts: Counts) -> Risk | None:
    risk = Risk("unclear", f"is too long to check ({len(text) // 1000} KB)")
    return risk if counts(risk) else None


def _assess_input(data: str, workdir: str, places: Places, counts: Counts) -> Risk | None:
    """Input that cannot be parsed may be unfinished, or for another program than a shell: then line by line."""
    judge = _shell_rules().judge
    risk: Risk | None = judge(data, places, workdir, counts=counts)
    if risk is None or risk.rule != "unclear":
        return risk
    lines = (judge(line, places, workdir, counts=counts) for line in data.splitlines()[-MAX_LINES:])
    return first_risk(risk for risk in lines if risk and risk.rule != "unclear")


def _assess_files(call: ToolCall, workdir: str, places: Places) -> Risk | None:
    boundary, key = FileBoundary(places), ("", call.id)
    try:
        return _join_risks(FileApproval(boundary).assess(call, key, workdir))
    finally:
        boundary.release(*key)


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
