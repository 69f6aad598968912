"""The status line below the input: activity, keys, model, profile, mode, context use, cost, folder and branch."""

import re
import time
from collections.abc import Callable
from pathlib import Path

from alipes.config.paths import DEFAULT_PROFILE
from alipes.console.render import format_activity, format_cost, to_one_line, truncate
from alipes.console.styles import TerminalStyle, apply_style
from alipes.console.width import display_width
from alipes.kernel import turns
from alipes.kernel.formatting import format_clock

GAUGE_CELLS = 6
GAUGE_WARN, GAUGE_BAD = 0.75, 0.9
"""Shares of the context window from which the gauge changes its colour."""
MAX_FOLDER = 32
_RETRY = re.compile(r"Retrying(?: in (\d+) s)? \(")


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
        self.profile = ""
        """The profile as it is shown; empty for the default one."""
        self.queued = 0
        self.held = 0
        """Messages that were kept by a stop."""
        self.jobs = 0
        """Background processes of the conversation."""
        self.stop_key = "esc"
        self.folder = ""
        """The folder as it is shown, such as `~/alipes`."""
        self.branch = ""
        self.extra = ""
        """A line from the user's own status command."""
        self._workdir: Path | None = None
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
                self.refresh_branch()
            case turns.ThinkingDelta() | turns.Retracted():
                self.activity = "thinking"
            case turns.TextDelta():
                self.activity = "writing"
            case turns.ToolStarted(call):
                self._tools[call.id] = format_activity(call)
                self._name_tools()
            case turns.ToolFinished(call):
                self._tools.pop(call.id, None)
                self._name_tools()
                self.refresh_branch()
            case turns.Said():
                self._count(event)
            case turns.ModeChanged(mode):
                self.mode = "" if mode == "ask" else mode
            case _:
                self._handle_wait(event)

    def command_started(self, activity: str) -> None:
        """A command of the person runs; it can be stopped like a turn."""
        self.activity = activity
        self._began = self._began or self._clock()

    def command_ended(self) -> None:
        self._began, self.activity = None, ""
        self.refresh_branch()

    def reset_usage(self) -> None:
        self.cost, self.context_tokens = 0.0, 0

    def set_folder(self, folder: Path) -> None:
        """Show this folder and its Git branch."""
        self._workdir, self.folder = folder, shorten_home(folder)
        self.refresh_branch()

    def set_profile(self, name: str) -> None:
        self.profile = "" if name == DEFAULT_PROFILE else f"profile {name}"

    def refresh_branch(self) -> None:
        if self._workdir is not None:
            self.branch = read_branch(self._workdir)

    def render(self, columns: int, style: TerminalStyle) -> str:
        """The line; the facts that matter least are left out if it does not fit."""
        room = max(1, columns - 2)
        if self.hint:
            return "  " + apply_style(truncate(self.hint, room, style.more), style.warn)
        running = [fact for fact in (self._format_activity(), self._format_queue(), self._format_stop_key()) if fact]
        facts = [(fact, sgr) for fact, sgr in self._facts(style) if fact]
        while facts and display_width(" · ".join([*running, *(fact for fact, _ in facts)])) > room:
            facts.pop()
        while len(running) > 1 and display_width(" · ".join(running)) > room:
            running.pop()
        shown = [
            (truncate(fact, room, style.more), style.accent if not n else style.faint) for n, fact in enumerate(running)
        ]
        return "  " + apply_style(" · ", style.faint).join(apply_style(fact, sgr) for fact, sgr in [*shown, *facts])

    def _facts(self, style: TerminalStyle) -> list[tuple[str, str]]:
        """The facts and their styles, most important first."""
        mode = f"{self.mode} mode" if self.mode not in ("", "ask") else ""
        jobs = f"{self.jobs} job{'' if self.jobs == 1 else 's'}" if self.jobs else ""
        cost = format_cost(self.cost) if self.context_tokens and self.cost else ""
        folder = _shorten_path(self.folder, style.more)
        place = f"{folder} ({self.branch})" if self.branch else folder
        return [
            (self.model, style.faint),
            (self.profile, style.faint),
            (mode, style.warn),
            (jobs, style.faint),
            self._format_context(style),
            (cost, style.faint),
            (place, style.faint),
            (self.extra, style.faint),
        ]

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
                    self.activity, self._retry_at = "", self._clock() + float(found[1] or 0)
            case turns.TurnParked(until=until):
                self.activity, self._retry_at = f"paused until {format_clock(until)}", 0.0
                self._tools.clear()
            case turns.TurnEnded(ending=ending) if ending != "steered":
                self._began, self.activity, self._retry_at = None, "", 0.0
                self._tools.clear()
                self.refresh_branch()

    def _name_tools(self) -> None:
        names = list(self._tools.values())
        self.activity = "thinking"
        if names:
            self.activity = names[0] if len(names) == 1 else f"running {len(names)} tools"

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
        return " · ".join(parts)

    def _format_queue(self) -> str:
        if self.held:
            return f"{self.held} kept: enter to send, esc to discard"
        return f"{self.queued} queued" if self.queued else ""

    def _format_stop_key(self) -> str:
        asks = self.activity.startswith("waiting for")  # the question names its own keys
        return f"{self.stop_key} to stop" if self.is_running and not asks and self.stop_key else ""

    def _format_context(self, style: TerminalStyle) -> tuple[str, str]:
        """The context use with a gauge, and its style; only the count if the window is not known."""
        if not self.context_tokens:
            return "", ""
        if not self.window:
            return f"{_format_tokens(self.context_tokens)} tokens in context", style.faint
        share = self.context_tokens / self.window
        used, free = style.gauge
        full = min(GAUGE_CELLS, max(1, round(share * GAUGE_CELLS)))
        sgr = style.bad if share >= GAUGE_BAD else style.warn if share >= GAUGE_WARN else style.faint
        percent = min(999, round(100 * share))
        return f"{used * full}{free * (GAUGE_CELLS - full)} {percent} % of {_format_tokens(self.window)}", sgr


def shorten_home(folder: Path) -> str:
    """The path with `~` for the home of the user."""
    home = Path.home()
    return f"~/{folder.relative_to(home)}".rstrip("/.") if folder.is_relative_to(home) else str(folder)


def _shorten_path(path: str, mark: str) -> str:
    """A long path without its first parts."""
    parts = path.split("/")
    while len(parts) > 2 and display_width("/".join(parts)) > MAX_FOLDER:
        parts = [mark, *parts[2:]]
    return truncate(to_one_line("/".join(parts)), MAX_FOLDER, mark)


def read_branch(folder: Path) -> str:
    """The checked-out Git branch, or the start of the commit; empty outside of a repository."""
    for parent in (folder, *folder.parents):
        mark = parent / ".git"
        try:
            if mark.is_file():  # a worktree or submodule: the file names the directory
                mark = parent / mark.read_text(errors="replace").removeprefix("gitdir:").strip()
            head = (mark / "HEAD").read_text(errors="replace").strip()
        except (OSError, ValueError):
            continue
        name = head.removeprefix("ref: refs/heads/")
        return to_one_line(name if name != head else head[:7], 40)
    return ""


def _format_tokens(tokens: int) -> str:
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 9_950 else f"{tokens / 1000:.0f}k"
