"""What a turn says becomes a row of the transcript, if the turn is still ours. Functions of a transaction."""

import sqlite3

from msgspec import Struct

from alipes.kernel.errors import Fenced
from alipes.kernel.turns import Said, Turn
from alipes.store import rows

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
    row = (message.role, rows.dump(message), rows.whole(said.model), *rows.usage_columns(said.usage))
    return Utterance(row, rows.words(message))


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
