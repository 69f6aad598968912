"""Approval of files that are sent to a chat, unless the model wrote the file in this turn.

A hostile text can make a model name any file. One that the model wrote itself says nothing that the answer
could not say.
"""

from alipes.agent.tool_calls import changed_files, files_written
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.turns import Turn
from alipes.plugins.specs import Verdict
from alipes.tools.boundary import FileBoundary, UnjudgedCall
from alipes.tools.send_file import SendFileTool


class SentFileApproval:
    """Hooks that remember the files a turn wrote, and ask before `send_file` sends another one."""

    def __init__(self, boundary: FileBoundary) -> None:
        self._boundary = boundary
        self._written: dict[str, set[str]] = {}
        """Real paths, by turn."""

    async def before_tool(self, call: ToolCall, turn: Turn) -> Verdict | None:
        if call.name != SendFileTool.spec.name:
            return None
        path = self._real_path(str(call.args.get("path", "")), call, turn)
        earlier = {self._real_path(each, call, turn) for each in changed_files(turn.said)} - {""}
        if path in earlier | self._written.get(turn.id, set()):
            return None
        return Verdict("ask", f"it sends {path or call.args.get('path')} to this chat")

    async def after_tool(self, call: ToolCall, result: ToolResult, turn: Turn) -> None:
        if result.outcome == "ok" and (paths := files_written(call)):
            self._written.setdefault(turn.id, set()).update(self._real_path(path, call, turn) for path in paths)

    async def turn_ended(self, turn: Turn) -> None:
        self._written.pop(turn.id, None)

    def _real_path(self, path: str, call: ToolCall, turn: Turn) -> str:
        """Where the path led when the call was judged; empty if it cannot be opened."""
        try:
            with self._boundary.opened(path, UnjudgedCall(turn.inbound.workdir, turn.session, call.id)) as opened:
                return opened.real
        except ToolError:
            return ""
