"""What a session's model is told: its own turns and those it shares, without what was undone. Reads only."""

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator
from typing import TypeAlias

from alipes.kernel.turns import Digest

Row: TypeAlias = tuple[int, int, str, int | None]
"""Number, turn and text of a message, and the tokens of the call that gave it."""
_WITHOUT_HIDDEN = "NOT IN (SELECT turn FROM hidden WHERE session = ?)"
_DIGESTS = (
    "SELECT upto, covers, trimmed, widest, last, text FROM digests WHERE session = ? "
    "ORDER BY number DESC LIMIT 20"
)
EVER = 2**63 - 1


def line(db: sqlite3.Connection, session: str) -> list[tuple[str, int]]:
    """The sessions whose turns it consists of, the oldest first and itself last, each up to which turn."""
    shared = db.execute("SELECT ancestor, upto FROM lineage WHERE session = ? ORDER BY upto", (session,))
    return [*shared.fetchall(), (session, EVER)]


def told(db: sqlite3.Connection, session: str) -> Iterator[Row]:
    """What was said, in order."""
    sql = (
        "SELECT number, turn, message, input + output FROM said WHERE session = ? AND turn <= ? "
        f"AND turn {_WITHOUT_HIDDEN} ORDER BY number"
    )
    for ancestor, upto in line(db, session):
        yield from db.execute(sql, (ancestor, upto, session))


def digest(db: sqlite3.Connection, session: str, numbers: list[int]) -> tuple[Digest, int]:
    """What stands for the beginning of the messages with these numbers, and the last there was when it was
    made. One that was made of other messages than those, because some were taken back since or belong to
    another branch, does not count."""
    for ancestor, _ in reversed(line(db, session)):
        for upto, covers, trimmed, widest, last, text in db.execute(_DIGESTS, (ancestor,)):
            place = bisect_right(numbers, upto)
            if place == covers and (not place or numbers[place - 1] == upto):
                return Digest(place, text, bisect_right(numbers, trimmed), widest), last
    return Digest(), 0


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


def counted(rows: list[Row], since: int) -> tuple[int, int]:
    """The tokens of the last model call after message `since`, and how many messages it was about."""
    for place in range(len(rows) - 1, -1, -1):
        number, _, _, tokens = rows[place]
        if number <= since:
            break
        if tokens is not None:
            return tokens, place + 1
    return 0, 0


def context(db: sqlite3.Connection, session: str) -> int | None:
    """The tokens of the last model call that is told, in and out; None also if it was shortened since."""
    last = (
        "SELECT number, input + output FROM said WHERE session = ? AND turn <= ? "
        f"AND turn {_WITHOUT_HIDDEN} AND input IS NOT NULL ORDER BY number DESC LIMIT 1"
    )
    shortened = "SELECT 1 FROM digests WHERE session = ? AND last >= ? LIMIT 1"
    for ancestor, upto in reversed(line(db, session)):
        if row := db.execute(last, (ancestor, upto, session)).fetchone():
            return None if db.execute(shortened, (session, row[0])).fetchone() else int(row[1])
    return None
