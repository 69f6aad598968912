"""Values of the memory: whose notes a message uses, and what changes of them are. Pure values."""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from alipes.kernel.messages import Json
from alipes.kernel.turns import Inbound

MemoryTarget: TypeAlias = Literal["memory", "user"]
"""`memory`: notes about the work. `user`: notes about the person."""
MemoryAction: TypeAlias = Literal["add", "replace", "remove"]
MemoryAuthor: TypeAlias = Literal["agent", "person", "file", "learning"]
"""`person`: by a command. `file`: the file was edited by hand."""
OWNER = ""
"""The scope of the owners of this home."""
NO_MEMORY = frozenset(("webhook",))
"""Platforms whose messages no person wrote."""


def memory_scope(inbound: Inbound) -> str | None:
    """Whose notes a message uses: `OWNER`, `people/PLATFORM/ID`, or `chats/PLATFORM/CHAT` for a group, whose notes
    all of its members see. None: nobody's."""
    place = inbound.address if inbound.origin is None else inbound.origin.address
    if place.platform in NO_MEMORY or not inbound.sender:
        return None
    if place.chat_type != "dm":
        return f"chats/{place.platform}/{place.chat}"
    return OWNER if inbound.owner else f"people/{place.platform}/{inbound.sender}"


class MemoryEdit(Struct, frozen=True):
    """One change of one file, as asked for."""

    action: MemoryAction
    target: MemoryTarget
    content: str = ""
    """The new entry; unused by `remove`."""
    old_text: str = ""
    """A part of the entry to replace or remove."""


def parse_edit(args: Mapping[str, Json]) -> MemoryEdit | None:
    """The change that a call asks for; None if it only reads."""
    action = next((each for each in get_args(MemoryAction) if each == args.get("action")), None)
    target = next((each for each in get_args(MemoryTarget) if each == args.get("target")), None)
    if action is None or target is None:
        return None
    return MemoryEdit(action, target, str(args.get("content") or "").strip(), str(args.get("old_text") or "").strip())


class MemoryOrigin(Struct, frozen=True):
    """Who made a change, and where."""

    author: MemoryAuthor
    session: str = ""
    turn: str = ""
    sources: tuple[str, ...] = ()
    """The untrusted text that the conversation had read, if no person has confirmed the change."""


class MemoryChange(Struct, frozen=True):
    """A change of one file; the file before and after it are kept."""

    number: int
    scope: str
    target: MemoryTarget
    action: str
    """As in `MemoryAction`, or `edit` (by hand), `rewrite` (the whole file) or `undo`."""
    before: str
    after: str
    origin: MemoryOrigin
    created: float
    undone_by: int | None = None
    """The change that undid it."""
