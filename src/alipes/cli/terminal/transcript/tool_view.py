"""Tool calls as rows: the call, its live output, its outcome and its diff; short, or whole."""

from collections import deque

from msgspec import Struct

from alipes.cli.terminal.transcript.subagent_view import SubagentView
from alipes.console import images
from alipes.console.diff_view import DrawContext, UnifiedDiff, is_diff
from alipes.console.markdown.wrap import split_row, to_ansi
from alipes.console.render import sanitize, text_width, to_one_line, truncate
from alipes.console.styles import TerminalStyle, apply_style, wrap_text
from alipes.kernel.messages import ToolCall, ToolResult
from alipes.kernel.tool_labels import (
    count_lines,
    describe_outcome,
    describe_tool,
    find_problem,
    is_builtin,
    output_of,
    problem_of,
)

LIVE_ROWS = 4
"""Rows of output shown for a running call."""
KEPT_LINES = 200
"""Lines of output that are kept of a running call."""
EXCERPT_ROWS = 3
"""Rows of output shown for a finished command or an error."""
OUTPUT_TOOLS = frozenset({"terminal", "execute_code", "process"})
"""Tools whose output is shown after they succeeded."""
_LINES_TOOLS = frozenset({"terminal", "execute_code"})
"""Tools whose main argument has lines, which are shown as such."""


class CallRecord(Struct, frozen=True):
    """A finished call."""

    call: ToolCall
    result: ToolResult
    seconds: float = 0.0
    diff: UnifiedDiff | None = None

    @property
    def size(self) -> int:
        """Characters, about."""
        lines = self.diff.lines if self.diff is not None else ()
        return len(self.result.text) + sum(len(str(value)) for value in self.call.args.values()) + 40 * len(lines)


class RunningCall:
    def __init__(self, call: ToolCall, began: float) -> None:
        self.call, self.started = call, began
        self._lines: deque[str] = deque([""], maxlen=KEPT_LINES)
        """The last one may still be overwritten; it then ends with a carriage return."""
        self.diff: UnifiedDiff | None = None
        self._subagents = SubagentView(call) if call.name == "delegate_task" else None

    def progress(self, text: str, now: float = 0.0) -> None:
        """Add output. A unified diff is shown at the end."""
        if is_diff(text):
            self.diff = UnifiedDiff.read(text)
            return
        if self._subagents is not None:
            self._subagents.progress(text, now)
            return
        first, *others = text.replace("\r\n", "\n").split("\n")
        self._lines[-1] = _overwrite(self._lines[-1] + first)
        self._lines.extend(_overwrite(line) for line in others)

    def rows(self, draw: DrawContext, now: float, *, lines: int = LIVE_ROWS) -> list[str]:
        """The call and the last `lines` of its output, or its subagents."""
        columns, style = draw.columns, draw.style
        seconds = int(now - self.started)
        took = f" {_format_clock(seconds)}" if seconds >= 2 else ""
        head, _ = _format_head(self.call, columns - len(took) - 2, style)
        rows = [f"{apply_style(style.working, style.accent)} {head}{apply_style(took, style.faint)}"]
        rows += _format_other_lines(self.call, draw)[0]
        if self._subagents is not None:
            return rows + self._subagents.rows(columns, style, now)
        shown = [line for line in map(_apply_carriage_return, self._lines) if line.strip()][-lines:]
        return rows + [_format_output(line, columns, style) for line in shown]

    def finish(self, result: ToolResult, seconds: float) -> CallRecord:
        return CallRecord(self.call, result, seconds, self.diff)

    def finish_stopped(self, now: float) -> CallRecord:
        """The turn ended while the call was running; its last lines are kept."""
        text = "\n".join(map(_apply_carriage_return, self._lines)).strip("\n")
        return CallRecord(self.call, ToolResult(self.call.id, text, "cancelled"), now - self.started)


def render_finished(record: CallRecord, draw: DrawContext, *, diff_shown: bool = False) -> tuple[list[str], bool]:
    """A row with the outcome; below it the diff unless it is shown, the error, or the end of the output.

    Also returns whether anything was left out.
    """
    call, result, style = record.call, record.result, draw.style
    below, cut = ([], False) if diff_shown else _render_details(record, draw)
    row, shortened = _format_finished_row(record, draw, shows_output=bool(below) and not cut)
    others, cut_lines = _format_other_lines(call, draw)
    rows, cut = [row, *others], cut or cut_lines
    for path in result.files if result.outcome == "ok" else ():
        rows += [f"  {apply_style(truncate(sanitize(path), draw.columns - 2, style.more), style.faint)}"]
        rows += images.render_image(path, style.images, draw.columns)
    silent = result.outcome == "ok" and call.name not in OUTPUT_TOOLS and not record.diff
    return rows + below, shortened or cut or (silent and count_lines(result.text) > 1)


def render_whole(record: CallRecord, draw: DrawContext) -> list[str]:
    """The whole call with its arguments and its whole output."""
    call, result, style = record.call, record.result, draw.style
    row, cut = _format_finished_row(record, draw, shows_output=False)
    rows, label = [row], describe_tool(call)
    arguments = label.object if cut or "\n" in label.object else ""
    if not is_builtin(call):
        arguments = "\n".join(f"{name}: {value}" for name, value in call.args.items())
    for line in sanitize(arguments).expandtabs(4).split("\n") if arguments else ():
        rows += [f"    {part}" for part in _split(line, draw.columns - 4)]
    if record.diff is not None and result.outcome == "ok":
        return rows + record.diff.rows(draw, whole=True)[0]
    bar, text = f"  {apply_style(style.bar, style.faint)} ", result.text.rstrip("\n")
    for line in map(_apply_carriage_return, text.split("\n") if text else ()):
        rows += [f"{bar}{part}".rstrip() for part in _split(line, draw.columns - 4)]
    return rows


def render_followed(title: str, lines: list[str], draw: DrawContext, *, ended: bool = False) -> list[str]:
    """A followed background process and the end of its output."""
    style = draw.style
    mark = apply_style(style.note, style.faint) if ended else apply_style(style.working, style.accent)
    shown = truncate(to_one_line(title), max(1, draw.columns - 2), style.more)
    rows = [f"{mark} {apply_style(shown, '' if ended else style.strong)}"]
    return rows + [_format_output(_apply_carriage_return(line), draw.columns, style) for line in lines]


def _render_details(record: CallRecord, draw: DrawContext) -> tuple[list[str], bool]:
    """The rows below the head, and whether some were left out."""
    if record.result.outcome != "ok":
        text = problem_of(record.result)
        if record.result.outcome == "cancelled":  # the output until the stop, or its end
            return _format_excerpt(text, draw, from_end=True, counted=False)
        lines = (wrap_text(_apply_carriage_return(line), max(1, draw.columns - 4)) for line in text.split("\n"))
        return _format_excerpt("\n".join(row for rows in lines for row in rows), draw, from_end=False)
    if record.diff is not None:
        return record.diff.rows(draw)
    if record.call.name in OUTPUT_TOOLS and record.call.args.get("action") != "list":
        return _format_excerpt(output_of(record.result), draw, from_end=True)
    return [], False


def _format_finished_row(record: CallRecord, draw: DrawContext, *, shows_output: bool) -> tuple[str, bool]:
    mark, summary, sgr = _summarize(record, draw.style, shows_output=shows_output)
    summary = truncate(summary, max(10, draw.columns // 2), draw.style.more)
    head, cut = _format_head(record.call, draw.columns - text_width(summary) - 4, draw.style)
    return f"{mark} {head}{'  ' if summary else ''}{apply_style(summary, sgr)}", cut


def _summarize(record: CallRecord, style: TerminalStyle, *, shows_output: bool = False) -> tuple[str, str, str]:
    """The mark, the outcome with the duration, and the style of these."""
    result = record.result
    outcome = describe_outcome(record.call, result)
    counted = record.call.name in OUTPUT_TOOLS and outcome.endswith((" line", " lines"))
    shown = "" if counted and shows_output else to_one_line(outcome)
    if record.diff is not None and result.outcome == "ok" and not shown:
        shown = record.diff.summary
    summary = " · ".join(fact for fact in (shown, f"{record.seconds:.1f} s" if record.seconds >= 0.1 else "") if fact)
    if result.outcome == "ok":
        problem = record.call.name in OUTPUT_TOOLS and find_problem(result)
        if problem or (record.call.name == "delegate_task" and not _all_done(outcome)):
            return apply_style(style.failed, style.warn), summary, style.warn
        return apply_style(style.done, style.good), summary, style.faint
    return apply_style(style.refused if result.outcome == "denied" else style.failed, style.bad), summary, style.bad


def _all_done(outcome: str) -> bool:
    """False for `2 of 3 done`."""
    done, _, rest = outcome.partition(" of ")
    return not rest or done == rest.partition(" ")[0]


def _format_excerpt(text: str, draw: DrawContext, *, from_end: bool, counted: bool = True) -> tuple[list[str], bool]:
    """The start or the end of the text, and whether something was left out. `counted`: the text is complete."""
    columns, style = draw.columns, draw.style
    lines = [line for line in map(_apply_carriage_return, text.split("\n")) if line.strip()]
    total = count_lines(text)
    room = EXCERPT_ROWS + (total == EXCERPT_ROWS + 1)  # omitting a single line would save nothing
    shown = lines[-room:] if from_end else lines[:room]
    rows = [_format_output(line, columns, style) for line in shown]
    wide = any(text_width(line) > columns - 4 for line in shown)
    if (left := total - len(shown)) <= 0:
        return rows, wide
    number = f"{left:,} more" if counted else "earlier"
    more = _format_output(f"{style.more} {number} lines ({style.expand_key})", columns, style)
    return ([more, *rows] if from_end else [*rows, more]), True


def _format_head(call: ToolCall, columns: int, style: TerminalStyle) -> tuple[str, bool]:
    """The tool and its main argument, and whether it was cut."""
    label = describe_tool(call)
    verb, object = to_one_line(label.verb), to_one_line(next(iter(_command_lines(call)), label.object))
    room = columns - len(verb) - 1
    if not object or room < 4:
        return apply_style(truncate(verb, max(1, columns)), style.strong), bool(object)
    shown = truncate(object, room, style.more)
    return f"{apply_style(verb, style.strong)} {shown}", shown != object


def _format_other_lines(call: ToolCall, draw: DrawContext) -> tuple[list[str], bool]:
    """The lines of a command or code below its first one, such as a here-document, and whether some were left out."""
    style, lines = draw.style, _command_lines(call)[1:]
    shown = lines if len(lines) == EXCERPT_ROWS + 1 else lines[:EXCERPT_ROWS]
    rows = [f"    {truncate(line.expandtabs(4), max(1, draw.columns - 4), style.more)}" for line in shown]
    if left := len(lines) - len(shown):
        rows.append("    " + apply_style(f"{style.more} {left:,} more lines ({style.expand_key})", style.faint))
    return rows, bool(left)


def _command_lines(call: ToolCall) -> list[str]:
    """The lines of a command or of code; none for other calls."""
    return sanitize(describe_tool(call).object).strip().split("\n") if call.name in _LINES_TOOLS else []


def _format_output(line: str, columns: int, style: TerminalStyle) -> str:
    return "  " + apply_style(f"{style.bar} {truncate(line, max(1, columns - 4), style.more)}", style.faint)


def _format_clock(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02} s"


def _split(line: str, columns: int) -> list[str]:
    return [to_ansi(row, links=False) for row in split_row([(line, "", "")], max(1, columns))] or [""]


def _overwrite(line: str) -> str:
    """The line without text that was overwritten; a carriage return at its end stays."""
    shown = line.rstrip("\r").rpartition("\r")[2]
    return shown + "\r" if line.endswith("\r") else shown


def _apply_carriage_return(line: str) -> str:
    """The line as a terminal shows it: text after a carriage return replaces the text before it."""
    return sanitize(line.rstrip("\r").rpartition("\r")[2]).expandtabs(4)
