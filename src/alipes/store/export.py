"""A session as a document: JSON for programs, Markdown for people. Written by nobody but the caller."""

import sqlite3
import time
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from alipes.kernel.errors import SessionError
from alipes.kernel.messages import Json, Message, Role
from alipes.kernel.turns import Address, Ending, Inbound, Usage
from alipes.store.history import line

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


FORMAT = "alipes.session/1"
TITLE = 60


def first_words(text: str | None) -> str:
    """A title for what has none."""
    words = " ".join((text or "").split())
    return words if len(words) <= TITLE else words[: TITLE - 1].rstrip() + "…"


def export(db: sqlite3.Connection, session: SessionFacts) -> dict[str, Json]:
    """With the turns that a branch shares; those that were undone are marked as such."""
    return {
        "format": FORMAT,
        "session": cast(Json, msgspec.to_builtins(session)),
        "turns": [
            turn for ancestor, upto in line(db, session.id) for turn in _turns(db, ancestor, upto, session.id)
        ],
    }


def _turns(db: sqlite3.Connection, ancestor: str, upto: int, session: str) -> list[Json]:
    sql = (
        "SELECT number, id, ending, detail, created, ended, inbound, "
        "number IN (SELECT turn FROM hidden WHERE session = ?) "
        "FROM turns WHERE session = ? AND number <= ? ORDER BY number"
    )
    return [
        {
            "id": id,
            "ending": ending,
            "detail": detail,
            "created": created,
            "ended": ended,
            "undone": bool(undone),
            "inbound": msgspec.json.decode(inbound),
            "messages": _messages(db, number),
        }
        for number, id, ending, detail, created, ended, inbound, undone in db.execute(
            sql, (session, ancestor, upto)
        ).fetchall()
    ]


def _messages(db: sqlite3.Connection, turn: int) -> list[Json]:
    sql = "SELECT message, model, created FROM said WHERE turn = ? ORDER BY number"
    return [
        {**msgspec.json.decode(message), "model": model, "created": created}
        for message, model, created in db.execute(sql, (turn,))
    ]


def markdown(exported: dict[str, Json]) -> str:
    """What `export` gave, to be read; without what was undone."""
    document = msgspec.convert(exported, _Document)
    lines = [f"# {document.session.title or document.session.id}", ""]
    for turn in document.turns:
        if turn.undone or turn.ending == "steered":  # its message stands in the turn that took it in
            continue
        for message in turn.messages:
            lines += [f"## {message.role} · {_when(message.created)}", ""]
            for part in message.parts:
                lines += [*_part(part), ""]
        if turn.ending not in (None, "answered"):
            lines += [f"*{turn.ending}{': ' if turn.detail else ''}{turn.detail}*", ""]
    return "\n".join(lines)


class _Entry(msgspec.Struct):
    role: str
    parts: list[dict[str, Json]]
    created: float


class _Turn(msgspec.Struct):
    messages: list[_Entry]
    ending: str | None
    detail: str
    undone: bool = False


class _Session(msgspec.Struct):
    id: str
    title: str


class _Document(msgspec.Struct):
    session: _Session
    turns: list[_Turn]


def _part(part: dict[str, Json]) -> list[str]:
    match part:
        case {"type": "text", "text": str(text)}:
            return [text]
        case {"type": "thinking", "text": str(text)}:
            return [f"> {line}" for line in text.splitlines()]
        case {"type": "call", "name": str(name), "args": args}:
            return [f"**{name}**", *_fenced(msgspec.json.encode(args).decode(), "json")]
        case {"type": "result", "text": str(text)}:
            return _fenced(text)
        case {"type": "image", "media_type": str(media_type)}:
            return [f"[{media_type}]"]
    return []


def _fenced(text: str, language: str = "") -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}{language}", text, fence]


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
