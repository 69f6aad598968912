"""The choices of an open question of the model: the arrow keys choose, Enter answers."""

from alipes.console.render import sanitize
from alipes.console.styles import TerminalStyle, apply_style, wrap_text
from alipes.kernel.turns import QuestionAsked

MAX_CHOICE_ROWS = 10
_HOW = "Up and Down choose, Enter answers. Or type a number or your own text."


class ChoicePrompt:
    """The open question with choices, if there is one."""

    def __init__(self) -> None:
        self._asked: QuestionAsked | None = None
        self._chosen = 0

    @property
    def is_open(self) -> bool:
        return self._asked is not None

    def ask(self, asked: QuestionAsked) -> None:
        """Open the question; one without choices is answered by typing only."""
        if asked.choices and (self._asked is None or self._asked.ask != asked.ask):
            self._asked, self._chosen = asked, 0

    def close(self) -> None:
        self._asked = None

    def move(self, step: int) -> None:
        """Choose the next (1) or previous (-1) row; the ends are connected."""
        if self._asked is not None:
            self._chosen = (self._chosen + step) % len(self._asked.choices)

    def answer(self) -> tuple[str, str] | None:
        """The chosen answer as typed text, and how it is shown."""
        if self._asked is None:
            return None
        return str(self._chosen + 1), self._asked.choices[self._chosen]

    def rows(self, columns: int, style: TerminalStyle, *, typing: bool) -> list[str]:
        """The question and the choices around the chosen one. `typing`: the input is the answer."""
        if self._asked is None:
            return []
        rows = wrap_text(
            sanitize(self._asked.question), columns, style.strong, apply_style("?", style.warn) + " ", "  "
        )
        count = len(self._asked.choices)
        first = max(0, min(self._chosen - MAX_CHOICE_ROWS // 2, count - MAX_CHOICE_ROWS))
        for number, choice in enumerate(self._asked.choices[first : first + MAX_CHOICE_ROWS], first):
            is_chosen = number == self._chosen and not typing
            mark = apply_style(style.chosen, style.accent) if is_chosen else " "
            text = f"{number + 1}. {sanitize(choice)}"
            rows += wrap_text(text, columns, style.accent if is_chosen else "", f"  {mark} ", "       ")
        if count > MAX_CHOICE_ROWS:
            rows.append("    " + apply_style(f"{style.more} {count - MAX_CHOICE_ROWS} more", style.faint))
        return [*rows, *wrap_text(_HOW, columns, style.faint, "  ", "  ")]
