"""The messages of a session that the model sees: its own and those a branch shares, without undone turns."""

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator
from typing import TypeAlias

from alipes.kernel.turns import CompactionState

HistoryRow: TypeAlias = tuple[int, int, str, int | None]
"""Number, turn number and JSON of a message, and the tokens of the model call that returned it."""
NO_LIMIT = 2**63 - 1
_NOT_UNDONE = "NOT IN (SELECT turn_number FROM undone_turns WHERE session_id = ?)"
_SUMMARIES = """
    SELECT last_message, message_count, last_trimmed, max_chars, newest_message, text FROM summaries
    WHERE session_id = ? ORDER BY number DESC LIMIT 20"""


def list_ancestors(db: sqlite3.Connection, session: str) -> list[tuple[str, int]]:
    """The sessions that its history consists of and the last turn of each that counts: oldest first, itself
    last."""
    sql = "SELECT ancestor_id, last_turn FROM session_ancestors WHERE session_id = ? ORDER BY last_turn"
    return [*db.execute(sql, (session,)).fetchall(), (session, NO_LIMIT)]


def visible_messages(db: sqlite3.Connection, session: str) -> Iterator[HistoryRow]:
    sql = (
        "SELECT number, turn_number, message, input + output FROM messages "
        f"WHERE session_id = ? AND turn_number <= ? AND turn_number {_NOT_UNDONE} ORDER BY number"
    )
    for ancestor, last_turn in list_ancestors(db, session):
        yield from db.execute(sql, (ancestor, last_turn, session))


def find_summary(db: sqlite3.Connection, session: str, numbers: list[int]) -> tuple[CompactionState, int]:
    """The newest summary that is valid for the messages with these numbers, and the newest message then.

    A summary of other messages is not valid: some were undone since, or belong to another branch.
    """
    for ancestor, _ in reversed(list_ancestors(db, session)):
        for last, count, last_trimmed, max_chars, newest, text in db.execute(_SUMMARIES, (ancestor,)):
            covered = bisect_right(numbers, last)
            if covered == count and (not covered or numbers[covered - 1] == last):
                return CompactionState(covered, text, bisect_right(numbers, last_trimmed), max_chars), newest
    return CompactionState(), 0


def started_turns(
    db: sqlite3.Connection, session: str, *, silent: bool = False
) -> Iterator[tuple[int, str, str, bool]]:
    """Number, id, inbound and whether it is unfinished, of the visible turns that were started, latest first.

    A steered message is part of the turn that it was steered into. `silent`: include turns without messages.
    """
    has_messages = "1" if silent else "EXISTS (SELECT 1 FROM messages WHERE turn_number = turns.number)"
    sql = (
        "SELECT number, id, inbound, ending IS NULL FROM turns WHERE session_id = ? AND number <= ? "
        f"AND number {_NOT_UNDONE} "
        "AND CASE WHEN ending IS NULL THEN attempts > 0 WHEN ending = 'steered' THEN 0 "
        f"ELSE {has_messages} END ORDER BY number DESC"
    )
    for ancestor, last_turn in reversed(list_ancestors(db, session)):
        for number, id, inbound, unfinished in db.execute(sql, (ancestor, last_turn, session)):
            yield number, id, inbound, bool(unfinished)


def last_counted_tokens(rows: list[HistoryRow], since: int) -> tuple[int, int]:
    """The tokens of the last model call after message `since`, and the number of messages it covered."""
    for place in range(len(rows) - 1, -1, -1):
        number, _, _, tokens = rows[place]
        if number <= since:
            break
        if tokens is not None:
            return tokens, place + 1
    return 0, 0


def context_tokens(db: sqlite3.Connection, session: str) -> int | None:
    """Tokens (in and out) of the last visible model call; None if there is none since the last compaction."""
    last_call = (
        "SELECT number, input + output FROM messages WHERE session_id = ? AND turn_number <= ? "
        f"AND turn_number {_NOT_UNDONE} AND input IS NOT NULL ORDER BY number DESC LIMIT 1"
    )
    compacted = "SELECT 1 FROM summaries WHERE session_id = ? AND newest_message >= ? LIMIT 1"
    for ancestor, last_turn in reversed(list_ancestors(db, session)):
        if row := db.execute(last_call, (ancestor, last_turn, session)).fetchone():
            return None if db.execute(compacted, (session, row[0])).fetchone() else int(row[1])
    return None
