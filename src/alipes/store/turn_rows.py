"""Taking a message in: the row it becomes, its session, and what lies ahead of it. It claims nothing."""

import os
import sqlite3

from msgspec import Struct

from alipes.kernel.conversations import Admitted, Waiting
from alipes.kernel.errors import Fenced
from alipes.kernel.turns import Address, Busy, Inbound, Said, Turn
from alipes.store.database import codec

ANSWER = "answer"
"""In place of a batch, of what came in as the answer to a question: it never becomes a turn."""


class Entry(Struct, frozen=True):
    """A message as columns, made before the transaction so that it can be tried again."""

    turn: str
    fresh: str
    """The id of the session that is begun where none is."""
    inbound: Inbound
    inbound_id: str
    text: str
    now: float

    @property
    def key(self) -> str:
        return self.inbound.address.key


def entry(inbound: Inbound, now: float) -> Entry:
    return Entry(
        os.urandom(8).hex(), new_session(), inbound, codec.whole(inbound.id), codec.dump(inbound), now
    )


def new_session() -> str:
    return os.urandom(6).hex()


def admit(db: sqlite3.Connection, entry: Entry, busy: Busy | None, usual: Busy) -> Admitted | None:
    platform, key = entry.inbound.address.platform, entry.key
    copy = (
        "SELECT 1 FROM turns WHERE platform = ?1 AND inbound_id = ?2 "
        "UNION ALL SELECT 1 FROM arrivals WHERE platform = ?1 AND id = ?2 AND batch = ?3"
    )
    if db.execute(copy, (platform, entry.inbound_id, ANSWER)).fetchone():
        return None
    session, mode = _seated(db, entry)
    ahead = unfinished(db, key)
    if not ahead:  # a stop that found nothing to stop must not meet a later turn
        db.execute("DELETE FROM controls WHERE key = ? AND kind = 'stop'", (key,))
    effective: Busy = busy or mode or usual
    insert(db, entry, session, effective)
    return Admitted(entry.turn, effective, ahead)


def _seated(db: sqlite3.Connection, entry: Entry) -> tuple[str, Busy | None]:
    """The session that goes on under the key, begun if need be, and its mode."""
    sql = (
        "UPDATE sessions SET updated = ? WHERE id = (SELECT session FROM seats WHERE key = ?) "
        "RETURNING id, busy"
    )
    row = db.execute(sql, (entry.now, entry.key)).fetchone()
    if row is None:
        return open_session(db, entry.fresh, entry.inbound.address, entry.now), None
    return row[0], row[1] or None


def open_session(db: sqlite3.Connection, id: str, address: Address, now: float) -> str:
    """Begin a session, and let it be the one that goes on under its key."""
    db.execute(
        "INSERT INTO sessions (id, key, platform, address, created, updated) VALUES (?, ?, ?, ?, ?, ?)",
        (id, address.key, address.platform, codec.dump(address), now, now),
    )
    seat(db, address.key, id)
    return id


def seat(db: sqlite3.Connection, key: str, session: str) -> None:
    db.execute(
        "INSERT INTO seats (key, session) VALUES (?, ?) ON CONFLICT DO UPDATE SET session = excluded.session",
        (key, session),
    )


def insert(db: sqlite3.Connection, entry: Entry, session: str, busy: Busy) -> None:
    db.execute(
        "INSERT INTO turns (id, key, session, platform, inbound_id, inbound, busy, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.turn,
            entry.key,
            session,
            entry.inbound.address.platform,
            entry.inbound_id,
            entry.text,
            busy,
            entry.now,
        ),
    )


def unfinished(db: sqlite3.Connection, key: str) -> tuple[Waiting, ...]:
    sql = (
        "SELECT id, session, json_extract(inbound, '$.text'), busy, created, begun FROM turns "
        "WHERE key = ? AND ending IS NULL ORDER BY number"
    )
    return tuple(Waiting(*row) for row in db.execute(sql, (key,)))


_SAY = """
    INSERT INTO said (turn, session, role, message, model,
                      input, output, cached, cache_write, reasoning, cost, created)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


class Utterance(Struct, frozen=True):
    """A message as columns."""

    row: tuple[object, ...]
    words: str


def utterance(said: Said) -> Utterance:
    message = said.message
    row = (message.role, codec.dump(message), codec.whole(said.model), *codec.usage_columns(said.usage))
    return Utterance(row, codec.words(message))


def mine(db: sqlite3.Connection, turn: Turn) -> tuple[int, str]:
    """The number and session of a turn that we may write for. Raises `Fenced`."""
    sql = "SELECT number, session FROM turns WHERE id = ? AND epoch = ? AND ending IS NULL"
    row = db.execute(sql, (turn.id, turn.epoch)).fetchone()
    if row is None:
        raise Fenced(f"turn {turn.id} of session {turn.key} is lived by someone else, or over")
    return row[0], row[1]


def say(db: sqlite3.Connection, turn: int, session: str, said: Utterance, now: float) -> None:
    number = db.execute(_SAY, (turn, session, *said.row, now)).lastrowid
    if said.words:
        db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, said.words))
