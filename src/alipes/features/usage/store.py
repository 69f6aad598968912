"""Usage of model calls by day, model, task, surface and conversation, from the running sums."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.turns import Usage
from alipes.store import export
from alipes.store.ports.search import EVERYTHING, SearchScope
from alipes.store.search.scope import scope_conditions
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import SqlRows, usage_from_row

UsageColumn: TypeAlias = Literal["day", "model", "task", "surface", "session"]


class UsageDay(Struct, frozen=True):
    """A day, or any other period, from `start` to before `end` (seconds since the epoch)."""

    name: str
    start: float
    end: float


class UsageRow(Struct, frozen=True):
    groups: dict[UsageColumn, str]
    title: str
    """Of the conversation, if rows are by conversation."""
    calls: int
    usage: Usage
    unpriced: int
    """Calls whose price is unknown; they are not in `usage.cost`."""


QUARTER_S = 900
_SUMS = """sum(calls), sum(input), sum(output), sum(cached), sum(cache_write), sum(reasoning),
    CASE WHEN sum(priced) > 0 THEN sum(cost) END, sum(calls) - sum(priced)"""
_EXPRESSIONS: dict[UsageColumn, str] = {
    "day": "days.name",
    "model": "sums.model",
    "task": "sums.task",
    "surface": "coalesce(sessions.platform, '')",
    "session": "session_id",
}


class UsageReports(SqlRows):
    async def report(
        self, days: Sequence[UsageDay], by: Sequence[UsageColumn], *, scope: SearchScope = EVERYTHING, limit: int = 0
    ) -> list[UsageRow]:
        """One row for each combination, by day and then by cost; all days together if `day` is not in `by`. Periods
        begin and end with a quarter of an hour, as days do in every time zone. `limit`: at most that many; zero: all.
        """
        periods = days if "day" in by or not days else [UsageDay("", days[0].start, days[-1].end)]
        return await self._database.read_long(lambda db: _report(db, periods, by, scope, limit))


def _report(
    db: Connection, days: Sequence[UsageDay], by: Sequence[UsageColumn], scope: SearchScope, limit: int
) -> list[UsageRow]:
    if not days:
        return []
    conditions, values = scope_conditions(scope)
    of_sessions = bool(conditions) or "surface" in by or "session" in by
    table = (
        "session_usage_sums AS sums LEFT JOIN sessions ON sessions.id = session_id"
        if of_sessions
        else "usage_sums AS sums"
    )
    groups = ", ".join(_EXPRESSIONS[each] for each in by)
    title = "min(sessions.title), min(sessions.first_text)" if "session" in by else "'', ''"
    spans = [value for day in days for value in (day.name, int(day.start // QUARTER_S), int(day.end // QUARTER_S))]
    sql = f"""WITH days (name, first, last) AS (VALUES {", ".join(["(?, ?, ?)"] * len(days))})
        SELECT {title}, {_SUMS} {f", {groups}" if groups else ""} FROM days CROSS JOIN {table}
        WHERE quarter >= first AND quarter < last {"".join(f" AND {each}" for each in conditions)}
        {f"GROUP BY {groups}" if groups else ""}
        ORDER BY {"days.name, " if "day" in by else ""} sum(cost) DESC, sum(input) + sum(output) DESC
        {"LIMIT ?" if limit else ""}"""
    rows = db.execute(sql, (*spans, *values, *([limit] if limit else [])))
    return [_to_row(row, by) for row in rows if row[2]]


def _to_row(row: tuple[Any, ...], by: Sequence[UsageColumn]) -> UsageRow:
    title, text, calls, *sums, unpriced = row[:10]
    shown = title or (export.title_from_text(text) if text else "")
    return UsageRow(dict(zip(by, row[10:], strict=True)), shown, calls, usage_from_row(tuple(sums)), unpriced)
