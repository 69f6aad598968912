"""The plan of the model as a checklist: live while the turn runs, printed once when it is final."""

from msgspec import Struct

from alipes.console.render import sanitize
from alipes.console.styles import TerminalStyle, apply_style, wrap_text
from alipes.kernel.tool_labels import plan_items

MAX_LIVE_ITEMS = 8
"""Items shown while the turn runs; finished ones give way first."""


class PlanItem(Struct, frozen=True):
    state: str
    """`x` done, `>` in progress, a space for open, `-` cancelled."""
    text: str


class TodoView:
    """The plan as last written by the todo tool."""

    def __init__(self) -> None:
        self._items: tuple[PlanItem, ...] = ()
        self._printed: tuple[PlanItem, ...] = ()

    def update(self, text: str) -> None:
        """Read the list from the result of the todo tool."""
        self._items = tuple(PlanItem(state, sanitize(item)) for state, item in plan_items(text))

    @property
    def is_final(self) -> bool:
        """True if nothing is open."""
        return bool(self._items) and not any(item.state in " >" for item in self._items)

    @property
    def summary(self) -> str:
        done = sum(item.state == "x" for item in self._items)
        return f"{done} of {len(self._items)} done"

    def live_rows(self, columns: int, style: TerminalStyle) -> list[str]:
        """The rows while the turn runs; none if this state was printed."""
        if not self._items or self._items == self._printed:
            return []
        items, hidden = list(self._items), 0
        while len(items) > MAX_LIVE_ITEMS and items[0].state in "x-":
            items.pop(0)
            hidden += 1
        later = len(items) - MAX_LIVE_ITEMS
        rows = [self._head(style)]
        if hidden:
            rows.append("  " + apply_style(f"{style.done} {hidden} finished", style.faint))
        for item in items[:MAX_LIVE_ITEMS]:
            rows += _format_item(item, columns, style)
        if later > 0:
            rows.append("  " + apply_style(f"{style.more} {later} more", style.faint))
        return rows

    def print_rows(self, columns: int, style: TerminalStyle) -> list[str]:
        """The final rows; none if there is no plan or this state was printed before."""
        if not self._items or self._items == self._printed:
            return []
        self._printed = self._items
        return [self._head(style), *(row for item in self._items for row in _format_item(item, columns, style))]

    def _head(self, style: TerminalStyle) -> str:
        mark = apply_style(style.done, style.good) if self.is_final else apply_style(style.working, style.accent)
        return f"{mark} {apply_style('Plan', style.strong)}  {apply_style(self.summary, style.faint)}"


def _format_item(item: PlanItem, columns: int, style: TerminalStyle) -> list[str]:
    """`✓ done`, `• in progress`, `☐ open` or `– cancelled`."""
    plain = style.done == "+"  # a terminal that shows only ASCII
    mark, colour, words = {
        "x": (style.done, style.good, style.faint),
        ">": (style.working, style.accent, style.strong),
        "-": ("-" if plain else "–", style.faint, style.faint),
    }.get(item.state, ("o" if plain else "☐", style.faint, ""))
    return wrap_text(item.text, columns, words, f"  {apply_style(mark, colour)} ", "    ")
