"""The usage report: collected from the store and drawn with plain characters."""

import time
from collections.abc import Callable

from msgspec import Struct

from alipes.kernel.errors import SessionError
from alipes.kernel.formatting import (
    ID,
    format_columns,
    format_cost,
    format_count,
    format_excerpt,
    format_money,
    format_usage,
)
from alipes.kernel.turns import Usage
from alipes.store.ports.archive import Archive, UsageGrouping, UsageSum

WIDTH = 40
"""Characters of the longest bar."""
MOST = 8
"""Conversations that are listed by name."""
NO_TOOL = "not for a tool"


def spent(sum: UsageSum) -> str:
    if not sum.calls:
        return "nothing yet"
    parts = format_count(sum.calls, "call"), format_usage(sum.usage), format_cost(sum.usage, sum.calls, sum.unpriced)
    return " · ".join(filter(None, parts))


class UsageReport(Struct, frozen=True):
    days: int
    """Number of days, including today."""
    total: UsageSum
    by_day: tuple[UsageSum, ...]
    """Every day, also those without a call, oldest first."""
    by_model: tuple[UsageSum, ...]
    by_session: tuple[UsageSum, ...]
    by_task: tuple[UsageSum, ...]
    by_tool: tuple[UsageSum, ...]
    by_key: tuple[UsageSum, ...]
    """By the variable of the key, for providers that have several."""
    titles: dict[str, str]
    """By session, for those that still exist."""


async def report(archive: Archive, days: int, clock: Callable[[], float] = time.time) -> UsageReport:
    async def by(group: UsageGrouping) -> tuple[UsageSum, ...]:
        return tuple(await archive.usage_by(group, days=days))

    sessions = tuple(sorted(await by("session"), key=_weight, reverse=True))
    return UsageReport(
        days=days,
        total=await archive.usage(days=days),
        by_day=_every(await by("day"), days, clock()),
        by_model=await by("model"),
        by_session=sessions,
        by_task=await by("task"),
        by_tool=await by("tool"),
        by_key=await by("key"),
        titles=await _titles(archive, [each.name for each in sessions[:MOST]]),
    )


async def _titles(archive: Archive, sessions: list[str]) -> dict[str, str]:
    titles: dict[str, str] = {}
    for session in sessions:
        try:
            titles[session] = (await archive.resolve(session)).title
        except SessionError:  # called by a plugin outside any conversation, or deleted
            continue
    return titles


def _every(found: tuple[UsageSum, ...], days: int, now: float) -> tuple[UsageSum, ...]:
    by_name = {each.name: each for each in found}
    year, month, day, *_ = time.localtime(now)
    noons = [time.mktime((year, month, day - back, 12, 0, 0, 0, 0, -1)) for back in range(days - 1, -1, -1)]
    names = [time.strftime("%Y-%m-%d", time.localtime(noon)) for noon in noons]
    return tuple(by_name.get(name, UsageSum(name, 0, Usage(), 0)) for name in names)


def lines(report: UsageReport) -> list[str]:
    if not report.total.calls:
        return [f"No model calls in the last {format_count(report.days, 'day')}."]
    since = "today" if report.days == 1 else f"in the last {report.days} days"
    output = [f"{since}: {spent(report.total)}", "", *plot(report.by_day)]
    sessions = [(_session(each, report.titles), spent(each)) for each in report.by_session[:MOST]]
    if len(report.by_session) > MOST:
        sessions.append((f"and {len(report.by_session) - MOST} more", ""))
    for head, rows in (
        ("by model", [(each.name or "unknown", spent(each)) for each in report.by_model]),
        ("by conversation", sessions),
        ("by task", [("answers" if each.name == "answer" else each.name, spent(each)) for each in report.by_task]),
        ("by tool", [(each.name or NO_TOOL, spent(each)) for each in report.by_tool]),
        ("by key", [(each.name, spent(each)) for each in report.by_key]),
    ):
        if not rows:
            continue
        table = format_columns([(f"  {name}", text or " ") for name, text in rows])
        output += ["", head, *(line.rstrip() for line in table.splitlines())]
    return output


def plot(days: tuple[UsageSum, ...]) -> list[str]:
    """A bar per day: by cost if prices are known, else by tokens. Leading idle days are left out."""
    first = next((place for place, each in enumerate(days) if each.calls), len(days))
    days = days[first:]
    priced = any(each.usage.cost for each in days) and not any(each.unpriced for each in days)
    sizes = [(each.usage.cost or 0.0) if priced else float(_tokens(each)) for each in days]
    longest = max(sizes, default=0.0) or 1.0
    bars = ["#" * max(round(WIDTH * size / longest), bool(size)) for size in sizes]
    return [
        f"{each.name}  {bar:<{WIDTH}}  {_said(each, priced)}".rstrip() for each, bar in zip(days, bars, strict=True)
    ]


def _said(each: UsageSum, priced: bool) -> str:
    if not each.calls:
        return ""
    return format_money(each.usage.cost or 0.0) if priced else f"{_tokens(each):,} tokens"


def _tokens(each: UsageSum) -> int:
    return each.usage.input + each.usage.output


def _weight(each: UsageSum) -> tuple[float, int]:
    return each.usage.cost or 0.0, _tokens(each)


def _session(each: UsageSum, titles: dict[str, str]) -> str:
    title = titles.get(each.name, "")
    return f"{each.name[:ID]} {format_excerpt(title, 32)}" if title else each.name[:ID] or "outside"
