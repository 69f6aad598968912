"""What the archive tells: values of its own, made to be listed and exported. Nothing here reads a file."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import SessionError
from alipes.kernel.messages import Message, Role
from alipes.kernel.turns import Address, Ending, Inbound, Usage

__all__ = ["Grouping", "Hit", "SessionError", "SessionFacts", "Spent", "StoreFacts", "TurnFacts"]

Grouping: TypeAlias = Literal["turn", "session", "day", "model", "task", "tool"]


class Spent(Struct, frozen=True):
    """What a number of model calls used."""

    name: str
    """What they were grouped by: a turn's or session's id, a day as 2026-11-15, a model, what was asked
    for, the tool on whose behalf; or empty."""
    calls: int
    usage: Usage
    unpriced: int
    """Calls whose price is unknown; they are not in `usage.cost`."""


class SessionFacts(Struct, frozen=True):
    id: str
    key: str
    address: Address
    title: str
    """As it was named; else the first words said in it."""
    created: float
    updated: float
    turns: int
    unfinished: int
    messages: int
    spent: Spent
    parent: str = ""
    """The session it was branched from, or empty."""


class TurnFacts(Struct, frozen=True):
    id: str
    session: str
    inbound: Inbound
    ending: Ending | None
    """None while it waits or lives."""
    detail: str
    attempts: int
    created: float
    ended: float | None
    said: tuple[Message, ...]
    spent: Spent


class Hit(Struct, frozen=True):
    """A message that matches a search."""

    session: str
    title: str
    turn: str
    role: Role
    when: float
    snippet: str


class StoreFacts(Struct, frozen=True):
    path: str
    size: int
    wal: int
    """Bytes written but not yet moved into the main file; both together are the store."""
    schema: int
    sessions: int
    turns: int
    messages: int
