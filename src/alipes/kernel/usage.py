"""Usage of model calls and the stored compaction of conversations: values and ports."""

from typing import Protocol

from msgspec import Struct

from alipes.kernel.turns import CompactionState, Turn, Usage


class UsageRecord(Struct, frozen=True):
    """One model call that is not part of a transcript."""

    turn: Turn
    task: str
    model: str
    usage: Usage
    tool: str = ""
    """The tool that made the call; empty: none."""


class UsageTotal(Struct, frozen=True):
    """Total usage of a turn, a session or a period."""

    dollars: float = 0.0
    tokens: int = 0
    unpriced: int = 0
    """Calls of unknown price, which are not included in `dollars`."""


class CompactionAttempts(Struct, frozen=True):
    """Failed compaction attempts in a row, and the last reason."""

    count: int = 0
    why: str = ""


class UsageLedger(Protocol):
    """The usage of every model call of a home."""

    async def add(self, entry: UsageRecord) -> None: ...

    async def root_turn(self, turn: Turn) -> Turn:
        """The person's turn that this turn works for in the end; the turn itself if it works for none."""

    async def turn_total(self, root: Turn) -> UsageTotal:
        """Usage of the turn and of all turns that worked for it."""

    async def session_total(self, session: str) -> UsageTotal:
        """Usage of the session's turns and of all turns that worked for them."""

    async def total_since(self, moment: float) -> UsageTotal: ...


class CompactionStore(Protocol):
    """Stored compaction states. Each is added, none is changed; messages never change."""

    async def save(self, turn: Turn, digest: CompactionState, *, living: int = 0, helped: bool = True) -> bool:
        """Use it from now on; `helped`: reset the count of failed attempts.

        `living`: on behalf of a running turn of ours that knows this many messages; raises `Fenced` like
        `record`. Otherwise it is saved for the conversation as it was when `turn` was read. Returns False,
        and saves nothing, if some of those messages were undone since.
        """

    async def latest(self, session: str) -> Turn | None:
        """The conversation as the history of its last turn; None if it is empty."""

    async def size(self, session: str) -> int:
        """The tokens of its last call, input and output; zero if there was none since it was compacted."""

    async def attempts(self, session: str) -> CompactionAttempts: ...

    async def record_failure(self, session: str, why: str) -> None:
        """One more failed attempt."""

    async def reset_attempts(self, session: str) -> None:
        """Allow new attempts, because a person asked for it."""
