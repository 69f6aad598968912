"""What stands on the screen below the scrollback: tail, question, waiting messages, input, menu, status."""

from collections.abc import Callable

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document

from alipes.cli.render import one_line
from alipes.cli.terminal.approval import Dialogue
from alipes.cli.terminal.completion import menu
from alipes.cli.terminal.input import Box, draw
from alipes.cli.terminal.input import Look as BoxLook
from alipes.cli.terminal.look import Look, clipped, shortened, styled
from alipes.cli.terminal.paste import Pastes
from alipes.cli.terminal.status import Status
from alipes.cli.terminal.wire import View

WAITING = 3
"""Messages that are shown of those that wait."""


class Bottom:
    """Composes the rows from its parts; each part is changed by whoever knows it."""

    def __init__(self, buffer: Buffer, pastes: Pastes, look: Look) -> None:
        self._buffer, self._pastes = buffer, pastes
        self.look = look
        self.status = Status()
        self.dialogue = Dialogue()
        self.waiting: dict[str, str] = {}
        """By turn, the messages that were accepted and have not begun, as they are shown."""
        self.tail: Callable[[], list[str]] = list
        """What is being said and done right now."""
        self.resized: Callable[[int], None] = lambda _columns: None
        self.search: Callable[[], tuple[str, Document] | None] = lambda: None
        """While someone looks for an earlier input: the words looked for, and what was found."""
        self._final: list[str] = []
        self._closed = True
        """The last final row is blank, or there is none."""

    def append(self, rows: list[str]) -> None:
        """Rows for the scrollback."""
        self._final += rows

    def resize(self, columns: int) -> None:
        self.resized(columns)

    def view(self, columns: int, lines: int) -> View:
        final, self._final = self._final, []
        if final:
            self._closed = not final[-1]
        above = self._above(columns)
        box = self._input(columns, max(1, min(12, lines // 2 - 1)))
        below = menu(self._buffer.complete_state, columns, self.look)
        below = below[: max(0, lines - len(box.rows) - 2)]
        if lines > len(box.rows) + len(below):
            below.append(self.status.row(columns, self.look))
        room = max(0, lines - 1 - len(box.rows) - len(below))
        tail = self.tail()
        top = tail + ([""] if (tail or not self._closed) and room else []) + above
        if len(top) > room:
            top = top[len(top) - room :]
        rows = [clipped(row, columns) for row in (*top, *box.rows, *below)]
        return View(final, rows, (len(top) + box.cursor[0], min(box.cursor[1], columns - 1)))

    def _above(self, columns: int) -> list[str]:
        """What stands between the tail and the input."""
        rows = self.dialogue.rows(columns, self.look, typing=bool(self._buffer.text))
        # When nothing goes on a message begins at once: to show it as waiting would only flicker.
        waiting = list(self.waiting.values()) if self.status.doing else []
        shown = waiting[:WAITING]
        for text in shown:
            line = shortened(one_line(text), max(1, columns - 11), self.look.more)
            rows.append(styled(f"{self.look.note} waits: {line}", self.look.faint))
        if (left := len(waiting) - len(shown)) > 0:
            rows.append(styled(f"{self.look.note} and {left} more", self.look.faint))
        return [*rows, ""] if self.dialogue.open else rows

    def _input(self, columns: int, lines: int) -> Box:
        prompt = styled(self.look.prompt, self.look.accent) + " "
        text, cursor = self._buffer.text, self._buffer.cursor_position
        found = self.search()
        if found is not None:
            words, document = found
            text, cursor = document.text, document.cursor_position
            prompt = styled("?", self.look.warn) + " "
        box = draw(text, cursor, columns, lines, BoxLook(prompt, self._pastes.label, self.look.accent))
        if found is None:
            return box
        sought = f"  {styled('earlier input with:', self.look.faint)} {words}"
        return Box([*box.rows, sought], (len(box.rows), 22 + len(words)))
