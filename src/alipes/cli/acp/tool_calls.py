"""Tool calls as an editor shows them: kind, title, files, diffs and output."""

import base64
import os
import time
from itertools import groupby

from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    ImageContentBlock,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolKind,
)

from alipes.agent.tool_calls import files_written
from alipes.cli.acp.handshake import EditorFeatures
from alipes.console.diff_view import DiffLine, UnifiedDiff, is_diff
from alipes.kernel.approvals import reveal
from alipes.kernel.messages import Image, ToolCall, ToolResult
from alipes.kernel.tool_labels import describe_tool, find_problem, output_of

MAX_TITLE_CHARS = 200
MAX_OUTPUT_CHARS = 20_000
"""Characters of a result or of live output; the end is shown."""
UPDATE_S = 0.25
"""Interval between two updates of live output, each of which repeats all of it."""
KINDS: dict[str, ToolKind] = {
    "terminal": "execute",
    "process": "execute",
    "execute_code": "execute",
    "read_file": "read",
    "vision_analyze": "read",
    "write_file": "edit",
    "patch": "edit",
    "search_files": "search",
    "session_search": "search",
    "web_search": "search",
    "tool_search": "search",
    "web_extract": "fetch",
    "todo": "think",
    "clarify": "think",
    "mixture_of_agents": "think",
}
ToolContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent


class EditorCall:
    """One call: its start, its live output and its end as updates."""

    def __init__(self, call: ToolCall, turn: str, workdir: str, features: EditorFeatures) -> None:
        self.call, self.turn, self._workdir = call, turn, workdir
        self._in_terminal = features.terminals and tool_kind(call.name) == "execute"
        self._output = ""
        self._diffs: list[FileEditToolCallContent] = []
        self._sent_at = 0.0

    def start(self, *, pending: bool = False) -> ToolCallStart:
        """`pending`: it waits for approval."""
        content: list[ToolContent] = []
        meta = None
        if self._in_terminal:
            content = [TerminalToolCallContent(type="terminal", terminal_id=self.call.id)]
            meta = {"terminal_info": {"terminal_id": self.call.id, "cwd": self._workdir}}
        return ToolCallStart(
            session_update="tool_call",
            tool_call_id=self.call.id,
            title=tool_title(self.call),
            kind=tool_kind(self.call.name),
            status="pending" if pending else "in_progress",
            locations=tool_locations(self.call, self._workdir) or None,
            content=content or None,
            raw_input=self.call.args,
            field_meta=meta,
        )

    def run(self) -> ToolCallProgress:
        """It was pending and runs now."""
        return self._update(status="in_progress")

    def progress(self, text: str, clock: float | None = None) -> ToolCallProgress | None:
        """Live output, or the diff of a change; None if nothing has to be sent now."""
        if is_diff(text):
            self._diffs += read_diffs(text, self._workdir)
            return self._update(content=[*self._diffs])
        self._output = (self._output + text)[-MAX_OUTPUT_CHARS:]
        if self._in_terminal:
            return self._update(field_meta={"terminal_output": {"terminal_id": self.call.id, "data": text}})
        now = time.monotonic() if clock is None else clock
        if now - self._sent_at < UPDATE_S:
            return None
        self._sent_at = now
        return self._update(content=[_text(fence(self._output))])

    def finish(self, result: ToolResult) -> list[ToolCallProgress]:
        """The result; for a terminal of the editor also the exit."""
        failed = result.outcome != "ok" or (tool_kind(self.call.name) == "execute" and bool(find_problem(result)))
        status = "failed" if failed else "completed"
        if not self._in_terminal:
            return [self._update(status=status, content=self._result_content(result) or None)]
        updates = []
        shown = output_of(result) if result.outcome == "ok" else result.text
        if shown and not self._output:
            updates.append(self._update(field_meta={"terminal_output": {"terminal_id": self.call.id, "data": shown}}))
        ended = {"terminal_id": self.call.id, "exit_code": _exit_code(result), "signal": None}
        return [*updates, self._update(status=status, field_meta={"terminal_exit": ended})]

    def abandon(self) -> ToolCallProgress:
        """Its turn ended before it did."""
        return self._update(status="failed")

    def _result_content(self, result: ToolResult) -> list[ToolContent]:
        images: list[ToolContent] = [
            ContentToolCallContent(type="content", content=image_block(image)) for image in result.images
        ]
        if self._diffs and result.outcome == "ok":
            return [*self._diffs, *images]
        text = self._result_text(result)[-MAX_OUTPUT_CHARS:]
        if not text.strip():
            return images
        return [_text(fence(text) if tool_kind(self.call.name) in ("execute", "read", "search") else text), *images]

    def _result_text(self, result: ToolResult) -> str:
        """Of a command that succeeded, only the output."""
        succeeded = result.outcome == "ok" and not find_problem(result)
        return output_of(result) if succeeded and tool_kind(self.call.name) == "execute" else result.text

    def _update(self, **fields: object) -> ToolCallProgress:
        return ToolCallProgress.model_validate(
            {"session_update": "tool_call_update", "tool_call_id": self.call.id, **fields}
        )


def tool_kind(name: str) -> ToolKind:
    return KINDS.get(name) or ("fetch" if name.startswith("browser_") else "other")


def tool_title(call: ToolCall) -> str:
    title = reveal(describe_tool(call).text)
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 1]}…"


def tool_locations(call: ToolCall, workdir: str) -> list[ToolCallLocation]:
    """The files of the call, as absolute paths."""
    path, line = call.args.get("path"), call.args.get("offset")
    names = files_written(call) or ([path] if isinstance(path, str) and path else [])
    first = line if call.name == "read_file" and isinstance(line, int) and line > 0 else None
    return [ToolCallLocation(path=absolute_path(name, workdir), line=first) for name in names]


def absolute_path(name: str, workdir: str) -> str:
    return os.path.normpath(os.path.join(workdir, os.path.expanduser(name)))


def read_diffs(text: str, workdir: str) -> list[FileEditToolCallContent]:
    """A unified diff as old and new text, one entry per hunk."""
    created = text.startswith("--- /dev/null")
    found, path = [], ""
    for separates, group in groupby(UnifiedDiff.read(text).lines, key=lambda line: line.sign in "f@"):
        lines = list(group)
        if separates:
            path = next((line.text for line in lines if line.sign == "f"), path)
            continue
        old, new = (_join(lines, f" {sign}") for sign in "-+")
        name = absolute_path(path, workdir)
        before = None if created and not old else old
        found.append(FileEditToolCallContent(type="diff", path=name, old_text=before, new_text=new))
    return found


def _join(lines: list[DiffLine], signs: str) -> str:
    return "".join(f"{line.text}\n" for line in lines if line.sign in signs)


def image_block(image: Image) -> ImageContentBlock:
    return ImageContentBlock(
        type="image", mime_type=image.media_type, data=base64.b64encode(image.data).decode("ascii")
    )


def text_block(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)


def _text(text: str) -> ContentToolCallContent:
    return ContentToolCallContent(type="content", content=text_block(text))


def fence(text: str, language: str = "") -> str:
    """The text as a code block that it cannot close itself."""
    longest = max((len(run) for run in text.replace("\n", " ").split(" ") if run and set(run) == {"`"}), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def _exit_code(result: ToolResult) -> int | None:
    if result.outcome != "ok":
        return 1
    problem = find_problem(result)
    number = problem.removeprefix("exit code ")
    return 0 if not problem else int(number) if number.lstrip("-").isdecimal() else 1
