"""What was used, day by day and by what: gathered from the bill, and drawn with plain characters."""

import time
from collections.abc import Callable

from msgspec import Struct

from alipes.kernel.formatting import aligned, brief, count, money, tokens
from alipes.kernel.turns import Usage
from alipes.store.archive import Archive
from alipes.store.export import Grouping, SessionError, Spent

ID = 6
"""Letters of an id that are shown; any beginning that is unique will do."""


def cost(spent: Spent) -> str:
    """What it cost; a price that is unknown is never taken for nothing."""
    if spent.unpriced == spent.calls:
        return "price unknown" if spent.calls else "$0.00"
    known = money(spent.usage.cost or 0.0)
    return known if not spent.unpriced else f"{known} and {count(spent.unpriced, 'call')} of unknown price"


def spent(sum: Spent) -> str:
    if not sum.calls:
        return "nothing yet"
    return f"{count(sum.calls, 'call')} · {tokens(sum.usage)} · {cost(sum)}"


WIDTH = 40
"""Characters of the longest bar."""
MOST = 8
"""Conversations that are named; the rest is summed up."""
TASKS = {"answer": "answers"}
NO_TOOL = "no tool"


class Report(Struct, frozen=True):
    days: int
    """So many, with today."""
    total: Spent
    by_day: tuple[Spent, ...]
    """Every day, also those without a call, the oldest first."""
    by_model: tuple[Spent, ...]
    by_session: tuple[Spent, ...]
    by_task: tuple[Spent, ...]
    by_tool: tuple[Spent, ...]
    titles: dict[str, str]
    """By session, of those that are still there."""


async def report(archive: Archive, days: int, clock: Callable[[], float] = time.time) -> Report:
    async def by(group: Grouping) -> tuple[Spent, ...]:
        return tuple(await archive.usage_by(group, days=days))

    sessions = tuple(sorted(await by("session"), key=_weight, reverse=True))
    return Report(
        days=days,
        total=await archive.usage(days=days),
        by_day=_every(await by("day"), days, clock()),
        by_model=await by("model"),
        by_session=sessions,
        by_task=await by("task"),
        by_tool=await by("tool"),
        titles=await _titles(archive, [each.name for each in sessions[:MOST]]),
    )


async def _titles(archive: Archive, sessions: list[str]) -> dict[str, str]:
    titles: dict[str, str] = {}
    for session in sessions:
        try:
            titles[session] = (await archive.resolve(session)).title
        except SessionError:  # a plugin asked outside every conversation, or it was deleted
            continue
    return titles


def _every(found: tuple[Spent, ...], days: int, now: float) -> tuple[Spent, ...]:
    by_name = {each.name: each for each in found}
    year, month, day, *_ = time.localtime(now)
    noons = [time.mktime((year, month, day - back, 12, 0, 0, 0, 0, -1)) for back in range(days - 1, -1, -1)]
    names = [time.strftime("%Y-%m-%d", time.localtime(noon)) for noon in noons]
    return tuple(by_name.get(name, Spent(name, 0, Usage(), 0)) for name in names)


def lines(report: Report) -> list[str]:
    """The report for people."""
    if not report.total.calls:
        return [f"No model was asked in the last {count(report.days, 'day')}."]
    since = "today" if report.days == 1 else f"in the last {report.days} days"
    told = [f"{since}: {spent(report.total)}", "", *plot(report.by_day)]
    sessions = [(_session(each, report.titles), spent(each)) for each in report.by_session[:MOST]]
    if len(report.by_session) > MOST:
        sessions.append((f"and {len(report.by_session) - MOST} more", ""))
    for head, rows in (
        ("by model", [(each.name or "unknown", spent(each)) for each in report.by_model]),
        ("by conversation", sessions),
        ("by task", [(TASKS.get(each.name, each.name), spent(each)) for each in report.by_task]),
        ("by tool", [(each.name or NO_TOOL, spent(each)) for each in report.by_tool]),
    ):
        table = aligned([(f"  {name}", text or " ") for name, text in rows])
        told += ["", head, *(line.rstrip() for line in table.splitlines())]
    return told


def plot(days: tuple[Spent, ...]) -> list[str]:
    """A bar for each day: by cost where prices are known, else by tokens. Idle days at the start are left
    out."""
    first = next((place for place, each in enumerate(days) if each.calls), len(days))
    days = days[first:]
    priced = any(each.usage.cost for each in days) and not any(each.unpriced for each in days)
    sizes = [(each.usage.cost or 0.0) if priced else float(_tokens(each)) for each in days]
    longest = max(sizes, default=0.0) or 1.0
    bars = ["#" * max(round(WIDTH * size / longest), bool(size)) for size in sizes]
    return [
        f"{each.name}  {bar:<{WIDTH}}  {_said(each, priced)}".rstrip()
        for each, bar in zip(days, bars, strict=True)
    ]


def _said(each: Spent, priced: bool) -> str:
    if not each.calls:
        return ""
    return money(each.usage.cost or 0.0) if priced else f"{_tokens(each):,} tokens"


def _tokens(each: Spent) -> int:
    return each.usage.input + each.usage.output


def _weight(each: Spent) -> tuple[float, int]:
    return each.usage.cost or 0.0, _tokens(each)


def _session(each: Spent, titles: dict[str, str]) -> str:
    title = titles.get(each.name, "")
    return f"{each.name[:ID]} {brief(title, 32)}" if title else each.name[:ID] or "outside"
