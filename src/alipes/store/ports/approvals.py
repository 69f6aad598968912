"""Questions to people, the answers and the rights they give; and untrusted text that was read."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.turns import Address, ApprovalChoice, Turn

StandingChoice: TypeAlias = Literal["session", "always"]


class Approval(Struct, frozen=True):
    """A question about a call, and its answer."""

    id: str
    session: str
    """The conversation that was asked; empty for an approval of an older release."""
    key: str
    turn: str
    """The turn that asked."""
    tool: str
    arguments: str
    """JSON, without secrets."""
    workdir: str
    reason: str
    rule: str
    """Exactly what `session` and `always` allow."""
    asked_at: float
    choice: ApprovalChoice | None = None
    """None: nobody has answered yet."""
    answered_by: str = ""
    answered_at: float | None = None
    revoked_at: float | None = None
    pattern: str = ""
    """The pattern of commands that `always` allows in `workdir`; empty: exactly the rule."""
    note: str = ""
    """Why not, in the person's words."""

    @property
    def state(self) -> str:
        return "open" if self.choice is None else "revoked" if self.revoked_at else self.choice


class StandingRight(Struct, frozen=True):
    """An earlier answer that allows a call."""

    choice: StandingChoice
    confirmed: bool
    """False: untrusted text was read since the person gave it, so the person must be asked again."""


class ApprovalStore(Protocol):
    """Every method is one transaction, and nothing is remembered: a right that is revoked ends at once in every
    process. A question can be answered once."""

    async def ask(self, approval: Approval, sources: Collection[str] = ()) -> None:
        """Store an open question; `sources`: what the conversation has read of untrusted text."""

    async def find_waiting(self, turn: str, rule: str, reason: str) -> Approval | None:
        """The same question of this turn from before a restart, if the turn has not acted on an answer yet."""

    async def answer(self, id: str, choice: ApprovalChoice, by: str, *, pattern: str = "", note: str = "") -> bool:
        """False if it is not open: only the first answer counts, from whichever process."""

    async def allow_pattern(self, approval: Approval) -> None:
        """Store a right that a person gave without being asked."""

    async def list_patterns(self, workdir: str) -> tuple[Approval, ...]:
        """The patterns of commands that are allowed in the folder, oldest first."""

    async def list_decided(self, session: str, limit: int) -> tuple[Approval, ...]:
        """The last answered questions of a conversation, oldest first."""

    async def take(self, id: str) -> None:
        """The turn is about to act on the answer, which counts once."""

    async def find_right(
        self, rule: str, session: str, turn: str, sources: Collection[str] = (), *, patterns: Collection[str] = ()
    ) -> StandingRight | None:
        """The right to do exactly this in the conversation, or what `patterns` cover. After untrusted text was read,
        it counts as confirmed if a person who was asked with these `sources`, or since then in this turn, said yes.

        `patterns`: ids of the approvals whose patterns cover the call."""

    async def list_current(self) -> tuple[Approval, ...]:
        """Open questions of unfinished turns, then rights in force, oldest first; of equal rights the newest."""

    async def find(self, id: str) -> Approval:
        """The approval with this id or the start of it. Raises `SessionError`."""

    async def revoke(self, approval: Approval) -> bool:
        """End the right, however often it was given. False if it gives none."""

    async def revoke_all(self) -> int:
        """End every right in force; returns how many there were."""


class UntrustedSourceStore(Protocol):
    """Which text of strangers, and which secrets, conversations have read."""

    async def add(self, turn: Turn, source: str, label: str) -> None:
        """The turn has read it; so have the conversations it works for, which get its result."""

    async def inherit(self, turn: Turn, sessions: Sequence[str]) -> None:
        """The turn has read text of these conversations, and so what they had read."""

    async def list_read(self, turn: Turn) -> Mapping[str, str]:
        """By source, what the turn's conversation has read, with the one it was branched from or works for."""


class StoredQuestion(Struct, frozen=True):
    """A question of the model."""

    id: str
    session: str
    key: str
    turn: str
    question: str
    choices: tuple[str, ...]
    asked_at: float
    until: float
    answer: str = ""
    answered_by: str = ""
    answered_at: float | None = None


class OpenQuestion(Struct, frozen=True):
    """An open question and the conversation that is asked."""

    asked: Approval | StoredQuestion
    session: str
    title: str
    address: Address


class QuestionStore(Protocol):
    async def ask(self, question: StoredQuestion) -> None:
        """Store an open question. The same one of an earlier process is replaced: its turn asks again."""

    async def answer(self, id: str, text: str, by: str) -> bool:
        """Record an answer; False if the question was answered before. A question that is not stored is not refused."""

    async def close(self, id: str) -> None:
        """Nobody waits for the answer any longer."""

    async def find(self, id: str) -> Approval | StoredQuestion | None:
        """The question with this id, answered or not."""

    async def list_open(self, session: str = "") -> tuple[OpenQuestion, ...]:
        """The open questions of unfinished turns, oldest first; with `session`, only of this conversation."""

    async def has_open(self, key: str) -> bool:
        """False if no question of the session `key` is open. A question whose time is over may count."""
