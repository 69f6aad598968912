"""The stored conversations, for people: list, show, search, count, export, delete."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from alipes.kernel.messages import Json, Message
from alipes.kernel.turns import Address, Ending, Inbound, Usage
from alipes.store.ports.search import EVERYTHING, SearchContext, SearchHit, SearchScope

if TYPE_CHECKING:
    from alipes.store.sql.connection import Database

Tables = TypeVar("Tables")
UsageGrouping: TypeAlias = Literal["turn", "session", "day", "model", "task", "tool", "key"]


class UsageSum(Struct, frozen=True):
    """Tokens and cost of some model calls."""

    name: str
    """The group: the id of a turn or session, a day as 2026-11-15, a model, a task, a tool; or empty."""
    calls: int
    usage: Usage
    unpriced: int
    """Calls whose price is unknown; they are not in `usage.cost`."""


class SessionFacts(Struct, frozen=True):
    id: str
    key: str
    address: Address
    title: str
    """The title that was set; else the first words of the first message."""
    created: float
    updated: float
    turns: int
    unfinished: int
    messages: int
    spent: UsageSum
    parent: str = ""
    """The session it was branched from, or empty."""
    workdir: str = ""
    """The folder where its last turn worked; empty if it had none."""
    model: str = ""
    """The chosen model, else the one that answered last; empty if there is none."""


class TurnFacts(Struct, frozen=True):
    id: str
    session: str
    inbound: Inbound
    ending: Ending | None
    """None while it is queued or running."""
    detail: str
    attempts: int
    created: float
    ended: float | None
    said: tuple[Message, ...]
    spent: UsageSum
    held: bool = False
    """Queued, and kept back by a stop."""
    results: frozenset[str] = frozenset()
    """While it is unfinished: the tool calls with a recorded result, by id."""
    resume_at: float = 0.0
    """When it continues, if it waits for a limit; 0: it does not wait."""


class StoreFacts(Struct, frozen=True):
    path: str
    size: int
    wal: int
    """Size of the write-ahead log, which is part of the store."""
    schema: int
    sessions: int
    turns: int
    messages: int


CLEAN_STEPS = 20
"""Enough for a home with some thousand messages."""


class Archive(Protocol):
    """Sessions are named by their ids; `resolve` finds one for what a person typed.

    Raises `SessionError` for a session that does not exist.
    """

    def tables(self, kind: "Callable[[Database], Tables]") -> Tables:
        """The tables of a feature; see `Store.tables`."""

    async def sessions(
        self, limit: int = 50, words: str = "", *, scope: SearchScope = EVERYTHING
    ) -> list[SessionFacts]:
        """Sessions that are not empty, latest first; all `words` are in the title or the first message."""

    async def latest(self, platform: str, workdir: str = "") -> SessionFacts | None:
        """The most recent active conversation on the platform, if given in the folder `workdir`."""

    async def current(self, key: str) -> SessionFacts | None:
        """The active conversation of `key`."""

    async def resolve(self, name: str, *, title_start: bool = False) -> SessionFacts:
        """The session named by an id or its beginning, a key, a chat or a title, with `title_start` also by the start
        of its title."""

    async def find_own(self, name: str, key: str) -> list[str]:
        """Ids of the conversations of a chat that have this title, or an id that starts like this."""

    async def messages(self, session: str) -> tuple[Message, ...]:
        """The transcript as the model sees it: with shared turns of a branch, without undone ones."""

    async def context_tokens(self, session: str) -> int | None:
        """Input and output tokens of the last model call; None if there is none since the last compaction."""

    async def turn(self, id: str) -> TurnFacts | None: ...

    async def search(
        self,
        text: str,
        limit: int = 20,
        *,
        scope: SearchScope = EVERYTHING,
        marks: tuple[str, str] = ("[", "]"),
        similar: Sequence[int] = (),
    ) -> list[SearchHit]:
        """Messages that contain all words of `text`, best first; any text is a valid query.

        `similar`: numbers of messages that have a similar meaning; see `search.query`.
        """

    async def around(
        self, message: int, before: int = 5, after: int = 5, *, scope: SearchScope = EVERYTHING
    ) -> SearchContext:
        """The messages around a hit. Raises `SessionError` if it is not in the scope."""

    async def export(self, session: str) -> dict[str, Json]:
        """The whole session as JSON values; `export.to_markdown` makes a readable text of it."""

    async def delete(self, session: str, *, clean_steps: int = CLEAN_STEPS) -> None:
        """Delete it with its turns, its subagents' sessions and its search entries. Refused while a turn is
        unfinished.

        Its words leave the file with the clean-up of the search indexes, of which at most `clean_steps` are done here.
        """

    async def clean_indexes(self, steps: int = sys.maxsize) -> bool:
        """Remove deleted text from the search indexes; True if nothing of it is left after so many steps."""

    async def usage(self, *, session: str = "", turn: str = "", days: int = 0) -> UsageSum:
        """The total of a session, a turn, the last `days` days including today, or everything.

        Auxiliary model calls are included.
        """

    async def usage_by(self, group: UsageGrouping, *, session: str = "", days: int = 0) -> list[UsageSum]:
        """The totals per group, sorted by name; days are local ones."""

    async def facts(self) -> StoreFacts: ...

    async def check(self, *, repair: bool = False) -> list[str]:
        """The problems of the file, one sentence each; `repair`: rebuild the search index if it is wrong."""

    async def backup(self, target: str) -> None:
        """Copy the store as it is now while it is in use; the copy is complete and checked, or not made."""
