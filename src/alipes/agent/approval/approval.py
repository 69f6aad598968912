"""Approval, a plugin of the house itself: dangerous calls are asked about, or refused if nobody can say."""

from collections.abc import Awaitable, Callable
from shlex import quote
from typing import TypeAlias

from alipes.agent.approval.paths import Ground, Risk
from alipes.agent.approval.shell.lexer import Word
from alipes.agent.approval.shell.rules import judge
from alipes.kernel.conversations import Leave, withheld
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Turn
from alipes.plugins.dispatch import Hook
from alipes.plugins.specs import Verdict
from alipes.tools.common import Places
from alipes.tools.files.patch import touched

Ask: TypeAlias = Callable[[ToolCall, Risk, Turn], Awaitable[Leave]]
"""The person's word, given now or before; None where nobody is there to give it."""


def approval(places: Places, ask: Ask | None = None) -> Hook:
    """The `before_tool` hook to register. Without `ask` nobody can answer, and the answer is no.

    It rules on what is dangerous and is silent about everything else.
    """

    async def before_tool(call: ToolCall, turn: Turn) -> Verdict | None:
        risk = assess(call, turn.inbound.workdir, places)
        if risk is None or turn.inbound.trusted:
            return None
        word = None if ask is None else await ask(call, risk, turn)
        if withheld(word):
            return Verdict("deny", refusal(risk, word))
        return None

    return before_tool


def assess(call: ToolCall, workdir: str, places: Places) -> Risk | None:
    """The risk of a call, the same in every mode; None when it needs no question."""
    try:
        return _assessed(call, workdir, places)
    except ToolError:  # no file has such a name, and the tool says so
        return None


def _assessed(call: ToolCall, workdir: str, places: Places) -> Risk | None:
    match call.name, call.args:
        case "terminal", {"command": str(command), **more}:
            folder = more.get("workdir")
            start = str(places.locate(folder, workdir)) if isinstance(folder, str) and folder else ""
            return judge(command, places, workdir, start)
        case "execute_code", {"code": str(code)}:
            return judge(f"python3 -c {quote(code)}", places, workdir)
        case "process", {"action": "write", "data": str(data)}:
            risk = judge(data, places, workdir)  # it may be typed into a shell, or into something else
            return None if risk is not None and risk.rule == "unclear" else risk
        case "read_file", {"path": str(path)}:
            return Ground(places, workdir).reading("read_file", Word(str(places.locate(path, workdir))))
        case "write_file", {"path": str(path)}:
            return _written([path], workdir, places)
        case "patch", args:
            return _written(touched(args), workdir, places)
    return None


def _written(paths: list[str], workdir: str, places: Places) -> Risk | None:
    ground = Ground(places, workdir)
    try:
        risks = [ground.writing(Word(str(places.locate(path, workdir)))) for path in paths]
    except ValueError:  # half a character: no file has such a name, and the tool says so
        return None
    return next((risk for risk in risks if risk is not None), None)


def refusal(risk: Risk, word: Leave) -> str:
    """What the model is told, and through it the person."""
    what = f"Not run: it {risk.reason} (rule: {risk.rule}), and {withheld(word)}. Look for no way around it."
    if word is None:
        return f"{what} If it is needed, say so; the person can allow it by asking again with --yes."
    return f"{what} If it is needed, say so, and try it when the person answers." if word != "no" else what
