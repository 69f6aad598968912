"""Paragraphs, and lines that are shown as they stand. What a line begins is decided elsewhere."""

from copy import copy

from alipes.cli.markdown.flow import Flow, Row
from alipes.cli.markdown.inline import Inline
from alipes.cli.theme import Theme


class Paragraph:
    """Text that flows. A line break in the source is one on the screen, as people who chat mean it."""

    whole_lines = patient = over = False

    def __init__(self, theme: Theme, width: int, *, held: bool = False) -> None:
        self._inline, self._flow = Inline(theme), Flow(width)
        self._held: str | None = "" if held else None
        """A line that may be the head of a table is kept back until the next one tells."""
        self._draft = False
        self.source = ""
        self._alone = True

    def accepts(self, text: str) -> bool:
        return False

    def add(self, text: str) -> list[Row]:
        """More of the line that is open."""
        if self._alone:
            self.source += text
        if self._held is not None:
            self._held += text
            return []
        self._pour(text)
        return self._taken()

    def line(self, text: str) -> list[Row]:
        """A new line; what was the only line so far no longer is."""
        self._alone, self.source = False, ""
        held, self._held = self._held, None
        self._pour(f"{held or ''}\n{text}")
        return self._flow.take()

    def close(self) -> list[Row]:
        if self._held:
            self._pour(self._held)
        for span in self._inline.close(draft=self._draft):
            self._flow.add(*span)
        self._flow.close()
        return self._flow.take()

    def fork(self) -> "Paragraph":
        other = copy(self)
        other._inline, other._flow, other._draft = self._inline.fork(), self._flow.fork(), True
        return other

    def resize(self, width: int) -> list[Row]:
        self._flow.resize(width)
        return self._taken()

    def _taken(self) -> list[Row]:
        rows = self._flow.take()
        if rows:
            self._alone, self.source = False, ""
        return rows

    def _pour(self, text: str) -> None:
        for span in self._inline.feed(text):
            self._flow.add(*span)


class Indented:
    """Code by indentation. Blank lines within it are shown, those behind it are not."""

    whole_lines, patient, over, source = True, False, False, ""

    def __init__(self, theme: Theme) -> None:
        self._style = theme.code
        self._blanks = 0

    def accepts(self, text: str) -> bool:
        return not text.strip() or text.startswith("    ")

    def line(self, text: str) -> list[Row]:
        if not text.strip():
            self._blanks += 1
            return []
        rows: list[Row] = [[] for _ in range(self._blanks)]
        self._blanks = 0
        return [*rows, [(text[:4].lstrip(" ") + text[4:], self._style, "")]]

    def close(self) -> list[Row]:
        return []

    @property
    def trailing(self) -> bool:
        """Blank lines came behind it, which are now between it and what follows."""
        return self._blanks > 0

    def fork(self) -> "Indented":
        return copy(self)

    def resize(self, width: int) -> list[Row]:
        return []


class Html:
    """Raw HTML, line by line as it was written: a terminal has no use for it, a reader may have."""

    whole_lines, patient, source = True, False, ""

    def __init__(self, theme: Theme, first: str) -> None:
        self._style = theme.faint
        start = first.lstrip(" ").lower()
        ends = {"<!--": "-->", "<script": "</script>", "<style": "</style>", "<pre": "</pre>"}
        self._end = next((end for begin, end in ends.items() if start.startswith(begin)), "")
        self.over = False

    def accepts(self, text: str) -> bool:
        return bool(self._end or text.strip())

    def line(self, text: str) -> list[Row]:
        self.over = bool(self._end) and self._end in text.lower()
        return [[(text, self._style, "")]]

    def close(self) -> list[Row]:
        return []

    def fork(self) -> "Html":
        return copy(self)

    def resize(self, width: int) -> list[Row]:
        return []
