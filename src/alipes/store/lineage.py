"""What a session's model is told: its own turns and those it shares, without what was undone. Reads only."""

import sqlite3
from collections.abc import Iterator

_WITHOUT_HIDDEN = "NOT IN (SELECT turn FROM hidden WHERE session = ?)"
EVER = 2**63 - 1


def line(db: sqlite3.Connection, session: str) -> list[tuple[str, int]]:
    """The sessions whose turns it consists of, the oldest first and itself last, each up to which turn."""
    shared = db.execute("SELECT ancestor, upto FROM lineage WHERE session = ? ORDER BY upto", (session,))
    return [*shared.fetchall(), (session, EVER)]


def said(db: sqlite3.Connection, session: str) -> Iterator[tuple[int, str]]:
    """The numbers of the turns and the messages they said, in order."""
    sql = (
        f"SELECT turn, message FROM said WHERE session = ? AND turn <= ? AND turn {_WITHOUT_HIDDEN} "
        "ORDER BY number"
    )
    for ancestor, upto in line(db, session):
        yield from db.execute(sql, (ancestor, upto, session))


def begun(
    db: sqlite3.Connection, session: str, *, silent: bool = False
) -> Iterator[tuple[int, str, str, bool]]:
    """Number, id, inbound and whether it is unfinished, of the turns that are told, the latest first.

    A message that was steered is part of the turn that took it in. `silent`: also those that said nothing.
    """
    spoke = "1" if silent else "EXISTS (SELECT 1 FROM said WHERE said.turn = turns.number)"
    sql = (
        "SELECT number, id, inbound, ending IS NULL FROM turns WHERE session = ? AND number <= ? "
        f"AND number {_WITHOUT_HIDDEN} "
        "AND CASE WHEN ending IS NULL THEN attempts > 0 WHEN ending = 'steered' THEN 0 "
        f"ELSE {spoke} END ORDER BY number DESC"
    )
    for ancestor, upto in reversed(line(db, session)):
        for number, id, inbound, unfinished in db.execute(sql, (ancestor, upto, session)):
            yield number, id, inbound, bool(unfinished)


def context(db: sqlite3.Connection, session: str) -> int | None:
    """The tokens of the last model call that is told, in and out."""
    sql = (
        "SELECT input + output FROM said WHERE session = ? AND turn <= ? "
        f"AND turn {_WITHOUT_HIDDEN} AND input IS NOT NULL ORDER BY number DESC LIMIT 1"
    )
    for ancestor, upto in reversed(line(db, session)):
        if row := db.execute(sql, (ancestor, upto, session)).fetchone():
            return int(row[0])
    return None
