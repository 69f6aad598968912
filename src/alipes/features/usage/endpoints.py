"""Endpoint for usage: tokens and cost by day, model, task, surface and conversation, in a time zone."""

import csv
import io
import math
import time
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta, tzinfo
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.config.settings import Amount, SpendConfig
from alipes.config.time_zones import find_local_zone, find_zone
from alipes.features.server import Server
from alipes.features.usage.feature import UsageFeature
from alipes.features.usage.store import UsageColumn, UsageDay, UsageReports, UsageRow
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Usage
from alipes.store.ports.archive import Archive
from alipes.web.endpoint import NO_STORE, ApiCall, ApiEndpoint, HttpProblem, endpoints_of, json_response
from alipes.web.runs.lookup import visible_scope

DEFAULT_DAYS, MAX_DAYS = 30, 3700
COLUMNS: tuple[UsageColumn, ...] = get_args(UsageColumn)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a cell starts that a spreadsheet would run."""
Day = Annotated[str, Meta(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$")]


class UsageQuery(Struct, frozen=True, rename={"start": "from", "end": "to"}):
    start: Day = ""
    """The first day, as 2026-11-18; by default 30 days ago."""
    end: Day = ""
    """The last day; by default today."""
    zone: Annotated[str, Meta(max_length=60)] = ""
    """Time zone in which days begin, such as Europe/Rome; by default that of the server."""
    by: Annotated[str, Meta(max_length=60)] = "day,model"
    """What to group by, separated by commas: day, model, task, surface, session."""
    format: Literal["json", "csv"] = "json"
    limit: Annotated[int, Meta(ge=1, le=50_000)] = 1_000


class UsageFigures(Struct, frozen=True):
    calls: int = 0
    input: int = 0
    """Tokens, with cached ones."""
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None
    """US dollars; null if no price is known."""
    unpriced: int = 0
    """Calls whose price is unknown; they are not in `cost`."""


class UsageDocument(UsageFigures, frozen=True, omit_defaults=True):
    day: str = ""
    model: str = ""
    task: str = ""
    surface: str = ""
    session: str = ""
    title: str = ""


class LimitDocument(Struct, frozen=True):
    name: str
    """The setting."""
    limit: float
    used: float | None
    """Null for limits of a single run or conversation."""
    unit: Literal["usd", "tokens"]
    period: Literal["turn", "conversation", "day"]


class UsageTable(Struct, frozen=True, rename={"start": "from", "end": "to"}):
    zone: str
    start: str
    end: str
    rows: tuple[UsageDocument, ...]
    total: UsageFigures
    limits: tuple[LimitDocument, ...]
    more: bool
    """There are more rows than `limit`."""


class UsageEndpoints:
    def __init__(self, archive: Archive, reports: UsageReports, spend: SpendConfig) -> None:
        """`spend`: the limits that are shown beside."""
        self._archive, self._reports, self._spend = archive, reports, spend

    @ApiEndpoint("GET", "/v1/usage", "read", query=UsageQuery, answer=UsageTable)
    async def report(self, call: ApiCall) -> Response:
        """Get tokens and cost by day, model, task, surface or conversation; as JSON or CSV."""
        query: UsageQuery = call.query
        name = query.zone or find_local_zone()
        zone, by = _parse_zone(name), _parse_columns(query.by)
        days, scope = _list_days(query, zone), visible_scope(call.caller)
        rows = await self._reports.report(days, by, scope=scope, limit=query.limit + 1)
        shown, more = rows[: query.limit], len(rows) > query.limit
        if query.format == "csv":
            headers = {**NO_STORE, "content-disposition": 'attachment; filename="usage.csv"'}
            return Response(_to_csv(shown, by), media_type="text/csv", headers=headers)
        (total,) = await self._reports.report(days, (), scope=scope) or [UsageRow({}, "", 0, Usage(), 0)]
        limits = await self._limits() if scope.is_everything else ()
        figures = msgspec.convert(_figures(total), UsageFigures)
        documents = tuple(map(_to_document, shown))
        return json_response(UsageTable(name, days[0].name, days[-1].name, documents, figures, limits, more))

    async def _limits(self) -> tuple[LimitDocument, ...]:
        spend = self._spend
        limits = list[LimitDocument]()
        if spend.per_day is not None:
            today = (await self._archive.usage(days=1)).usage
            used = today.cost or 0.0 if spend.per_day.dollars is not None else today.input + today.output
            limits.append(_to_limit("spend.per_day", spend.per_day, used, "day"))
        if spend.per_session is not None:
            limits.append(_to_limit("spend.per_session", spend.per_session, None, "conversation"))
        if spend.per_turn is not None:
            limits.append(_to_limit("spend.per_turn", spend.per_turn, None, "turn"))
        return tuple(limits)


def _to_limit(
    name: str, amount: Amount, used: float | None, period: Literal["turn", "conversation", "day"]
) -> LimitDocument:
    if amount.dollars is not None:
        return LimitDocument(name, amount.dollars, used, "usd", period)
    return LimitDocument(name, amount.tokens or 0, used, "tokens", period)


def _parse_zone(name: str) -> tzinfo:
    try:
        return find_zone(name)
    except ConfigError as error:
        raise HttpProblem(422, str(error), code="query") from error


def _parse_columns(text: str) -> tuple[UsageColumn, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    found = tuple(each for each in COLUMNS if each in words)
    if unknown := [word for word in words if word not in COLUMNS]:
        why = f"cannot group by {unknown[0]!r}; use {', '.join(COLUMNS)}"
        raise HttpProblem(422, why, code="query")
    return found


def _list_days(query: UsageQuery, zone: tzinfo) -> list[UsageDay]:
    today = datetime.fromtimestamp(time.time(), zone).date()
    last = _parse_day(query.end) or today
    first = _parse_day(query.start) or date.fromordinal(max(last.toordinal() - DEFAULT_DAYS + 1, 1))
    count = (last - first).days + 1
    if not 1 <= count <= MAX_DAYS or not 1971 <= first.year <= last.year <= 9000:
        raise HttpProblem(422, f"`from` must be before `to`, and at most {MAX_DAYS} days", code="query")
    starts = [_midnight(first + timedelta(days=n), zone) for n in range(count + 1)]
    names = [(first + timedelta(days=n)).isoformat() for n in range(count)]
    return [UsageDay(name, starts[n], starts[n + 1]) for n, name in enumerate(names)]


def _midnight(day: date, zone: tzinfo) -> float:
    return math.floor(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())


def _parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise HttpProblem(422, f"{text} is not a day", code="query") from error


def _figures(row: UsageRow) -> dict[str, int | float | None]:
    usage = row.usage
    return {
        "calls": row.calls,
        "input": usage.input,
        "output": usage.output,
        "cached": usage.cached,
        "cache_write": usage.cache_write,
        "reasoning": usage.reasoning,
        "cost": None if usage.cost is None else round(usage.cost, 9),
        "unpriced": row.unpriced,
    }


def _to_document(row: UsageRow) -> UsageDocument:
    return UsageDocument(**_figures(row), **row.groups, title=row.title)  # type: ignore[arg-type]


def _to_csv(rows: Sequence[UsageRow], by: Sequence[UsageColumn]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    names = [*by, *(["title"] if "session" in by else [])]
    writer.writerow([*names, *UsageFigures.__struct_fields__])
    for row in rows:
        groups = [row.groups.get(name, "") for name in by] + ([row.title] if "session" in by else [])
        writer.writerow([*map(_escape_cell, groups), *_figures(row).values()])
    return text.getvalue().encode("utf-8", "replace")


def _escape_cell(text: str) -> str:
    """A cell that a spreadsheet shows and does not run."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def endpoints(feature: UsageFeature, _server: Server) -> Iterable[ApiEndpoint]:
    app = feature.app
    return endpoints_of(UsageEndpoints(app.store.archive, feature.reports, app.settings.spend))
