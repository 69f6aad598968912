"""Approval of tool calls: a `before_tool` hook that asks about dangerous ones, or denies them."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import structs

from alipes.agent.approval.command_files import CHANGED, CommandFileCheck, ShownFiles
from alipes.agent.approval.directories import is_in
from alipes.agent.approval.paths import Counts, PathChecker, Risk, first_risk
from alipes.agent.approval.shell.lexer import ShellWord
from alipes.agent.approval.terminal_lines import TerminalLines
from alipes.config.protected_paths import is_environment_file
from alipes.kernel.conversations import ApprovalDecision, DeniedBecause, QuestionWithdrawn, denial_reason
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import PermissionMode, Turn
from alipes.plugins.dispatch import Hook
from alipes.plugins.specs import Verdict
from alipes.runtime.sandbox.project import project_root
from alipes.tools.common import Places
from alipes.tools.files.patch import patched_paths, preview_patch
from alipes.tools.files.write_file import preview_write

AskApproval: TypeAlias = Callable[[ToolCall, Risk, Turn, ShownFiles | None], Awaitable[ApprovalDecision]]
"""Asks the user, or returns an earlier decision; None if nobody can be asked. The files: what a command reads that acts
on the machine itself."""
COMMAND_TOOLS = frozenset(("terminal", "process", "execute_code"))
"""Tools that run in the sandbox, if there is one."""
MAX_CHARS = 256_000
"""Longest text that is checked; a longer one needs approval."""
MAX_LINES = 100
"""Lines of input to a process that are checked one by one."""
MAX_REASONS = 6
MAX_CHANGES = 3
"""Times that a person is asked again because files changed meanwhile."""
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


def build_approval_hook(  # noqa: PLR0913, C901
    places: Places,
    ask: AskApproval | None = None,
    *,
    contained: Callable[[ToolCall, Turn], bool] = lambda call, turn: False,
    judge: CallReviewer | None = None,
    permissions: Permissions | None = None,
    tool_risk: Callable[[ToolCall], Risk | None] = lambda call: None,
    sandbox: ProtectedPaths | None = None,
    files: CommandFileCheck | None = None,
) -> Hook:
    """The `before_tool` hook to register. Without `ask`, dangerous calls are denied.

    `contained`: whether what the call runs is in a sandbox; then only what crosses its boundary is asked
    about. `judge` is asked about calls for which the rules need no approval; it can only add questions. `tool_risk`:
    the risk of tools that come from elsewhere. `sandbox`: opens for a command what was approved.
    """
    lines, rights = TerminalLines(), permissions or PermissionsOfMessage()
    files = files or CommandFileCheck(places)

    async def decide(call: ToolCall, whole: ToolCall, risk: Risk, turn: Turn) -> ApprovalDecision:
        if ask is None:
            return None
        if _acts_on_machine(call, is_contained=contained(call, turn)):
            return await _ask_with_files(partial(ask, call), files, whole, risk, turn)
        return await ask(call, risk, turn, None)

    async def before_tool(call: ToolCall, turn: Turn) -> Verdict | None:
        mode = await rights.mode(turn)
        if mode == "plan" and not is_allowed_in_plan(call.name, rights.effect(call)):
            return Verdict("deny", PLAN_DENIAL)
        whole = await asyncio.to_thread(lines.complete, call, turn) if call.name == "process" else call
        is_contained = contained(call, turn)
        guarded = sandbox if is_contained and _runs_in_sandbox(call) and sandbox and sandbox.protects else None
        assess = partial(assess_call, whole, turn.inbound.workdir, places, contained=is_contained)
        risk = tool_risk(call) or await _assess_off_loop(partial(assess, protected=guarded is not None), call)
        if guarded is not None and risk is not None and (refusal := _refuse_sealed(call, risk, turn, places)):
            return Verdict("deny", refusal)
        needs_no_yes = mode == "all" or (mode == "edits" and _is_project_edit(call, risk))
        if risk is None and judge is not None and not needs_no_yes:
            risk = await judge.review(call, turn)
        if risk is not None and (risk.floor or not needs_no_yes):
            decision = None if risk.floor else await decide(call, whole, risk, turn)
            if denial_reason(decision):
                return Verdict("deny", format_denial(risk, decision))
        if guarded is not None and risk is not None and risk.paths:
            guarded.open_paths(call, turn, risk.paths)
        if call.name == "process":
            await asyncio.to_thread(lines.keep, whole, turn)
        return None

    return before_tool


def _runs_in_sandbox(call: ToolCall) -> bool:
    return call.name in COMMAND_TOOLS and not call.args.get("outside")


def _refuse_sealed(call: ToolCall, risk: Risk, turn: Turn, places: Places) -> str:
    """Why a command in the sandbox cannot have an effect, whatever is approved; empty if it can."""
    project = project_root(turn.inbound.workdir, places.home, places.root)
    sealed = call.name == "process" or is_in(os.path.realpath(places.home), project)
    if risk.paths and (sealed or any(_is_sealed(path, project) for path in risk.paths)):
        return f"Not run: it {risk.reason} (rule: {risk.rule}). {_SEALED}"
    return ""


def _is_sealed(path: str, project: str) -> bool:
    """True outside of the project, and for files of git except for the settings that git changes itself."""
    folders, _, name = path.rpartition("/")
    return not is_in(path, project) or (
        ".git" in path.split("/") and not (folders.endswith("/.git") and name == "config")
    )


def _acts_on_machine(call: ToolCall, *, is_contained: bool) -> bool:
    """True for a command that no sandbox contains."""
    return call.name in COMMAND_TOOLS and (not is_contained or bool(call.args.get("outside")))


async def _ask_with_files(
    ask: Callable[[Risk, Turn, ShownFiles], Awaitable[ApprovalDecision]],
    files: CommandFileCheck,
    call: ToolCall,
    risk: Risk,
    turn: Turn,
) -> ApprovalDecision:
    """Ask about a command that acts on the machine itself, and again if what it reads changes before the answer."""
    reason = risk.reason
    for _ in range(MAX_CHANGES):
        shown = await files.read(call, turn)
        decision = await ask(structs.replace(risk, reason=reason, exact=risk.exact or shown.is_exact), turn, shown)
        withdrawn = isinstance(decision, QuestionWithdrawn)
        if denial_reason(decision) and not withdrawn:
            return decision
        if not withdrawn and await shown.are_current():
            files.approve(call, turn, shown)
            return decision
        reason = f"{risk.reason}; asked again: {CHANGED}"
    return QuestionWithdrawn()


def is_allowed_in_plan(name: str, effect: Literal["read", "write"]) -> bool:
    """True if plan mode offers and runs this tool."""
    return effect == "read" or name in _PLAN_TOOLS


def _is_project_edit(call: ToolCall, risk: Risk | None) -> bool:
    """True if the call edits files of the project and nothing else; git's own files are not edited that way."""
    if call.name not in EDIT_TOOLS or (risk is not None and (risk.rule, risk.scope) != ("trusted", "workspace")):
        return False
    paths = [str(call.args.get("path"))] if call.name == "write_file" else patched_paths(call.args)
    return not any(".git" in path.split("/") for path in paths)


async def _assess_off_loop(assess: Callable[[], Risk | None], call: ToolCall) -> Risk | None:
    """Commands and code are checked in a thread: a long text takes a while, and script files are read."""
    return await asyncio.to_thread(assess) if call.name in COMMAND_TOOLS else assess()


def assess_call(
    call: ToolCall, workdir: str, places: Places, *, contained: bool = False, protected: bool = False
) -> Risk | None:
    """The risk of a call, the same in every mode; None if it needs no approval.

    `contained`: the call runs in a sandbox; `protected`: that also protects hooks and CI files of the project. Several
    risks are joined, except for one that nothing allows.
    """
    outside = bool(call.args.get("outside"))
    if call.name in COMMAND_TOOLS and contained and not outside:
        counts = _crosses_protection if protected else _crosses_boundary
        return _join_risks(_find_risks(call, workdir, places, counts, contained=True))
    risks = _find_risks(call, workdir, places, _any_risk)
    risk = _join_risks(risks)
    if risk is not None and not risk.floor:
        risk = _assess(call, workdir, places, _is_floor) or risk
    if call.name in COMMAND_TOOLS and outside:
        reason = f"runs outside the sandbox; {risk.reason}" if risk else "runs outside the sandbox"
        return Risk("outside", reason, floor=risk is not None and risk.floor, exact=True)
    return risk


def _find_risks(call: ToolCall, workdir: str, places: Places, counts: Counts, *, contained: bool = False) -> list[Risk]:
    """All risks with different reasons: each pass looks for one that is not known yet."""
    found: list[Risk] = []
    while len(found) < MAX_REASONS:
        known = {each.reason for each in found}

        def is_new(risk: Risk, known: set[str] = known) -> bool:
            return counts(risk) and risk.reason not in known and not (known and risk.rule == "unclear")

        risk = _assess(call, workdir, places, is_new, contained=contained)
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
    first = next((each for each in risks if each.rule == "secret"), risks[0])
    exact = any(each.exact or each.unseen or each.rule in _EXACT_RULES for each in risks)
    same = all((each.rule, each.scope) == (first.rule, first.scope) for each in risks)
    scope = first.scope if same else "machine"
    reason, paths = "; ".join(each.reason for each in risks), tuple(path for each in risks for path in each.paths)
    return structs.replace(first, reason=reason, scope=scope, exact=exact, paths=paths)


def preview_change(call: ToolCall, workdir: str, places: Places) -> str:
    """The diff that a file tool would make; empty if there is none that may be shown."""
    paths = [str(call.args.get("path"))] if call.name == "write_file" else patched_paths(call.args)
    try:
        if call.name not in EDIT_TOOLS or any(places.secrecy(str(places.resolve(path, workdir))) for path in paths):
            return ""
        if call.name == "patch":
            diff = preview_patch(call.args, places, workdir)
        else:
            diff = preview_write(paths[0], str(call.args.get("content")), places, workdir)
    except (ToolError, ValueError):  # the tool reports it
        return ""
    return diff if len(diff) <= MAX_DIFF_CHARS else ""


def _crosses_boundary(risk: Risk) -> bool:
    return risk.scope != "machine"


def _crosses_protection(risk: Risk) -> bool:
    """The sandbox itself prevents changes of trusted files that the rules only suspect."""
    return _crosses_boundary(risk) and (risk.rule != "trusted" or bool(risk.paths))


def _any_risk(risk: Risk) -> bool:
    return True


def _is_floor(risk: Risk) -> bool:
    return risk.floor


def _shell_rules(*, contained: bool) -> Any:
    """The rules for commands, imported with the first one that is checked: they are a dozen modules, and those for a
    machine without a sandbox as many again."""
    return import_module(f"alipes.agent.approval.shell.{'rules' if contained else 'host.rules'}")


def _assess(call: ToolCall, workdir: str, places: Places, counts: Counts, *, contained: bool = False) -> Risk | None:
    with suppress(ToolError):  # an invalid path, which the tool reports
        match call.name, call.args:
            case "terminal", {"command": str(command), **more}:
                folder = more.get("workdir")
                start = str(places.resolve(folder, workdir)) if isinstance(folder, str) and folder else ""
                if len(command) > MAX_CHARS:
                    return _too_long(command, counts)
                rules = _shell_rules(contained=contained)
                found: Risk | None = rules.judge(command, places, workdir, start, counts=counts)
                return found
            case "execute_code", {"code": str(code)}:
                if len(code) > MAX_CHARS:
                    return _too_long(code, counts)
                found = _shell_rules(contained=contained).judge_code(code, places, workdir, counts=counts)
                return found  # noqa: RET504 - typed
            case "process", {"action": "write", "data": str(data)}:  # it may go to a shell or to another program
                if len(data) > MAX_CHARS:
                    return _too_long(data, counts)
                judge = partial(_shell_rules(contained=contained).judge, places=places, workdir=workdir, counts=counts)
                return _assess_input(data, judge)
            case "read_file", {"path": str(path)}:
                file = ShellWord(str(places.resolve(path, workdir)))
                risk = PathChecker(places, workdir).check_read("read_file", file)
                return risk if risk and counts(risk) else None
            case "write_file", {"path": str(path)}:
                return _assess_writes([path], workdir, places, counts)
            case "patch", args:
                return _assess_writes(patched_paths(args), workdir, places, counts)
    return None


def _too_long(text: str, counts: Counts) -> Risk | None:
    risk = Risk("unclear", f"is too long to check ({len(text) // 1000} KB)")
    return risk if counts(risk) else None


def _assess_input(data: str, judge: Callable[[str], Risk | None]) -> Risk | None:
    """Input that cannot be parsed may be unfinished, or for another program than a shell: then line by line."""
    risk = judge(data)
    if risk is None or risk.rule != "unclear":
        return risk
    lines = map(judge, data.splitlines()[-MAX_LINES:])
    return first_risk(risk for risk in lines if risk and risk.rule != "unclear")


def _assess_writes(paths: list[str], workdir: str, places: Places, counts: Counts) -> Risk | None:
    checker = PathChecker(places, workdir)
    with suppress(ValueError):  # invalid Unicode in a path, which the tool reports
        words = [ShellWord(str(places.resolve(path, workdir))) for path in paths]
        risks = [checker.check_write(word) or _assess_environment_file(word.text) for word in words]
        return first_risk(risk for risk in risks if risk and counts(risk))
    return None


def _assess_environment_file(path: str) -> Risk | None:
    reason = f"changes {path}, from which programs load their settings"
    return Risk("trusted", reason, "workspace", paths=(path,)) if is_environment_file(path) else None


def format_denial(risk: Risk, decision: ApprovalDecision) -> str:
    """The result of a denied call, for the model."""
    if risk.floor:
        return (
            f"Not run: it {risk.reason} (rule: {risk.rule}). No tool may do this, whatever is approved. Do not try "
            "to work around it. If it is necessary, say what the user can do by hand in their own terminal."
        )
    what = f"Not run: it {risk.reason} (rule: {risk.rule}); {denial_reason(decision)}. Do not try to work around this."
    if decision is None:
        return f"{what} If it is necessary, say so; the user can approve it by running again with --yes."
    if isinstance(decision, DeniedBecause):
        return f"{what} Follow what the user said."
    if decision == "no":
        return what
    return f"{what} If it is necessary, say so, and try again when the user replies."
