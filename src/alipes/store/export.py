"""Facts about sessions and turns, and the export of a session as JSON or Markdown."""

import time
from typing import cast

import msgspec

from alipes.kernel.attachments import first_words
from alipes.kernel.messages import Json
from alipes.store.ports.archive import SessionFacts
from alipes.store.sql.connection import Connection
from alipes.store.sql.damage import RowDecoder
from alipes.store.sql.history import list_ancestors, unreadable_message

FORMAT = "alipes.session/1"
MAX_TITLE_CHARS = 60


def format_place(platform: str, chat: str, workdir: str) -> str:
    """Where a conversation takes place, in short."""
    return f"{platform}, {workdir}" if workdir else f"{platform} {chat}".strip()


def title_from_text(text: str | None) -> str:
    """The beginning of a message as a title; of a shell command without its output."""
    text = first_words(text or "")
    words = " ".join((text.partition("\n\n")[0] if text.startswith("!") else text).split())
    return words if len(words) <= MAX_TITLE_CHARS else words[: MAX_TITLE_CHARS - 1].rstrip() + "…"


def export_session(db: Connection, session: SessionFacts) -> dict[str, Json]:
    """The session with the turns that a branch shares; undone turns are marked."""
    return {
        "format": FORMAT,
        "session": cast(Json, msgspec.to_builtins(session)),
        "turns": [
            turn
            for ancestor, last_turn in list_ancestors(db, session.id)
            for turn in _export_turns(db, ancestor, last_turn, session.id)
        ],
    }


_any_value: RowDecoder[dict[str, Json]] = RowDecoder(dict)


def _export_turns(db: Connection, ancestor: str, last_turn: int, session: str) -> list[Json]:
    sql = """SELECT number, id, ending, detail, created, ended, inbound,
        number IN (SELECT turn_number FROM undone_turns WHERE session_id = ?)
        FROM turns WHERE session_id = ? AND number <= ? ORDER BY number"""
    found = db.execute(sql, (session, ancestor, last_turn)).fetchall()
    return [
        {
            "id": id,
            "ending": ending,
            "detail": detail,
            "created": created,
            "ended": ended,
            "undone": bool(undone),
            "inbound": _any_value.decode_or(inbound, {}, f"row {number} of turns"),
            "messages": _export_messages(db, number),
        }
        for number, id, ending, detail, created, ended, inbound, undone in found
    ]


def _export_messages(db: Connection, turn: int) -> list[Json]:
    sql = "SELECT number, message, model, created FROM messages WHERE turn_number = ? ORDER BY number"
    return [
        {**_export_message(number, message), "model": model, "created": created}
        for number, message, model, created in db.execute(sql, (turn,))
    ]


def _export_message(number: int, text: str) -> dict[str, Json]:
    unreadable: dict[str, Json] = msgspec.to_builtins(unreadable_message(number))
    return _any_value.decode_or(text, unreadable, f"row {number} of messages")


def to_markdown(exported: dict[str, Json]) -> str:
    """The result of `export_session` as a text to read, without undone turns."""
    document = msgspec.convert(exported, ExportedDocument)
    lines = [f"# {document.session['title'] or document.session['id']}", ""]
    for turn in document.turns:
        if turn.undone or turn.ending == "steered":  # its message is in the turn it was steered into
            continue
        for message in turn.messages:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(message.created))
            lines += [f"## {message.role} · {when}", ""]
            for part in message.parts:
                lines += [*_format_part(part), ""]
        if turn.ending not in (None, "answered"):
            lines += [f"*{turn.ending}{': ' if turn.detail else ''}{turn.detail}*", ""]
    return "\n".join(lines)


class ExportedMessage(msgspec.Struct):
    role: str
    parts: list[dict[str, Json]]
    created: float


class ExportedTurn(msgspec.Struct):
    messages: list[ExportedMessage]
    ending: str | None
    detail: str
    undone: bool = False
    ended: float | None = None


class ExportedDocument(msgspec.Struct):
    """The result of `export_session`, as far as pages for people need it."""

    session: dict[str, Json]
    turns: list[ExportedTurn]


def _format_part(part: dict[str, Json]) -> list[str]:
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
