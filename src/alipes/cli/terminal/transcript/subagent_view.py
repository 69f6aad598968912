"""The subagents of a running delegate_task call: one row each, with its current step and a clock."""

import re

from msgspec import Struct

from alipes.console.render import text_width, to_one_line, truncate
from alipes.console.styles import TerminalStyle, apply_style
from alipes.kernel.messages import ToolCall
from alipes.kernel.tool_labels import task_goals

MAX_ROWS = 8
_PROGRESS = re.compile(r"^(\d+)\. “[^\n]{0,40}?”: (.*)$", re.MULTILINE)
_ENDED = ("done", "stopped before", "failed", "gave up", "reached the step limit")


class SubagentRow(Struct):
    goal: str
    step: str = "queued"
    started: float = 0.0
    ended: float = 0.0


class SubagentView:
    """Reads the progress lines `1. “goal”: step` of the call."""

    def __init__(self, call: ToolCall) -> None:
        self._rows = {number: SubagentRow(to_one_line(goal)) for number, goal in enumerate(task_goals(call.args), 1)}

    def progress(self, text: str, now: float) -> None:
        for found in _PROGRESS.finditer(text):
            row = self._rows.get(int(found[1]))
            if row is None:
                continue
            row.step = found[2]
            row.started = row.started or now
            if found[2].startswith(_ENDED):
                row.ended = now

    def rows(self, columns: int, style: TerminalStyle, now: float) -> list[str]:
        """A row per subagent, in their order; if not all have room, the running ones first."""
        shown = list(self._rows.items())
        if len(shown) > MAX_ROWS:
            shown.sort(key=lambda each: (bool(each[1].ended), each[0]))
        rows = [_format_row(number, row, columns, style, now) for number, row in shown[:MAX_ROWS]]
        if (left := len(self._rows) - MAX_ROWS) > 0:
            rows.append("  " + apply_style(f"{style.more} {left} more", style.faint))
        return rows


def _format_row(number: int, row: SubagentRow, columns: int, style: TerminalStyle, now: float) -> str:
    seconds = int((row.ended or now) - row.started) if row.started else 0
    clock = f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02} s"
    took = f" {style.note} {clock}" if row.started else ""
    mark = apply_style(style.working, style.accent)
    if row.ended:
        done = row.step.startswith("done")
        mark = apply_style(style.done if done else style.failed, style.good if done else style.bad)
    elif not row.started:
        mark = apply_style(style.note, style.faint)
    room = max(8, columns - 5 - text_width(took))
    goal = truncate(row.goal or f"task {number}", max(4, room // 2), style.more)
    step = truncate(to_one_line(row.step), max(4, room - text_width(goal) - 2), style.more)
    return f"  {mark} {goal}  {apply_style(step + took, style.faint)}"
