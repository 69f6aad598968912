"""The approval prompt and the questions of the model."""

import time
from collections.abc import Callable

from alipes.cli.render import sanitize, to_one_line
from alipes.cli.terminal.styles import TerminalStyle, apply_style, wrap_text
from alipes.kernel.approvals import NETWORK, describe_call, reveal
from alipes.kernel.turns import ApprovalAsked, ApprovalChoice, QuestionAsked

KEY_PAUSE_S = 0.5
"""A key counts as an answer only after this pause, so that typing does not answer by accident."""
MAX_COMMAND_ROWS = 12
"""Maximum rows of a long call in the prompt: its start and its end. The transcript shows all of it."""
MAX_SHORT_CHARS = 720
"""A call with more characters, or more lines than the maximum, is long."""
KEYS: dict[str, ApprovalChoice] = {"o": "once", "y": "once", "s": "session", "a": "always", "n": "no"}
_CHOICES = (("y", "yes once"), ("s", "this session"), ("a", "always"), ("n", "no"))


class ApprovalPrompt:
    """The open approval questions, oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._questions: list[ApprovalAsked] = []
        self._turns: dict[str, str] = {}
        self._last_key = 0.0

    @property
    def current(self) -> ApprovalAsked | None:
        return self._questions[0] if self._questions else None

    def ask(self, asked: ApprovalAsked, turn: str = "") -> None:
        if all(one.ask != asked.ask for one in self._questions):
            self._questions.append(asked)
            self._turns[asked.ask] = turn
            self._last_key = self._clock()

    def close(self, ask: str) -> None:
        """The question was answered, here or elsewhere."""
        if self.current is not None and self.current.ask == ask:
            self._last_key = self._clock()  # a key for this question must not answer the next
        self._questions = [one for one in self._questions if one.ask != ask]
        self._turns.pop(ask, None)

    def clear(self, turn: str = "") -> None:
        """The turn ended: remove its questions, but not those of background tasks."""
        for ask in [each for each, asker in self._turns.items() if asker == turn]:
            self.close(ask)

    def key_pressed(self) -> None:
        self._last_key = self._clock()

    @property
    def accepts_keys(self) -> bool:
        """True if a key pressed now is an answer."""
        return self.current is not None and self._clock() - self._last_key >= KEY_PAUSE_S

    def rows(self, columns: int, style: TerminalStyle, *, typing: bool) -> list[str]:
        """The rows of the question. `typing`: the input is not empty and receives the keys."""
        asked = self.current
        if asked is None:
            return []
        title = describe_call(asked.call).title
        rows = [
            *wrap_text(title, columns, style.strong, f"{apply_style('?', style.warn)} ", "  "),
            *_shorten_rows(asked, format_call_rows(asked, columns, style), style),
            *wrap_text(f"Why: {reveal(asked.reason).rstrip('.')}", columns, "", "  ", "  "),
        ]
        line = "".join(f"  {apply_style(f'[{key}]', style.accent)} {meaning}" for key, meaning in _CHOICES)
        if typing:
            line = "  Press Esc to clear your text first, then" + line
        if len(self._questions) > 1:
            line += apply_style(f"  ({len(self._questions) - 1} more)", style.faint)
        return [*rows, line]


def format_question(asked: QuestionAsked, columns: int, style: TerminalStyle) -> list[str]:
    """A question of the model and how to answer it."""
    mark = apply_style("?", style.warn) + " "
    rows = wrap_text(sanitize(asked.question), columns, style.strong, mark, "  ")
    for number, choice in enumerate(asked.choices, 1):
        rows += wrap_text(f"{number}. {sanitize(choice)}", columns, "", "    ", "       ")
    how = "a number, or your own text" if asked.choices else "your answer"
    return rows + wrap_text(f"Type {how}.", columns, style.faint, "  ", "  ")


def is_long(asked: ApprovalAsked) -> bool:
    """True if the prompt may not have room for the call, so that the transcript has to show it."""
    text = describe_call(asked.call, asked.workdir).text
    return text.count("\n") >= MAX_COMMAND_ROWS or len(text) > MAX_SHORT_CHARS


def format_call_rows(asked: ApprovalAsked, columns: int, style: TerminalStyle) -> list[str]:
    """The whole call, wrapped, so that nothing is hidden at the end of a long line."""
    shown = describe_call(asked.call, asked.workdir)
    rows: list[str] = []
    for line in shown.body.expandtabs(4).split("\n") if shown.body else ():
        rows += wrap_text(line, columns, style.strong, "    ", "    ")
    for detail in shown.details:
        for line in detail.expandtabs(4).split("\n"):
            rows += wrap_text(line, columns, style.faint, "    ", "    ")
    return rows


def format_allowed(asked: ApprovalAsked) -> str:
    """What a lasting answer allows, on one line."""
    if asked.call.name == NETWORK:
        return asked.rule
    return to_one_line(describe_call(asked.call).body) or asked.call.name


def _shorten_rows(asked: ApprovalAsked, rows: list[str], style: TerminalStyle) -> list[str]:
    if len(rows) <= MAX_COMMAND_ROWS or not is_long(asked):
        return rows
    left = len(rows) - MAX_COMMAND_ROWS + 1
    middle = "    " + apply_style(f"{style.more} {left} more lines, all shown above {style.more}", style.warn)
    return [*rows[: MAX_COMMAND_ROWS // 2], middle, *rows[len(rows) - MAX_COMMAND_ROWS // 2 + 1 :]]
