"""Messages to chats with their delivery state, and drafts. Nothing is sent here."""

from collections.abc import Callable
from typing import Literal, Protocol

from alipes.kernel.outbox import Delivery, DeliveryState, Outbound

RESTORED_REASON = "the home was restored from a backup"


class OutboxStore(Protocol):
    """Every method returns after its rows are on disk."""

    async def enqueue(self, *outbounds: Outbound) -> None:
        """Add one delivery for each new id. Messages of a turn are added by `record` instead."""

    async def lanes(self, platform: str) -> dict[str, float]:
        """The lanes of a platform with unsent messages, and when the first of each is due."""

    async def head(self, lane: str) -> Delivery | None:
        """The oldest unsent delivery of the lane."""

    async def take(self, lane: str, ready: Callable[[Delivery], bool]) -> Delivery | None:
        """As `head`; if it is not being sent yet and `ready` returns true, the same write marks it as
        `sending`."""

    async def mark_sending(self, debt: Delivery) -> Delivery | None:
        """Mark it as `sending`: from now until the next update it is not known whether it arrived. None if another
        process was faster."""

    async def mark_sent(self, debt: Delivery, *ids: str, rest: bool = False, uncertain: bool = False) -> Delivery:
        """It arrived, with these platform ids. `rest`: more parts follow; if none do, the turn's preview
        messages have become this message. `uncertain`: some of it may have been sent twice."""

    async def postpone(
        self, debt: Delivery, due: float, why: str, *, uncertain: bool = False, counts: bool = True
    ) -> None:
        """It did not arrive, or that is not known (`uncertain`); try again at `due`.

        `counts`: the attempt counts towards the limit.
        """

    async def give_up(self, debt: Delivery, state: Literal["failed", "expired"], why: str) -> bool:
        """Stop trying; the row stays visible and can be sent again. False if another process was faster."""

    async def list_interrupted(self, platform: str) -> tuple[Delivery, ...]:
        """Deliveries that another process was sending when it died, with their previews. The caller postpones them or
        gives them up; in a cluster no other worker gets the same ones."""

    async def expire_fleeting(self, platform: str) -> int:
        """Give up `fleeting` messages of processes that are gone; returns how many."""

    async def find(self, id: str) -> Delivery | None:
        """The delivery of the `Outbound` with this id."""

    async def find_number(self, number: int) -> Delivery | None:
        """The delivery with this number."""

    async def list_deliveries(self, *states: DeliveryState, limit: int = 100) -> tuple[Delivery, ...]:
        """Deliveries in these states, or all, latest first."""

    async def requeue(self, number: int) -> bool:
        """Send a dead or expired one again; False if there is none with this number."""

    async def discard(self, number: int) -> bool:
        """Give up a queued message, or delete one that was given up. False for any other."""

    async def delete_old(self) -> int:
        """Delete messages that were sent long ago; returns how many."""

    async def find_unanswered(self, turn: str) -> str:
        """The approval that the turn asked for last, if the question was delivered and nobody has answered it; else
        empty."""

    async def mark_answered(self, id: str) -> None:
        """The question with this id, or the start of its id, no longer waits for an answer."""

    async def fail_unsent(self) -> int:
        """After a restore: give up all unsent messages, since they may have been sent after the backup was made.

        Returns how many. `alipes serve outbox` lists them and can send them again.
        """
