"""Approval of tool calls: a `before_tool` hook that asks about dangerous ones, or denies them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias

from alipes.agent.approval.paths import PathChecker, Risk
from alipes.agent.approval.shell.lexer import ShellWord
from alipes.agent.approval.shell.programs import first_risk
from alipes.agent.approval.shell.rules import Counts, judge, judge_code
from alipes.agent.approval.terminal_lines import TerminalLines
from alipes.kernel.conversations import ApprovalDecision, denial_reason
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.plugins.dispatch import Hook
from alipes.plugins.specs import Verdict
from alipes.tools.common import Places
from alipes.tools.files.patch import patched_paths

AskApproval: TypeAlias = Callable[[ToolCall, Risk, Turn], Awaitable[ApprovalDecision]]
"""Asks the user, or returns an earlier decision; None if nobody can be asked."""
COMMAND_TOOLS = frozenset(("terminal", "process", "execute_code"))
"""Tools that run in the sandbox, if there is one."""
MAX_CHARS = 256_000
"""Longest text that is checked; a longer one needs approval."""
MAX_LINES = 100
"""Lines of input to a process that are checked one by one."""


class CallReviewer(Protocol):
    """Finds risks that the rules do not know."""

    async def review(self, call: ToolCall, turn: Turn) -> Risk | None: ...


def build_approval_hook(
    places: Places,
    ask: AskApproval | None = None,
    *,
    contained: Callable[[ToolCall, Turn], bool] = lambda call, turn: False,
    judge: CallReviewer | None = None,
) -> Hook:
    """The `before_tool` hook to register. Without `ask`, dangerous calls are denied.

    `contained`: whether what the call runs is in a sandbox; then only what crosses its boundary is asked
    about. `judge` is asked about calls for which the rules need no approval; it can only add questions.
    """
    lines = TerminalLines()

    async def before_tool(call: ToolCall, turn: Turn) -> Verdict | None:
        whole = await asyncio.to_thread(lines.complete, call, turn) if call.name == "process" else call
        risk = await _assess_off_loop(whole, turn, places, is_contained=contained(call, turn))
        if risk is None and judge is not None and not turn.inbound.trusted:
            risk = await judge.review(call, turn)
        if risk is not None and risk.floor:
            return Verdict("deny", format_denial(risk, None))
        if risk is not None and not turn.inbound.trusted:
            decision = None if ask is None else await ask(call, risk, turn)
            if denial_reason(decision):
                return Verdict("deny", format_denial(risk, decision))
        if call.name == "process":
            await asyncio.to_thread(lines.keep, whole, turn)
        return None

    return before_tool


async def _assess_off_loop(call: ToolCall, turn: Turn, places: Places, *, is_contained: bool) -> Risk | None:
    """Commands and code are checked in a thread: a long text takes a while, and script files are read."""
    workdir = turn.inbound.workdir
    if call.name in COMMAND_TOOLS:
        return await asyncio.to_thread(assess_call, call, workdir, places, contained=is_contained)
    return assess_call(call, workdir, places)


def assess_call(call: ToolCall, workdir: str, places: Places, *, contained: bool = False) -> Risk | None:
    """The risk of a call, the same in every mode; None if it needs no approval.

    `contained`: the call runs in a sandbox. Of several risks the one that nothing allows is returned.
    """
    outside = bool(call.args.get("outside"))
    if call.name in COMMAND_TOOLS and contained and not outside:
        return _assess(call, workdir, places, _crosses_boundary)
    risk = _assess(call, workdir, places, _any_risk)
    if risk is not None and not risk.floor:
        risk = _assess(call, workdir, places, _is_floor) or risk
    if call.name in COMMAND_TOOLS and outside:
        reason = f"runs outside the sandbox, and {risk.reason}" if risk else "runs outside the sandbox"
        return Risk("outside", reason, floor=risk is not None and risk.floor)
    return risk


def _crosses_boundary(risk: Risk) -> bool:
    return risk.scope != "machine"


def _any_risk(risk: Risk) -> bool:
    return True


def _is_floor(risk: Risk) -> bool:
    return risk.floor


def _assess(call: ToolCall, workdir: str, places: Places, counts: Counts) -> Risk | None:
    with suppress(ToolError):  # an invalid path, which the tool reports
        match call.name, call.args:
            case "terminal", {"command": str(command), **more}:
                folder = more.get("workdir")
                start = str(places.resolve(folder, workdir)) if isinstance(folder, str) and folder else ""
                if len(command) > MAX_CHARS:
                    return _too_long(command, counts)
                return judge(command, places, workdir, start, counts=counts)
            case "execute_code", {"code": str(code)}:
                if len(code) > MAX_CHARS:
                    return _too_long(code, counts)
                return judge_code(code, places, workdir, counts=counts)
            case "process", {"action": "write", "data": str(data)}:  # it may go to a shell or to another program
                if len(data) > MAX_CHARS:
                    return _too_long(data, counts)
                return _assess_input(data, workdir, places, counts)
            case "read_file", {"path": str(path)}:
                file = ShellWord(str(places.resolve(path, workdir)))
                return PathChecker(places, workdir).check_read("read_file", file)
            case "write_file", {"path": str(path)}:
                return _assess_writes([path], workdir, places)
            case "patch", args:
                return _assess_writes(patched_paths(args), workdir, places)
    return None


def _too_long(text: str, counts: Counts) -> Risk | None:
    risk = Risk("unclear", f"is too long to check ({len(text) // 1000} KB)")
    return risk if counts(risk) else None


def _assess_input(data: str, workdir: str, places: Places, counts: Counts) -> Risk | None:
    """Input that cannot be parsed may be unfinished, or for another program than a shell: then line by line."""
    risk = judge(data, places, workdir, counts=counts)
    if risk is None or risk.rule != "unclear":
        return risk
    lines = (judge(line, places, workdir, counts=counts) for line in data.splitlines()[-MAX_LINES:])
    return first_risk(risk for risk in lines if risk and risk.rule != "unclear")


def _assess_writes(paths: list[str], workdir: str, places: Places) -> Risk | None:
    checker = PathChecker(places, workdir)
    with suppress(ValueError):  # invalid Unicode in a path, which the tool reports
        return first_risk([checker.check_write(ShellWord(str(places.resolve(path, workdir)))) for path in paths])
    return None


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
    if decision == "no":
        return what
    return f"{what} If it is necessary, say so, and try again when the user replies."
