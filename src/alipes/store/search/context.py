"""Messages around a hit of a search."""

from typing import Literal

from alipes.kernel.errors import SessionError
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult
from alipes.kernel.turns import Address
from alipes.store import export
from alipes.store.ports.search import MAX_MESSAGES, ContextMessage, SearchContext, SearchScope
from alipes.store.search.scope import list_sessions
from alipes.store.sql import history
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders

_RESULT_CHARS = 500


def read_around(db: Connection, message: int, before: int, after: int, scope: SearchScope) -> SearchContext:
    """The message with its neighbours in the conversation. Raises `SessionError` if it is not in the scope."""
    sql = """SELECT id, title, first_text, address, workdir FROM sessions
        WHERE id = (SELECT session_id FROM messages WHERE number = ?)"""
    row = db.execute(sql, (message,)).fetchone()
    if row is None or (not scope.is_everything and row[0] not in list_sessions(db, scope)):
        raise SessionError(f"No message {message}. Search again for its number.")
    session, title, text, address, workdir = row
    earlier, more_earlier = _read_side(db, session, message, min(before, MAX_MESSAGES) + 1, "<=")
    later, more_later = _read_side(db, session, message, min(after, MAX_MESSAGES), ">")
    place = Decoders.address.decode_or(address, Address("damaged", session), f"row {session} of sessions")
    return SearchContext(
        session,
        title or export.title_from_text(text),
        place.platform,
        place.chat,
        workdir,
        (*reversed(earlier), *later),
        more_earlier,
        more_later,
    )


def _read_side(
    db: Connection, session: str, message: int, count: int, side: Literal["<=", ">"]
) -> tuple[list[ContextMessage], bool]:
    """At most `count` messages, the nearest first, and whether there are more."""
    order = "DESC" if side == "<=" else ""
    sql = f"""SELECT number, message, created FROM messages WHERE session_id = ? AND number {side} ?
        ORDER BY number {order} LIMIT ?"""
    rows = db.execute(sql, (session, message, count + 1)).fetchall()
    said = [(number, history.decode_message(number, text), when) for number, text, when in rows[:count]]
    found = [ContextMessage(number, each.role, when, describe_message(each)) for number, each, when in said]
    return found, len(rows) > count


def describe_message(message: Message) -> str:
    """Its text; tool calls by name, and their results shortened."""
    lines = []
    for part in message.parts:
        match part:
            case Text(text):
                lines.append(text)
            case ToolCall(_, name):
                lines.append(f"[called {name}]")
            case ToolResult(_, text, outcome):
                shown = text if len(text) <= _RESULT_CHARS else f"{text[:_RESULT_CHARS]}…"
                lines.append(shown if outcome == "ok" else f"[{outcome}] {shown}")
    return "\n".join(lines)
