"""The status line below the input: activity, model, context use and cost."""

import re
import time
from collections.abc import Callable

from alipes.cli.render import format_cost, to_one_line, truncate
from alipes.cli.terminal.styles import TerminalStyle, apply_style
from alipes.cli.width import display_width
from alipes.kernel import turns

_RETRY = re.compile(r"Retrying in (\d+(?:\.\d+)?) s\b")


class StatusLine:
    """Tracks the events of a session for the status line."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.model = ""
        self.window: int | None = None
        self.cost: float | None = 0.0
        """Cost of the conversation; None after a call without a known price."""
        self.mode = ""
        """The permission mode; empty for the usual one."""
        self.queued = 0
        self.activity = "starting"
        """What is happening; empty while idle."""
        self.hint = ""
        """Shown instead of everything else while it is set."""
        self._began: float | None = None
        self.context_tokens = 0
        """Input and output tokens of the last model call."""
        self._tools: dict[str, str] = {}
        self._retry_at = 0.0

    @property
    def is_running(self) -> bool:
        return self._began is not None

    def handle_event(self, event: turns.Event) -> None:
        match event:
            case turns.TurnStarted():
                self._began, self.activity = self._clock(), "thinking"
                self._tools.clear()
            case turns.ThinkingDelta() | turns.Retracted():
                self.activity = "thinking"
            case turns.TextDelta():
                self.activity = "writing"
            case turns.ToolStarted(call):
                self._tools[call.id] = to_one_line(call.name, 40)
                self._name_tools()
            case turns.ToolFinished(call):
                self._tools.pop(call.id, None)
                self._name_tools()
            case turns.Said():
                self._count(event)
            case turns.ModeChanged(mode):
                self.mode = "" if mode == "ask" else mode
            case _:
                self._handle_wait(event)

    def reset_usage(self) -> None:
        self.cost, self.context_tokens = 0.0, 0

    def render(self, columns: int, style: TerminalStyle) -> str:
        """The line, shortened to what fits."""
        if self.hint:
            return "  " + apply_style(truncate(self.hint, max(1, columns - 2), style.more), style.warn)
        now = self._format_activity()
        price = format_cost(self.cost) if self.context_tokens and self.cost != 0.0 else ""
        mode = f"{self.mode} mode" if self.mode else ""
        rest = [fact for fact in (mode, self.model, self._format_context(), price) if fact]
        while rest and display_width(" · ".join([now, *rest] if now else rest)) > columns - 2:
            rest.pop()
        parts = [apply_style(truncate(now, max(1, columns - 2), style.more), style.accent)] if now else []
        return "  " + apply_style(" · ", style.faint).join([*parts, *(apply_style(fact, style.faint) for fact in rest)])

    def _handle_wait(self, event: turns.Event) -> None:
        match event:
            case turns.ApprovalAsked():
                self.activity = "waiting for approval"
            case turns.QuestionAsked():
                self.activity = "waiting for your answer"
            case turns.ApprovalAnswered() | turns.QuestionAnswered():
                self._name_tools()
                if not self.is_running:  # the question was from a background task
                    self.activity = ""
            case turns.Notice(text):
                if found := _RETRY.search(text):
                    self.activity, self._retry_at = "", self._clock() + float(found[1])
            case turns.TurnEnded(ending=ending) if ending != "steered":
                self._began, self.activity, self._retry_at = None, "", 0.0
                self._tools.clear()

    def _name_tools(self) -> None:
        names = list(self._tools.values())
        self.activity = "thinking"
        if names:
            self.activity = f"running {names[0]}" if len(names) == 1 else f"running {len(names)} tools"

    def _count(self, said: turns.Said) -> None:
        if said.message.role == "assistant":
            self.activity = "thinking"
        self.model = said.model or self.model
        if said.usage is not None:
            self.context_tokens = said.usage.input + said.usage.output
            unknown = self.cost is None or said.usage.cost is None
            self.cost = None if unknown else (self.cost or 0.0) + (said.usage.cost or 0.0)

    def _format_activity(self) -> str:
        parts = [self.activity] if self.activity else []
        if self.is_running:
            left = self._retry_at - self._clock()
            if not self.activity:
                parts = [f"retrying in {max(1, round(left))} s" if left > 0 else "retrying"]
            seconds = int(self._clock() - (self._began or 0.0))
            parts.append(f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60:02} s")
        if self.queued:
            parts.append(f"{self.queued} queued")
        return " · ".join(parts)

    def _format_context(self) -> str:
        if not self.context_tokens:
            return ""
        if not self.window:
            return f"{_format_tokens(self.context_tokens)} tokens"
        return f"{min(999, round(100 * self.context_tokens / self.window))} % of {_format_tokens(self.window)}"


def _format_tokens(tokens: int) -> str:
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 9_950 else f"{tokens / 1000:.0f}k"
