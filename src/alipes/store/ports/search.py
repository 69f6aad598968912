"""Which conversations a search covers, what it finds, and the indexes that it uses."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from alipes.kernel.messages import Role
from alipes.kernel.turns import Address

TRIGRAMS = "trigrams"
"""The index of parts of words."""


class SessionOwner(Struct, frozen=True):
    """Selects the conversations of one user on a platform."""

    platform: str
    user: str

    def has(self, address: Address) -> bool:
        return (address.platform, address.user) == (self.platform, self.user)


class SearchScope(Struct, frozen=True, omit_defaults=True):
    """The conversations that a person may see or asks for. All conditions that are given must hold; none: everything.

    The conversations of subagents count like the one that they work for.
    """

    key: str = ""
    """Those of this chat, the active one and earlier ones."""
    owner: SessionOwner | None = None
    session: str = ""
    """Only this one, with what it shares as a branch."""
    workdir: str = ""
    """Those whose last turn worked in this folder."""

    @property
    def is_everything(self) -> bool:
        return self == EVERYTHING


EVERYTHING = SearchScope()


class SearchHit(Struct, frozen=True):
    """A message that matches a search."""

    session: str
    title: str
    turn: str
    role: Role
    when: float
    snippet: str
    message: int = 0
    """Its number, for `around`."""
    platform: str = ""
    chat: str = ""
    workdir: str = ""
    parent: str = ""
    """The conversation that a subagent worked for; empty for others."""


class ContextMessage(Struct, frozen=True):
    """A message near a hit."""

    message: int
    role: Role
    when: float
    text: str


class SearchContext(Struct, frozen=True):
    """Messages around a hit, oldest first."""

    session: str
    title: str
    platform: str
    chat: str
    workdir: str
    messages: tuple[ContextMessage, ...]
    earlier: bool
    """There are messages before these."""
    later: bool


MAX_MESSAGES = 100
"""On each side."""


class SearchIndexer(Protocol):
    async def count_missing(self, limit: int, name: str = TRIGRAMS) -> int:
        """How many messages an index lacks, at most `limit`."""

    async def index_some(self) -> bool:
        """Index parts of words of some more messages; False if there are no more."""

    async def clean_some(self) -> bool:
        """Remove some deleted text from the indexes; False if there is no more."""

    async def next_texts(self, count: int) -> list[tuple[int, str]]:
        """Some messages without a vector, and their texts."""

    async def save_vectors(self, rows: Sequence[tuple[int, Sequence[float]]]) -> None:
        """Store the vectors of what `next_texts` returned."""

    async def find_similar(self, vector: Sequence[float]) -> list[int]:
        """Numbers of messages with a similar meaning, the most similar first."""
