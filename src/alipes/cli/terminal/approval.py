"""The question before a dangerous call: how it is put, and which key answers it. Others act on that."""

import time
from collections.abc import Callable

from alipes.cli.render import call_line, harmless
from alipes.cli.terminal.styles import Look, styled, wrapped
from alipes.kernel.turns import ApprovalAsked, Asked, Consent

PAUSE = 0.5
"""Seconds without a key before one counts: whoever is typing when the question appears answers nothing."""
LONGEST = 12
"""Rows of a command that are shown; of a longer one the beginning and the end."""
KEYS: dict[str, Consent] = {"o": "once", "y": "once", "s": "session", "a": "always", "n": "no"}
_CHOICES = (("o", "once"), ("s", "in this conversation"), ("a", "always exactly this"), ("n", "no"))


class Dialogue:
    """The questions that are open, the oldest first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: list[ApprovalAsked] = []
        self._askers: dict[str, str] = {}
        self._quiet_since = 0.0

    @property
    def open(self) -> ApprovalAsked | None:
        return self._asked[0] if self._asked else None

    def ask(self, asked: ApprovalAsked, turn: str = "") -> None:
        if all(one.ask != asked.ask for one in self._asked):
            self._asked.append(asked)
            self._askers[asked.ask] = turn
            self._quiet_since = self._clock()

    def close(self, ask: str) -> None:
        """It was answered, here or elsewhere."""
        if self.open is not None and self.open.ask == ask:
            self._quiet_since = self._clock()  # what was meant for one question does not answer the next
        self._asked = [one for one in self._asked if one.ask != ask]
        self._askers.pop(ask, None)

    def clear(self, turn: str = "") -> None:
        """The turn is over, and asks nothing any more; what works in the background may still."""
        for ask in [each for each, asker in self._askers.items() if asker == turn]:
            self.close(ask)

    def press(self) -> None:
        """A key was pressed, whatever it did."""
        self._quiet_since = self._clock()

    @property
    def answerable(self) -> bool:
        """Whether a key pressed now is an answer."""
        return self.open is not None and self._clock() - self._quiet_since >= PAUSE

    def rows(self, columns: int, look: Look, *, typing: bool) -> list[str]:
        """The question. `typing`: letters go to the input, so that has to be emptied before."""
        asked = self.open
        if asked is None:
            return []
        rows = [
            f"{styled('?', look.warn)} {styled(asked.call.name, look.strong)} wants to do this:",
            *_command(asked, columns, look),
            *wrapped(f"It {harmless(asked.reason).rstrip('.')}.", columns, "", "  ", "  "),
        ]
        line = "".join(f"  {styled(key, look.accent)} {meaning}" for key, meaning in _CHOICES)
        if typing:
            line = f"  {styled('Esc', look.accent)} puts away what you are typing; then{line}"
        if len(self._asked) > 1:
            line += styled(f"  ({len(self._asked) - 1} more to answer)", look.faint)
        return [*rows, line]


def question(asked: Asked, columns: int, look: Look) -> list[str]:
    """A question of the model's, and how it is answered."""
    mark = styled("?", look.warn) + " "
    rows = wrapped(harmless(asked.question), columns, look.strong, mark, "  ")
    for number, choice in enumerate(asked.choices, 1):
        rows += wrapped(f"{number}. {harmless(choice)}", columns, "", "    ", "       ")
    how = "a number, or your own words" if asked.choices else "your answer"
    return rows + wrapped(f"Type {how}.", columns, look.faint, "  ", "  ")


def _command(asked: ApprovalAsked, columns: int, look: Look) -> list[str]:
    """The whole of it, line by line, so that nothing is hidden at the end of a long one."""
    command = asked.call.args.get("command")
    text = command if isinstance(command, str) else call_line(asked.call, 0).partition(" ")[2]
    rows: list[str] = []
    for line in harmless(text).expandtabs(4).split("\n"):
        rows += wrapped(line, columns, look.strong, "    ", "    ")
    if len(rows) > LONGEST:
        left = len(rows) - LONGEST + 1
        middle = "    " + styled(f"{look.more} {left} more lines {look.more}", look.warn)
        rows = [*rows[: LONGEST // 2], middle, *rows[len(rows) - LONGEST // 2 + 1 :]]
    return rows
