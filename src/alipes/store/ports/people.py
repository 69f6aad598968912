"""Who may speak, who asked to, and where a platform is at home; and messages that are not a turn yet."""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address

PersonRole: TypeAlias = Literal["owner", "user"]


Progress: TypeAlias = Literal["off", "short", "full"]


CODE_VALID_S = 3600.0
"""How long a code can be approved."""


class Person(Struct, frozen=True):
    platform: str
    person: str
    """The platform's id of the person."""
    name: str
    role: PersonRole
    since: float


class PairingRequest(Struct, frozen=True):
    """A person who asked for access."""

    platform: str
    person: str
    name: str
    address: Address
    """The chat where they asked."""
    created: float = 0.0


class PeopleStore(Protocol):
    """The people of a home, pairing, default chats and chat settings."""

    async def role(self, platform: str, person: str) -> PersonRole | None:
        """Their role; None for an unknown person."""

    async def all(self) -> tuple[Person, ...]: ...

    async def revoke_access(self, platform: str, person: str) -> bool:
        """False if they had no access."""

    async def set_role(self, platform: str, person: str, role: PersonRole) -> bool:
        """False if they have no access."""

    async def request_pairing(self, request: PairingRequest, message: Callable[[str], Outbound]) -> bool:
        """Create a code, stored only as a hash, and queue `message` with it for their chat.

        False, and nothing is queued, if they have a recent code or too many others are waiting.
        """

    async def list_requests(self) -> tuple[PairingRequest, ...]:
        """The requests with a valid code, oldest first."""

    async def approve(self, code: str, role: PersonRole, welcome: Callable[[PairingRequest], Outbound]) -> Person:
        """Give access to the person with this code, and queue a welcome message.

        Raises `MessageRejected` with a sentence for the operator, after too many wrong codes for any code.
        """

    async def default_chats(self) -> dict[str, Address]:
        """By platform: where messages go when no chat is named."""

    async def set_default_chat(self, address: Address) -> None: ...

    async def progress(self, lane: str) -> Progress | None:
        """How much tool progress a chat shows; None if it was not set."""

    async def set_progress(self, lane: str, progress: Progress) -> None: ...
