"""A session as a document: JSON for programs, Markdown for people. Written by nobody but the caller."""

import sqlite3
import time
from typing import cast

import msgspec

from alipes.kernel.messages import Json
from alipes.store.facts import SessionFacts
from alipes.store.lineage import line

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
