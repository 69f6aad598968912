"""Incoming messages that are not a turn yet, and the ids of messages already handled."""

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Inbound

EditResult: TypeAlias = Literal["replaced", "same", "late", "unknown"]
"""`replaced`: the queued message has the new text; `same`: it had it already; `late`: its turn has started;
`unknown`: there is no such message."""


class WaitingMessage(Struct, frozen=True):
    message: IncomingMessage
    batch: str
    """The id of the batch it belongs to, or empty."""


class InboxStore(Protocol):
    async def add(self, message: IncomingMessage) -> bool:
        """Keep the message until `mark_handled`; False for a second copy."""

    async def replace(self, message: IncomingMessage) -> None:
        """Replace the waiting message with the same id."""

    async def contains(self, platform: str, id: str) -> bool:
        """True if the message is waiting or was handled."""

    async def is_waiting(self, platform: str, id: str) -> bool: ...

    async def add_answer(self, platform: str, id: str) -> bool:
        """The message was the answer to a question: neither it nor a second copy becomes a turn. False if it
        was known before, as a message or as a turn."""

    async def mark_handled(self, platform: str, *ids: str, owed: tuple[Outbound, ...] = ()) -> None:
        """The messages are handled; `owed`: replies that are queued in the same transaction."""

    async def set_batch(self, platform: str, name: str, ids: tuple[str, ...]) -> None:
        """Make these messages one batch, which no later message joins."""

    async def list_waiting(self, platform: str) -> tuple[WaitingMessage, ...]:
        """The messages that are not handled yet, oldest first."""

    async def apply_edit(self, edit: str, original: str, inbound: Inbound) -> EditResult:
        """Give the message `original` the text of `inbound`, if its turn has not started.

        The edit itself, with the id `edit`, is marked as handled unless the result is `late` or `unknown`.
        """

    async def delete_old(self) -> int:
        """Delete messages that were handled long ago; returns how many."""
