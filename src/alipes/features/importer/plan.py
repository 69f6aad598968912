"""The plan of an import: one item for each thing there, and what becomes of it here."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.features.importer.records import KINDS, Kind
from alipes.kernel.formatting import format_excerpt

State: TypeAlias = Literal["new", "same", "newer", "conflict", "left out"]
STATES: tuple[State, ...] = ("new", "newer", "conflict", "same", "left out")
ConflictChoice: TypeAlias = Literal["keep", "replace", "both"]
SHOWN = 12
"""Items of a kind and state that are listed one by one."""


class PlannedItem(Struct, frozen=True, omit_defaults=True, kw_only=True):
    kind: Kind
    id: str
    """`RecordSource.id`."""
    source: str
    """The file there."""
    what: str
    """For people; never a value of a key."""
    target: str = ""
    """Ours: a conversation, a file, the name of a setting."""
    state: State = "new"
    why: str = ""
    """Why it is left out or a conflict, or what to know about it, as clauses."""
    sensitive: bool = False
    """A key, or something that could run."""
    hash: str = ""
    messages: int = 0
    """Of a conversation."""

    @property
    def is_applied(self) -> bool:
        return self.state in ("new", "newer", "conflict")


class Plan(Struct, frozen=True, kw_only=True):
    program: str
    title: str
    """The program for people."""
    home: str
    part: str
    version: str
    warnings: tuple[str, ...]
    """Such as a running gateway, as sentences."""
    conflicts: ConflictChoice
    items: tuple[PlannedItem, ...]

    def sums(self) -> dict[Kind, dict[State, int]]:
        counts = Counter((item.kind, item.state) for item in self.items)
        return {
            kind: {state: counts[kind, state] for state in STATES if counts[kind, state]}
            for kind in KINDS
            if any(counts[kind, state] for state in STATES)
        }

    @property
    def has_work(self) -> bool:
        keeps = self.conflicts == "keep"
        return any(item.is_applied and not (keeps and item.state == "conflict") for item in self.items)


def format_plan(plan: Plan, *, verbose: bool = False) -> list[str]:
    """The plan as lines."""
    where = f"{plan.home}{f' ({plan.part})' if plan.part else ''}"
    lines = [f"{plan.title} in {where}{f', {plan.version}' if plan.version else ''}", *plan.warnings, ""]
    sums = plan.sums()
    if not sums:
        return [*lines, "There is nothing to import."]
    rows = [
        ("", *STATES),
        *((kind, *(f"{counts.get(state, '')}" for state in STATES)) for kind, counts in sums.items()),
    ]
    lines += [f"  {name:14}{''.join(f'{cell:>10}' for cell in cells)}".rstrip() for name, *cells in rows]
    for state in STATES if verbose else ("new", "newer", "conflict", "left out"):
        for kind in sums:
            found = [item for item in plan.items if (item.kind, item.state) == (kind, state)]
            lines += _format_items(kind, state, found, verbose=verbose)
    return lines


def _format_items(kind: Kind, state: State, items: list[PlannedItem], *, verbose: bool) -> Iterable[str]:
    if not items:
        return
    yield ""
    yield f"{kind}, {state}:"
    shown = items if verbose else items[:SHOWN]
    for item in shown:
        to = f" -> {item.target}" if item.target and item.is_applied else ""
        mark = " (look at it)" if item.sensitive and item.is_applied and item.kind != "keys" else ""
        why = f": {item.why}" if item.why else ""
        yield f"  {format_excerpt(item.what, 90)[1:-1]}{to}{mark}{why}"
    if len(items) > len(shown):
        yield f"  and {len(items) - len(shown):,} more"
