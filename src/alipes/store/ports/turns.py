"""Turns of a home: accepted, claimed, recorded and finished; and the turns of subagents."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from alipes.kernel.conversations import AdmittedTurn
from alipes.kernel.messages import Message
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import BusyMode, Ending, Inbound, JournalEvent, Op, Turn

OpeningMessages: TypeAlias = Callable[[Turn], tuple[Message, ...]]
"""The messages a turn starts with. May be called more than once, on any thread."""


class TurnStore(Protocol):
    """Every method returns after its rows are on disk, except for rows that nothing depends on before the next
    write, which reach the disk with it: a claim, the first message of a turn, an answer that makes calls
    (before any of them runs) or is sent to a chat (before it is sent), the end of an answered turn, and the
    release of a session. For `admit` see there.

    `before_claim` is awaited before each claim, so that the subscriptions of other processes are registered.
    """

    async def accept(self, inbound: Inbound) -> str | None:
        """The id of the new queued turn, or None if this inbound was accepted before."""

    def admit(
        self,
        inbound: Inbound,
        *,
        busy: BusyMode | None = None,
        usual: BusyMode = "queue",
        owed: tuple[Outbound, ...] = (),
    ) -> Awaitable[AdmittedTurn | None]:
        """Queue the message and return what is ahead of it; None if it was accepted before. `busy` was chosen
        for the message; otherwise the session's own mode applies, else `usual`; a message with settings of its own
        is then queued rather than steered. `owed`: messages to send, queued in the same transaction.

        The turn is visible to other reads as soon as the call is made, so it may start at once. The sender
        may forget the message only after the database has synced it.
        """

    async def claim_next(
        self, key: str, opening: OpeningMessages = lambda _turn: (), *, release: bool = False
    ) -> Turn | None:
        """Claim the oldest unfinished turn of the session `key` that is not held; None if there is none. `release`: in
        that case, release the session as well.

        Each claim raises the epoch and counts an attempt. The messages of `opening` are recorded in the same
        transaction and are `unpublished` in the turn. Raises `SessionHeld` while another live process holds
        the session.
        """

    async def record(self, turn: Turn, event: JournalEvent, *owed: Outbound) -> None:
        """Record what the turn did and, in the same transaction, the messages to send for it.

        Raises `Fenced` if a later claim exists.
        """

    async def finish(
        self, turn: Turn, ending: Ending, detail: str, *closing: Message, owed: tuple[Outbound, ...] = ()
    ) -> None:
        """Write the ending and, in the same transaction, the messages that close the transcript and the
        messages to send."""

    async def park(self, turn: Turn, until: float, reason: str, *, owed: tuple[Outbound, ...] = ()) -> None:
        """The turn waits for the limit of its provider: it cannot be claimed before `until` (seconds since the epoch),
        unless it is stopped or its conversation is left. `owed`: messages to send, queued in the same transaction.
        Raises `Fenced`."""

    async def list_parked(self, workdir: str = "") -> tuple[tuple[str, float], ...]:
        """Keys with a parked turn, and when it can be claimed, first ones first; only those that work in `workdir` or
        nowhere, if it is given."""

    async def release(self, key: str) -> None:
        """Release the session so that another process can claim it."""

    async def put_op(self, key: str, op: Op) -> None:
        """Store `op` for the current or next holder of the session."""

    async def take_ops(self, key: str) -> tuple[Op, ...]:
        """Take the stored ops, oldest first; each is returned once, and a stop of a turn that is queued behind
        another stays until that turn is first.

        Raises `SessionHeld` while another running process holds the session.
        """

    async def list_orphans(self, begun: int = 0, workdir: str = "") -> tuple[str, ...]:
        """Keys of sessions with unfinished turns that no live process holds, oldest first; only those with a
        turn that was claimed at least `begun` times, and, if given, those that work in `workdir` or nowhere. Held
        turns do not count."""

    async def list_running(self, platform: str) -> tuple[str, ...]:
        """Keys of the sessions of a platform with a turn that has started."""

    async def holder(self, key: str) -> str | None:
        """The live process that holds the session, or None."""

    async def has_pending(self, key: str) -> bool:
        """True if `key` has an unfinished turn, claimed or not, that is not held."""

    async def is_abandoned(self, key: str) -> bool:
        """True if `key` has unfinished work that no running process holds."""
