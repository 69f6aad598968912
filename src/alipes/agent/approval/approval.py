"""Approval of tool calls: a `before_tool` hook that asks about dangerous ones, or denies them."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from shlex import quote
from typing import TypeAlias

from alipes.agent.approval.paths import PathChecker, Risk
from alipes.agent.approval.shell.lexer import ShellWord
from alipes.agent.approval.shell.programs import first_risk
from alipes.agent.approval.shell.rules import judge
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


def build_approval_hook(places: Places, ask: AskApproval | None = None) -> Hook:
    """The `before_tool` hook to register. Without `ask`, dangerous calls are denied."""

    async def before_tool(call: ToolCall, turn: Turn) -> Verdict | None:
        risk = assess_call(call, turn.inbound.workdir, places)
        if risk is None or turn.inbound.trusted:
            return None
        decision = None if ask is None else await ask(call, risk, turn)
        if denial_reason(decision):
            return Verdict("deny", format_denial(risk, decision))
        return None

    return before_tool


def assess_call(call: ToolCall, workdir: str, places: Places) -> Risk | None:
    """The risk of a call, the same in every mode; None if it needs no approval."""
    with suppress(ToolError):  # an invalid path, which the tool reports
        match call.name, call.args:
            case "terminal", {"command": str(command), **more}:
                folder = more.get("workdir")
                start = str(places.resolve(folder, workdir)) if isinstance(folder, str) and folder else ""
                return judge(command, places, workdir, start)
            case "execute_code", {"code": str(code)}:
                return judge(f"python3 -c {quote(code)}", places, workdir)
            case "process", {"action": "write", "data": str(data)}:
                risk = judge(data, places, workdir)  # it may go to a shell or to another program
                return None if risk is not None and risk.rule == "unclear" else risk
            case "read_file", {"path": str(path)}:
                file = ShellWord(str(places.resolve(path, workdir)))
                return PathChecker(places, workdir).check_read("read_file", file)
            case "write_file", {"path": str(path)}:
                return _assess_writes([path], workdir, places)
            case "patch", args:
                return _assess_writes(patched_paths(args), workdir, places)
    return None


def _assess_writes(paths: list[str], workdir: str, places: Places) -> Risk | None:
    checker = PathChecker(places, workdir)
    with suppress(ValueError):  # invalid Unicode in a path, which the tool reports
        return first_risk([checker.check_write(ShellWord(str(places.resolve(path, workdir)))) for path in paths])
    return None


def format_denial(risk: Risk, decision: ApprovalDecision) -> str:
    """The result of a denied call, for the model."""
    what = f"Not run: it {risk.reason} (rule: {risk.rule}); {denial_reason(decision)}. Do not try to work around this."
    if decision is None:
        return f"{what} If it is necessary, say so; the user can approve it by running again with --yes."
    if decision == "no":
        return what
    return f"{what} If it is necessary, say so, and try again when the user replies."
