"""What stands left of rows and between blocks: bars, markers, blank lines. It reads nothing they hold."""

from alipes.cli.markdown.flow import Row, Span, trimmed
from alipes.cli.markdown.lines import TASK, Container, Item, Quote
from alipes.cli.theme import Theme
from alipes.cli.width import width

NARROWEST = 10


class Margin:
    """The containers that are open, from the outside in, on a screen of `columns`."""

    def __init__(self, theme: Theme, columns: int) -> None:
        self._theme = theme
        self.columns = max(NARROWEST, columns)
        self.stack: list[Container] = []
        self.gap = False
        """A blank line belongs before the next row."""
        self._begun = False

    @property
    def room(self) -> int:
        """The columns left to what the containers hold."""
        return max(NARROWEST, self.columns - sum(width(self._lead(holder)[0]) for holder in self._shown()))

    @property
    def fresh(self) -> bool:
        """The next row is the first in some container, so it stands beside a marker."""
        return any(container.fresh for container in self.stack)

    def enter(self, container: Container) -> None:
        if isinstance(container, Item):
            bullets = self._theme.glyphs.bullets
            depth = sum(isinstance(outer, Item) and not outer.number for outer in self.stack)
            container.marker = f"{container.number or bullets[depth % len(bullets)]} "
            container.style = self._theme.marker
        self.stack.append(container)

    def leave(self, remaining: int) -> list[Row]:
        """Close containers from the inside; an item in which nothing was said still shows its marker."""
        rows: list[Row] = []
        while len(self.stack) > remaining:
            innermost = self.stack[-1]
            if isinstance(innermost, Item) and innermost.fresh:
                rows += self.framed([[]])
            self.stack.pop()
        return rows

    def tick(self, text: str) -> str:
        """A box at the beginning of the text becomes the marker of its item; the rest of the text."""
        item = self.stack[-1] if self.stack else None
        if not isinstance(item, Item) or not item.fresh or not (task := TASK.match(text)):
            return text
        done = task[1] != " "
        item.marker = f"[{'x' if done else ' '}] "
        item.style = self._theme.done if done else self._theme.marker
        return text[task.end() :]

    def framed(self, rows: list[Row]) -> list[Row]:
        """The rows as they stand within the containers, behind a blank line where one belongs."""
        out: list[Row] = []
        for row in rows:
            if self.gap and self._begun:
                out.append(trimmed([self._lead(container) for container in self._old()]))
            self.gap, self._begun = False, True
            lead = [self._lead(container) for container in self._shown()]
            for container in self.stack:
                container.fresh = False
            out.append(lead + row if row else trimmed(lead))
        return out

    def resize(self, columns: int) -> None:
        self.columns = max(NARROWEST, columns)

    def fork(self) -> "Margin":
        other = Margin(self._theme, self.columns)
        other.stack = [_copy(container) for container in self.stack]
        other.gap, other._begun = self.gap, self._begun
        return other

    def _old(self) -> list[Container]:
        """The containers that hold both what was shown last and what comes next."""
        for place, container in enumerate(self.stack):
            if container.fresh:
                return self.stack[:place]
        return self._shown()

    def _shown(self) -> list[Container]:
        """The innermost containers for which there is room; half the screen is left to what they hold."""
        left = self.columns // 2
        for place in range(len(self.stack) - 1, -1, -1):
            left -= width(self._lead(self.stack[place])[0])
            if left < 0:
                return self.stack[place + 1 :]
        return self.stack

    def _lead(self, container: Container) -> Span:
        """What stands before a row in this container."""
        if isinstance(container, Quote):
            return (f"{self._theme.glyphs.bar} ", self._theme.faint, "")
        if container.fresh:
            return (container.marker, container.style, "")
        return (" " * width(container.marker), "", "")


def _copy(container: Container) -> Container:
    if isinstance(container, Quote):
        return Quote(container.fresh)
    return Item(container.indent, container.number, container.marker, container.style, container.fresh)
