"""Usage of skills, and reports of the usage of model calls."""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.turns import Turn, Usage
from alipes.store.ports.search import EVERYTHING, SearchScope


class SkillUsage(Struct, frozen=True):
    """How often a skill was used, and with what success."""

    skill: str
    uses: int
    """Turns that used it."""
    answered: int
    """Those that ended with an answer."""
    failed: int
    """Those that failed, were stopped or ran out of steps."""
    last: float


class SkillUseStore(Protocol):
    async def add(self, turn: Turn, skill: str, how: str) -> None:
        """Record that a turn read a skill. Once per turn."""

    async def totals(self) -> dict[str, SkillUsage]:
        """By the name of the skill."""


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


class UsageReports(Protocol):
    async def report(
        self, days: Sequence[UsageDay], by: Sequence[UsageColumn], *, scope: SearchScope = EVERYTHING, limit: int = 0
    ) -> list[UsageRow]:
        """One row for each combination, by day and then by cost; all days together if `day` is not in `by`. Periods
        begin and end with a quarter of an hour, as days do in every time zone. `limit`: at most that many; zero: all.
        """
