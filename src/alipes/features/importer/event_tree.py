"""Conversations that are kept as a tree of events: each has a parent, and one path of the tree is the conversation."""

from collections.abc import Iterable, Sequence

from alipes.features.importer.json_lines import Row, get_text

ROOT = -1


class EventTree:
    """The events of a conversation in the order in which they were written.

    The parent of an event was always written before it. So an id that is used twice means the nearest one before, and
    neither a cycle nor a parent that cannot be read loses an event: it then follows the event written before it.
    """

    def __init__(self, events: Iterable[Row], parent: str = "parentId", name: str = "id") -> None:
        """`parent`, `name`: the fields with the id of the parent and of the event."""
        self.events: list[Row] = []
        self.parents: list[int] = []
        self._positions: dict[str, int] = {}
        for position, event in enumerate(events):
            self.events.append(event)
            self.parents.append(self._find_parent(event, parent, position))
            if own := get_text(event, name):
                self._positions[own] = position

    def find(self, name: str) -> int:
        """The position of the last event with an id; `ROOT` if there is none."""
        return self._positions.get(name, ROOT)

    def trace(self, leaf: int) -> list[int]:
        """The positions from the root to an event."""
        path = []
        while leaf != ROOT:
            path.append(leaf)
            leaf = self.parents[leaf]
        return path[::-1]

    def list_leaves(self) -> list[int]:
        """The events without children, in order."""
        inner = set(self.parents)
        return [position for position in range(len(self.events)) if position not in inner]

    def last_leaf(self) -> int:
        """The event after which the conversation continues: the last one, or where the last `leaf` event points."""
        last = len(self.events) - 1
        if last >= 0 and self.events[last].get("type") == "leaf":
            return self.find(get_text(self.events[last], "targetId"))
        return last

    def select(self, positions: Sequence[int]) -> list[Row]:
        return [self.events[position] for position in positions]

    def _find_parent(self, event: Row, field: str, position: int) -> int:
        if field in event and event[field] is None:
            return ROOT
        return self._positions.get(get_text(event, field), position - 1)
