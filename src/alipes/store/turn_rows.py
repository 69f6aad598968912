"""Rows of turns and messages: functions that run inside a transaction of the caller."""

import os
import sqlite3

from msgspec import Struct

from alipes.kernel.conversations import AdmittedTurn, PendingTurn
from alipes.kernel.errors import Fenced
from alipes.kernel.turns import Address, BusyMode, Inbound, Said, Turn
from alipes.store.database import codec

ANSWER_BATCH = "answer"
"""In the inbox, instead of a batch: the message was the answer to a question and never becomes a turn."""
_INSERT_MESSAGE = """
    INSERT INTO messages (turn_number, session_id, role, message, model,
                          input, output, cached, cache_write, reasoning, cost, created)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class TurnRow(Struct, frozen=True):
    """The columns of a new turn, made before the transaction because that may run more than once."""

    turn: str
    new_session: str
    """The id of a session that is created if the key has none."""
    inbound: Inbound
    inbound_id: str
    text: str
    now: float

    @property
    def key(self) -> str:
        return self.inbound.address.key


def make_turn_row(inbound: Inbound, now: float, turn: str = "") -> TurnRow:
    turn = turn or os.urandom(8).hex()
    inbound_id = codec.clean_text(inbound.id)
    return TurnRow(turn, new_session_id(), inbound, inbound_id, codec.to_json(inbound), now)


def new_session_id() -> str:
    return os.urandom(6).hex()


def admit_turn(db: sqlite3.Connection, row: TurnRow, busy: BusyMode | None, usual: BusyMode) -> AdmittedTurn | None:
    """Queue the turn; None if its message is a second copy."""
    platform, key = row.inbound.address.platform, row.key
    copy = (
        "SELECT 1 FROM turns WHERE platform = ?1 AND inbound_id = ?2 "
        "UNION ALL SELECT 1 FROM inbox WHERE platform = ?1 AND id = ?2 AND batch = ?3"
    )
    if db.execute(copy, (platform, row.inbound_id, ANSWER_BATCH)).fetchone():
        return None
    session, mode = _touch_current_session(db, row)
    ahead = list_unfinished(db, key)
    if not ahead:
        discard_stops(db, key)
    effective: BusyMode = busy or mode or usual
    insert_turn(db, row, session, effective)
    return AdmittedTurn(row.turn, effective, ahead)


def discard_stops(db: sqlite3.Connection, key: str) -> None:
    """Delete stops that found nothing to stop, so that they do not stop a later turn."""
    db.execute("DELETE FROM pending_ops WHERE key = ? AND kind = 'stop'", (key,))


def _touch_current_session(db: sqlite3.Connection, row: TurnRow) -> tuple[str, BusyMode | None]:
    """The active session of the key, created if necessary, and its busy mode."""
    sql = (
        "UPDATE sessions SET updated = ? WHERE id = (SELECT session_id FROM leases WHERE key = ?) "
        "RETURNING id, busy_mode"
    )
    found = db.execute(sql, (row.now, row.key)).fetchone()
    if found is None:
        return insert_session(db, row.new_session, row.inbound.address, row.now), None
    return found[0], found[1] or None


def insert_session(db: sqlite3.Connection, id: str, address: Address, now: float) -> str:
    """Create a session and make it the active one of its key."""
    db.execute(
        "INSERT INTO sessions (id, key, platform, address, created, updated) VALUES (?, ?, ?, ?, ?, ?)",
        (id, address.key, address.platform, codec.to_json(address), now, now),
    )
    set_current_session(db, address.key, id)
    return id


def set_current_session(db: sqlite3.Connection, key: str, session: str) -> None:
    db.execute(
        "INSERT INTO leases (key, session_id) VALUES (?, ?) ON CONFLICT DO UPDATE SET session_id = excluded.session_id",
        (key, session),
    )


def insert_turn(db: sqlite3.Connection, row: TurnRow, session: str, busy: BusyMode) -> None:
    platform = row.inbound.address.platform
    db.execute(
        "INSERT INTO turns (id, key, session_id, platform, inbound_id, inbound, busy_mode, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (row.turn, row.key, session, platform, row.inbound_id, row.text, busy, row.now),
    )


def list_unfinished(db: sqlite3.Connection, key: str) -> tuple[PendingTurn, ...]:
    sql = (
        "SELECT id, session_id, json_extract(inbound, '$.text'), busy_mode, created, started FROM turns "
        "WHERE key = ? AND ending IS NULL ORDER BY number"
    )
    return tuple(PendingTurn(*row) for row in db.execute(sql, (key,)))


class MessageRow(Struct, frozen=True):
    """The columns of a message, and its text for the search index."""

    columns: tuple[object, ...]
    text: str


def make_message_row(said: Said) -> MessageRow:
    message = said.message
    usage = codec.usage_columns(said.usage)
    columns = (message.role, codec.to_json(message), codec.clean_text(said.model), *usage)
    return MessageRow(columns, codec.searchable_text(message))


def find_claimed_turn(db: sqlite3.Connection, turn: Turn) -> tuple[int, str]:
    """Number and session of a turn that we may write to. Raises `Fenced`."""
    sql = "SELECT number, session_id FROM turns WHERE id = ? AND epoch = ? AND ending IS NULL"
    row = db.execute(sql, (turn.id, turn.epoch)).fetchone()
    if row is None:
        raise Fenced(f"turn {turn.id} of session {turn.key} has ended or was claimed by another process")
    return row[0], row[1]


def insert_message(db: sqlite3.Connection, turn: int, session: str, row: MessageRow, now: float) -> None:
    number = db.execute(_INSERT_MESSAGE, (turn, session, *row.columns, now)).lastrowid
    if row.text:
        db.execute("INSERT INTO search_index (rowid, text) VALUES (?, ?)", (number, row.text))
