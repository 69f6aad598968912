"""Which conversations a search or a list covers, as SQL, and where their messages are."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from alipes.store.ports.search import SearchScope
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import clean_text

Span: TypeAlias = tuple[int, int]
"""Message numbers from the first to the last."""
MAX_SPANS = 400
"""Spans of numbers that are searched one by one, each in about 40 microseconds; more are joined."""
_MIN_GAP = 32


def scope_conditions(scope: SearchScope) -> tuple[list[str], list[str]]:
    """Conditions for rows of `sessions`, and their values."""
    given = {
        "key = ?": [scope.key] if scope.key else [],
        "workdir = ?": [scope.workdir] if scope.workdir else [],
        "platform = ? AND user_id = ?": [scope.owner.platform, scope.owner.user] if scope.owner else [],
        "(id = ? OR id IN (SELECT ancestor_id FROM session_ancestors WHERE session_id = ?))": [scope.session] * 2
        if scope.session
        else [],
    }
    conditions = {condition: values for condition, values in given.items() if values}
    return list(conditions), [clean_text(value) for values in conditions.values() for value in values]


class ScopedMessages:
    """The messages of a scope: the spans of numbers they are in, newest first."""

    def __init__(self, db: Connection, scope: SearchScope) -> None:
        self._numbers: set[int] | None = None
        if scope.is_everything:
            (last,) = db.execute("SELECT coalesce(max(number), 0) FROM messages").fetchone()
            self.spans: Sequence[Span] = ((0, last),)
            return
        sql = "SELECT number FROM messages WHERE session_id = ?"
        numbers = [number for id in list_sessions(db, scope) for (number,) in db.execute(sql, (id,))]
        self._numbers = set(numbers)
        self.spans = find_spans(numbers)
        assert isinstance(db, sqlite3.Connection)
        db.create_function("in_scope", 1, self.has)

    def has(self, number: int) -> bool:
        return self._numbers is None or number in self._numbers

    @property
    def count(self) -> int:
        """How many messages are in a scope."""
        return len(self._numbers or ())

    @property
    def is_scoped(self) -> bool:
        """False: all messages are in it. Otherwise queries filter with the SQL function `in_scope(number)`."""
        return self._numbers is not None


def list_sessions(db: Connection, scope: SearchScope) -> list[str]:
    """Ids of the conversations in the scope, with those of their subagents."""
    conditions, values = scope_conditions(scope)
    sql = f"""WITH RECURSIVE visible (id) AS (
        SELECT id FROM sessions WHERE {" AND ".join(conditions) or "1 = 1"} UNION
        SELECT turns.session_id FROM visible JOIN turns
            ON turns.origin_session = visible.id AND turns.platform = 'subagent')
        SELECT id FROM visible"""
    return [id for (id,) in db.execute(sql, values)]


def find_spans(numbers: Sequence[int]) -> list[Span]:
    """Few spans that hold all numbers, newest first: numbers that are close to each other share one."""
    gap, spans = _MIN_GAP, list(_join(sorted(numbers), _MIN_GAP))
    while len(spans) > MAX_SPANS:
        gap *= 4
        spans = list(_join(sorted(numbers), gap))
    return spans[::-1]


def _join(numbers: Sequence[int], gap: int) -> Iterator[Span]:
    first = last = None
    for number in numbers:
        if first is None or last is None:
            first = number
        elif number - last > gap:
            yield first, last
            first = number
        last = number
    if first is not None and last is not None:
        yield first, last
