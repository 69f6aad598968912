"""A list to choose from, drawn in place of the input: filtered by typing, with a preview and actions by keys."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from alipes.console.render import to_one_line, truncate
from alipes.console.styles import TerminalStyle, apply_style, wrap_text
from alipes.console.width import display_width
from alipes.runtime.fuzzy import MAX_PENALTY, best_matches, score_match

MAX_ROWS = 10
"""Items shown at once."""
MAX_PREVIEW_ROWS = 6
PAGE = 8
MAX_ITEMS = 1000
MIN_DETAIL_COLUMNS, MIN_DETAIL_ROOM = 60, 10
"""On a narrower screen the labels get all the room, and details only if there is enough left."""
IN_DETAIL = -1000
"""The score of an item that is found only by its details."""


class PickerItem(Struct, frozen=True):
    value: str
    label: str
    detail: str = ""
    """Shown beside the label."""
    group: str = ""
    """A heading above the first item of the group; not shown while a filter is typed."""
    mark: str = ""
    """Shown before the label, for example for the current one."""


class PickerAction(NamedTuple):
    """Something to do with the selected item, by a key."""

    hint: str
    run: Callable[["Picker", PickerItem], Awaitable[None]]


class _Question(NamedTuple):
    label: str
    answer: asyncio.Future[str | None]
    any_key: bool
    """One key answers."""


class Picker:
    """The state of the list. `run` ends when an item is chosen or the list is left."""

    def __init__(
        self,
        title: str,
        items: Iterable[PickerItem],
        *,
        preview: Callable[[PickerItem], Awaitable[Sequence[str]]] | None = None,
        actions: Mapping[str, PickerAction] | None = None,
        selected: str = "",
    ) -> None:
        """`actions`: by the name of a key, such as `c-r`; that of `enter` keeps the list open. `selected`: the value of
        the first selection."""
        self.title, self._items = title, list(items)
        self._preview, self._actions = preview, actions or {}
        self.note = ""
        """A short message beside the title."""
        self._filter, self._index = "", 0
        self._found: list[PickerItem] = []
        self._preview_rows: Sequence[str] = ()
        self._previewed: PickerItem | None = None
        self._question: _Question | None = None
        self._answer = ""
        self._action: PickerAction | None = None
        self._done, self._changed = False, asyncio.Event()
        self._search()
        self._index = next((n for n, item in enumerate(self._found) if item.value == selected), 0)

    @property
    def selected(self) -> PickerItem | None:
        return self._found[self._index] if self._found else None

    def add(self, items: Iterable[PickerItem]) -> None:
        """Add items that were found later; the selection stays."""
        known, before = {item.value for item in self._items}, self.selected
        self._items += [item for item in items if item.value not in known]
        self._search(before)

    def replace(self, old: PickerItem, new: PickerItem | None) -> None:
        """Exchange an item, or remove it."""
        place = self._items.index(old)
        self._items[place : place + 1] = [] if new is None else [new]
        index = self._index
        self._search(new)
        if new is None:
            self._index = min(index, max(0, len(self._found) - 1))
        self._previewed = None

    async def ask(self, label: str, text: str = "") -> str | None:
        """Ask for a line of text, beginning with `text`; None if it was left with Escape."""
        return await self._pose(_Question(label, asyncio.get_running_loop().create_future(), False), text)

    async def confirm(self, label: str) -> bool:
        """Ask for a yes; any key but `y` is a no."""
        answer = await self._pose(_Question(label, asyncio.get_running_loop().create_future(), True), "")
        return answer is not None and answer.lower() == "y"

    async def run(self, refresh: Callable[[], object]) -> PickerItem | None:
        """The chosen item; None if the list was left."""
        while not self._done:
            if self._action is not None:
                action, self._action = self._action, None
                if (item := self.selected) is not None:
                    await action.run(self, item)
            await self._load_preview()
            refresh()
            await self._changed.wait()
            self._changed.clear()
        return self.selected

    async def _pose(self, question: _Question, text: str) -> str | None:
        self._question, self._answer = question, text
        get_app().invalidate()
        try:
            return await question.answer
        finally:
            self._question = None

    async def _load_preview(self) -> None:
        if self._preview is None or self._previewed is self.selected:
            return
        self._previewed, self._preview_rows = self.selected, ()
        if self._previewed is not None:
            self._preview_rows = await self._preview(self._previewed)

    def _search(self, selected: PickerItem | None = None) -> None:
        def searched(item: PickerItem) -> str:
            return f"{to_one_line(item.label)}\n{to_one_line(item.detail)}"

        self._found = best_matches(self._filter, self._items, searched, limit=MAX_ITEMS, score=_score_item)
        self._index = self._found.index(selected) if selected in self._found else 0
        self._changed.set()

    def insert(self, text: str) -> None:
        clean = "".join(char for char in text if char.isprintable())
        if self._question is not None:
            if self._question.any_key:
                self._resolve(clean[:1])
            else:
                self._answer += clean
        else:
            self._filter += clean
            self._search()

    def delete(self, how: Callable[[str], str]) -> None:
        """Shorten the typed text."""
        if self._question is None:
            self._filter = how(self._filter)
            self._search(self.selected if not self._filter else None)
        elif self._question.any_key:
            self._resolve(None)
        else:
            self._answer = how(self._answer)

    def move(self, steps: int, *, wrap: bool = True) -> None:
        if self._question is None and self._found:
            last = len(self._found) - 1
            target = self._index + steps
            self._index = target % len(self._found) if wrap else min(max(target, 0), last)
            self._changed.set()

    def enter(self) -> None:
        if self._question is not None:
            self._resolve(None if self._question.any_key else self._answer)
        elif "enter" in self._actions:
            self.act("enter")
        elif self._found:
            self._leave()

    def escape(self) -> None:
        if self._question is not None:
            self._resolve(None)
        else:
            self._found = []
            self._leave()

    def act(self, key: str) -> None:
        """Run the action of a key."""
        if self._question is None and key in self._actions:
            self.note, self._action = "", self._actions[key]
            self._changed.set()

    def _resolve(self, answer: str | None) -> None:
        if self._question is not None and not self._question.answer.done():
            self._question.answer.set_result(answer)

    def _leave(self) -> None:
        self._done = True
        self._changed.set()

    def draw(self, columns: int, lines: int, style: TerminalStyle) -> tuple[list[str], list[str], int]:
        """The rows of the title and the typed text, the rows below them, and the column of the cursor."""
        typed, label = (self._filter, "") if self._question is None else (self._answer, f"{self._question.label} ")
        room = max(4, columns - 3 - display_width(label))
        shown = typed if display_width(typed) <= room else typed[-room:]
        prompt = f"{apply_style(style.prompt, style.accent)} {apply_style(label, style.warn)}{shown}"
        cursor = 2 + display_width(label) + display_width(shown)
        head = [self._draw_title(columns, style), prompt] if lines > 4 else [prompt]
        hints = wrap_text(" · ".join(_list_keys(self._question, self._actions)), columns, style.faint, "  ", "  ")
        space = max(1, lines - len(head) - len(hints))
        preview = _draw_preview(self._preview_rows, columns, style) if space >= 10 else []
        rows = self._draw_items(columns, min(MAX_ROWS, max(1, space - len(preview))), style)
        below = [*rows, *preview, *hints]
        return head, below[: max(0, lines - len(head))], cursor

    def _draw_title(self, columns: int, style: TerminalStyle) -> str:
        count = f"{len(self._found)} of {len(self._items)}" if self._filter else str(len(self._items))
        parts = [self.title, count, *([self.note] if self.note else [])]
        rest = truncate(f" · {' · '.join(parts[1:])}", max(1, columns - 2 - display_width(self.title)), style.more)
        return f"{apply_style(self.title, style.strong)}{apply_style(rest, style.faint)}"

    def _draw_items(self, columns: int, room: int, style: TerminalStyle) -> list[str]:
        if not self._found:
            return ["  " + apply_style("nothing matches" if self._filter else "nothing to choose from", style.faint)]
        headed = not self._filter and any(item.group for item in self._items)
        room = max(1, room - 2) if headed else room
        first = max(0, min(self._index - room // 2, len(self._found) - room))
        shown = self._found[first : first + room]
        longest = max(display_width(to_one_line(item.label)) for item in shown)
        alone = columns < MIN_DETAIL_COLUMNS or not any(item.detail for item in shown)
        width = min(longest, max(4, columns - 5 if alone else columns * 3 // 5))
        rows, group = list[str](), None
        for number, item in enumerate(shown, first):
            if headed and item.group != group:
                group = item.group
                rows.append("  " + apply_style(truncate(group, max(1, columns - 2), style.more), style.faint))
            rows.append(_draw_item(item, style, chosen=number == self._index, width=width, columns=columns))
        if (left := len(self._found) - first - len(shown)) > 0:
            rows.append("    " + apply_style(f"{style.more} {left} more", style.faint))
        return rows


def _list_keys(question: _Question | None, actions: Mapping[str, PickerAction]) -> list[str]:
    """What the keys do now."""
    if question is not None:
        return ["esc cancel"] if question.any_key else ["enter save", "esc cancel"]
    hints = [action.hint for action in actions.values()]
    return [*hints, "esc close"] if "enter" in actions else ["enter choose", *hints, "esc cancel"]


def _score_item(query: str, text: str) -> int | None:
    """The label counts, but not its length: equal matches keep their order. In the details only whole words of the
    query are searched."""
    label, _, detail = text.partition("\n")
    score = score_match(query, label)
    if score is None and all(word in f"{label} {detail}".lower() for word in query.lower().split()):
        return IN_DETAIL
    return None if score is None else score + min(len(label), MAX_PENALTY)


def _draw_item(item: PickerItem, style: TerminalStyle, *, chosen: bool, width: int, columns: int) -> str:
    label = truncate(to_one_line(item.label), width, style.more)
    room = columns - width - 6
    detail = truncate(to_one_line(item.detail), room, style.more) if room >= MIN_DETAIL_ROOM else ""
    sgr = style.accent if chosen else ""
    gap = " " * (width - display_width(label) + 2) if detail else ""
    start = f"{apply_style(style.chosen if chosen else ' ', sgr)} {item.mark or ' '} "
    return f"{start}{apply_style(label, sgr)}{gap}{apply_style(detail, style.faint)}"


def _draw_preview(preview: Sequence[str], columns: int, style: TerminalStyle) -> list[str]:
    rows = [truncate(to_one_line(row), max(1, columns - 4), style.more) for row in preview]
    return [f"  {apply_style(f'{style.bar} {row}', style.faint)}" for row in rows[-MAX_PREVIEW_ROWS:]]


def bind_picker(keys: KeyBindings, current: Callable[[], Picker | None]) -> None:
    """While a list is open, all keys are for it."""
    picking = Condition(lambda: current() is not None)

    def bind(*names: str, to: Callable[[Picker], None], eager: Condition | bool = True) -> None:
        for name in names:

            def run(_event: KeyPressEvent) -> None:
                if (picker := current()) is not None:
                    to(picker)

            keys.add(name, filter=picking, eager=eager)(run)

    @keys.add(Keys.Any, filter=picking, eager=True)
    @keys.add(Keys.BracketedPaste, filter=picking, eager=True)
    def _insert(event: KeyPressEvent) -> None:
        picker, key = current(), event.key_sequence[0]
        if picker is not None and (key.key == Keys.BracketedPaste or len(key.key) == 1):
            picker.insert(key.data)

    bind("up", "c-p", "s-tab", to=lambda picker: picker.move(-1))
    bind("down", "c-n", "tab", to=lambda picker: picker.move(1))
    bind("pageup", to=lambda picker: picker.move(-PAGE, wrap=False))
    bind("pagedown", to=lambda picker: picker.move(PAGE, wrap=False))
    bind("enter", to=lambda picker: picker.enter())
    bind("backspace", to=lambda picker: picker.delete(lambda text: text[:-1]))
    bind("c-w", to=lambda picker: picker.delete(lambda text: text.rstrip().rpartition(" ")[0]))
    bind("c-u", to=lambda picker: picker.delete(lambda _text: ""))
    bind("c-r", to=lambda picker: picker.act("c-r"))
    bind("c-d", to=lambda picker: picker.act("c-d"))
    bind("c-c", "<sigint>", to=lambda picker: picker.escape())
    bind("escape", to=lambda picker: picker.escape(), eager=Condition(lambda: not get_app().key_processor.input_queue))
