"""The line below the input: what is being done now, by whom, how full and how dear it is. Pure."""

import re
import time
from collections.abc import Callable

from alipes.cli.render import money, one_line
from alipes.cli.terminal.styles import Look, shortened, styled
from alipes.cli.width import width
from alipes.kernel.turns import (
    ApprovalAnswered,
    ApprovalAsked,
    Asked,
    Event,
    Heard,
    Noted,
    Retracted,
    Said,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)

_PAUSE = re.compile(r"asking again in (\d+(?:\.\d+)?) s\b")


class Status:
    """Folds the events of a session into what is worth a glance."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.model = ""
        self.window: int | None = None
        self.cost: float | None = 0.0
        """Of the conversation; None once a call was made whose price is unknown."""
        self.waiting = 0
        """Messages that are accepted and have not begun."""
        self.doing = "starting"
        """In words; empty when there is nothing."""
        self.hint = ""
        """Said in place of everything else, while it is set."""
        self._began: float | None = None
        self.used = 0
        """Tokens of the last model call, in and out."""
        self._tools: dict[str, str] = {}
        self._pause = 0.0

    @property
    def busy(self) -> bool:
        """A turn lives, so the time runs."""
        return self._began is not None

    def tell(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._began, self.doing = self._clock(), "thinking"
                self._tools.clear()
            case ThinkingDelta() | Retracted():
                self.doing = "thinking"
            case TextDelta():
                self.doing = "answering"
            case ToolStarted(call):
                self._tools[call.id] = one_line(call.name, 40)
                self._name_tools()
            case ToolFinished(call):
                self._tools.pop(call.id, None)
                self._name_tools()
            case Said():
                self._count(event)
            case _:
                self._tell_of_waiting(event)

    def forget(self) -> None:
        """Another conversation begins."""
        self.cost, self.used = 0.0, 0

    def row(self, columns: int, look: Look) -> str:
        """The line, of which less is said where there is less room."""
        if self.hint:
            return "  " + styled(shortened(self.hint, max(1, columns - 2), look.more), look.warn)
        now = self._now()
        rest = [fact for fact in (self.model, self._context(), self._price()) if fact]
        while rest and width(" · ".join([now, *rest] if now else rest)) > columns - 2:
            rest.pop()
        parts = [styled(shortened(now, max(1, columns - 2), look.more), look.accent)] if now else []
        return "  " + styled(" · ", look.faint).join([*parts, *(styled(fact, look.faint) for fact in rest)])

    def _tell_of_waiting(self, event: Event) -> None:
        match event:
            case ApprovalAsked():
                self.doing = "waiting for your word"
            case Asked():
                self.doing = "waiting for your answer"
            case ApprovalAnswered() | Heard():
                self._name_tools()
                if not self.busy:  # something in the background had asked
                    self.doing = ""
            case Noted(text):
                if found := _PAUSE.search(text):
                    self.doing, self._pause = "", self._clock() + float(found[1])
            case TurnEnded(ending=ending) if ending != "steered":
                self._began, self.doing, self._pause = None, "", 0.0
                self._tools.clear()

    def _name_tools(self) -> None:
        names = list(self._tools.values())
        self.doing = "thinking"
        if names:
            self.doing = f"running {names[0]}" if len(names) == 1 else f"running {len(names)} tools"

    def _count(self, said: Said) -> None:
        if said.message.role == "assistant":
            self.doing = "thinking"
        self.model = said.model or self.model
        if said.usage is not None:
            self.used = said.usage.input + said.usage.output
            unknown = self.cost is None or said.usage.cost is None
            self.cost = None if unknown else (self.cost or 0.0) + (said.usage.cost or 0.0)

    def _now(self) -> str:
        parts = [self.doing] if self.doing else []
        if self.busy:
            left = self._pause - self._clock()
            if not self.doing:
                parts = [f"retrying in {max(1, round(left))} s" if left > 0 else "asking again"]
            parts.append(_span(self._clock() - (self._began or 0.0)))
        if self.waiting:
            parts.append(f"{self.waiting} waiting")
        return " · ".join(parts)

    def _context(self) -> str:
        if not self.used:
            return ""
        if not self.window:
            return f"{_count(self.used)} tokens"
        return f"{min(999, round(100 * self.used / self.window))} % of {_count(self.window)}"

    def _price(self) -> str:
        return money(self.cost) if self.used and self.cost != 0.0 else ""


def _span(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"


def _count(tokens: int) -> str:
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 9_950 else f"{tokens / 1000:.0f}k"
