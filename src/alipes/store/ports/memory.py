"""Notes in the prompts of conversations, every change of the files, and proposals that wait for a decision."""

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.features.memory.change import MemoryChange, MemoryTarget


class MemoryStore(Protocol):
    """The files themselves are not here: their text is compared with the last change, so a hand edit is noticed."""

    async def find_snapshot(self, session: str) -> tuple[str, str] | None:
        """The scope and text of the conversation's notes. A branch gets those of the conversation it began in."""

    async def save_snapshot(self, session: str, scope: str, text: str) -> None: ...

    async def last_text(self, scope: str, target: MemoryTarget) -> str | None:
        """The file after its last recorded change; None if there was none."""

    async def record(self, change: MemoryChange, *, undoes: int = 0) -> MemoryChange:
        """Store a change; returns it with its number. `undoes`: the change that it takes back."""

    async def list_changes(self, scope: str, limit: int) -> tuple[MemoryChange, ...]:
        """The last changes, newest first."""

    async def list_scopes(self) -> tuple[str, ...]:
        """The scopes with changes."""

    async def find_change(self, scope: str, number: int) -> MemoryChange | None:
        """A change of this scope; of others nothing is found."""


ProposalKind: TypeAlias = Literal["memory", "skill"]


ProposalState: TypeAlias = Literal["pending", "accepted", "rejected"]


class Proposal(Struct, frozen=True):
    id: str
    kind: ProposalKind
    scope: str
    """Whose it is; see `memory_scope`."""
    change: str
    """JSON, by kind."""
    reason: str
    session: str
    turn: str
    sources: tuple[str, ...] = ()
    """The untrusted text that the conversation had read."""
    created: float = 0.0
    state: ProposalState = "pending"


class ProposalStore(Protocol):
    """A proposal is decided once, by whichever process is first."""

    async def add(self, proposal: Proposal) -> Proposal:
        """Store it under a new id. If the same change is pending already, that one is returned."""

    async def list_pending(self, scope: str, kind: ProposalKind | None = None) -> tuple[Proposal, ...]:
        """Oldest first."""

    async def find_pending(self, scope: str, id: str) -> Proposal:
        """The pending proposal with this id or the start of it. Raises `SessionError`."""

    async def find(self, id: str) -> Proposal | None:
        """The proposal with this id, decided or not."""

    async def decide(self, id: str, state: ProposalState, by: str) -> bool:
        """False if it was decided before."""

    async def replace_change(self, id: str, change: str) -> bool:
        """Give a pending proposal another content. False if it was decided."""

    async def count_pending(self) -> int:
        """How many wait for a decision, of everybody."""

    async def count_calls(self, task: str, since: float) -> int:
        """How many model calls a task made since then, in all conversations."""
