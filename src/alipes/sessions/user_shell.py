"""Commands that the person runs in a conversation: the `terminal` tool without a turn and without questions."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping

from msgspec import structs

from alipes.agent.approval.assessment import assess_call
from alipes.kernel.errors import ToolError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json, ToolCall, ToolResult
from alipes.kernel.turns import Inbound, Turn
from alipes.plugins.registry import Contributions
from alipes.store.sql.store import Store
from alipes.tools.common import Places
from alipes.tools.shell.terminal import MAX_TIMEOUT_S

_STATUS = lazy_pattern(r"\A(.*?)\n?\[((?:exit code|killed by|timed out)[^\]]*)\](?:\n\[.*)?\Z", re.DOTALL)
ShowOutput = Callable[[str], Awaitable[None]]
TOOL = "terminal"
MARK = "!"
_REMARK = "The user ran this shell command. Use its output if the next message refers to it."


def is_shell_command(text: str) -> bool:
    """True for `!ls`; an exclamation mark alone is a message."""
    text = text.strip()
    return text.startswith(MARK) and bool(text.strip(MARK).strip()) and not text.startswith("!!")


def parse_command(text: str) -> str:
    """The command without its mark."""
    return text.strip().removeprefix(MARK).strip()


def to_notice(command: str, result: ToolResult, inbound: Inbound) -> Inbound | None:
    """The output as a message for the model, which it does not answer; None if the command was not run."""
    if result.outcome == "denied":
        return None
    text = f"{MARK}{command}\n\n{result.text}\n\n({_REMARK})"
    return structs.replace(inbound, text=text, notice="kept", model="")


def split_status(result: ToolResult) -> tuple[str, str]:
    """The output of a command, and how it ended; the latter is empty if it succeeded."""
    if result.outcome != "ok":
        return "", result.text
    found = _STATUS.match(result.text)
    text, status = found.groups() if found else (result.text, "")
    return "" if text == "(no output)" else text, "" if status == "exit code 0" else status


async def _show_nothing(_text: str) -> None:
    """Nobody watches the output."""


class _ShellContext:
    """The context of the tool: it belongs to no turn, and cannot use other tools."""

    def __init__(self, call: ToolCall, turn: Turn, show: ShowOutput) -> None:
        self.call_id, self.turn, self.session = call.id, turn, turn.session
        self.workdir = turn.inbound.workdir
        self._show = show

    async def progress(self, text: str) -> None:
        await self._show(text)

    async def run_tool(self, name: str, args: Mapping[str, Json]) -> ToolResult:
        raise ToolError("not available here")


class UserShell:
    """Runs commands of the person in the same sandbox as those of the model. What nothing allows is not run."""

    def __init__(self, store: Store, contributions: Contributions, places: Places) -> None:
        self._store, self._contributions, self._places = store, contributions, places

    async def run(self, command: str, inbound: Inbound, show: ShowOutput = _show_nothing) -> ToolResult:
        """Run the command and return its output; `show` gets the latest output meanwhile."""
        call = ToolCall(f"shell-{os.urandom(6).hex()}", TOOL, {"command": command, "timeout": MAX_TIMEOUT_S})
        tool = self._contributions.tools().get(TOOL)
        if tool is None:
            return ToolResult(call.id, "commands are not available here", "failed")
        risk = assess_call(call, inbound.workdir, self._places)
        if risk is not None and risk.floor:
            return ToolResult(call.id, f"Not run: it {risk.reason}. Run it in your own shell.", "denied")
        standing = await self._store.sessions.open(inbound.address)
        turn = Turn(call.id, standing.session, structs.replace(inbound, trusted=True))
        try:
            output = await tool.run(call.args, _ShellContext(call, turn, show))
        except ToolError as error:
            return ToolResult(call.id, str(error), "failed")
        text = output if isinstance(output, str) else output.text
        return ToolResult(call.id, text)
