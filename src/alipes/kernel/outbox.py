"""What leaves for a chat: what is said there, what we owe, and what became of it."""

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.turns import Address

MediaKind: TypeAlias = Literal["image", "audio", "voice", "video", "file"]
DebtState: TypeAlias = Literal["owed", "trying", "sent", "dead", "expired"]
"""`trying`: a send was begun and its end is not known; after a crash that is the one doubtful window."""


class Media(Struct, frozen=True, omit_defaults=True):
    """A file of ours that goes along."""

    path: str
    kind: MediaKind = "file"
    name: str = ""
    caption: str = ""


class Button(Struct, frozen=True, omit_defaults=True):
    """Something to press instead of typing `data`."""

    label: str
    data: str


class Outbound(Struct, frozen=True, omit_defaults=True):
    """One thing that is said in a chat. Text is Markdown, as the model wrote it; platforms translate."""

    id: str
    """Makes owing it a second time harmless."""
    address: Address
    text: str = ""
    reply_to: str = ""
    """The platform's own id of the message that it answers."""
    media: tuple[Media, ...] = ()
    buttons: tuple[Button, ...] = ()
    turn: str = ""
    """The turn that said it; what was shown of it while it was being said becomes this."""
    expires: float = 0.0
    """Seconds since the epoch after which it is not worth sending; zero: the usual time."""
    notice: bool = False
    """A word of the house, not of the model: of no interest once it is late."""
    fleeting: bool = False
    """Of no use once the process is gone that owed it: what it asks or tells is asked or told anew."""

    @property
    def lane(self) -> str:
        """What is owed to one place is paid in the order it was owed."""
        return lane(self.address)


def lane(address: Address) -> str:
    """The name of a place where people read: a chat, or one thread of it."""
    names = (address.platform, address.chat, address.thread)
    return ":".join(name.replace("%", "%25").replace(":", "%3A") for name in names)


class Debt(Struct, frozen=True):
    """An `Outbound` until it is paid."""

    number: int
    outbound: Outbound
    created: float
    state: DebtState = "owed"
    attempts: int = 0
    due: float = 0.0
    """Not to be tried before this."""
    paid: tuple[str, ...] = ()
    """The platform's ids of the parts that are there already: a long text is several messages."""
    uncertain: bool = False
    """It may be there twice: a send was cut off before we learned its end."""
    doubtful: bool = False
    """The part that comes next may be there already: it is sent once more and not a third time."""
    why: str = ""
    drafts: tuple[str, ...] = ()
    """Known once it is begun: the messages by which its turn was shown unfinished, oldest first."""


class Outbox(Protocol):
    """Debts as rows. Every method returns after its rows are on disk."""

    async def owe(self, *outbounds: Outbound) -> None:
        """A debt for each whose id was not owed before. What a turn says is owed with its `record`."""
        ...

    async def lanes(self, platform: str) -> dict[str, float]:
        """The lanes of a platform with something owed, and when the first of each is due."""
        ...

    async def head(self, lane: str) -> Debt | None:
        """The oldest debt of the lane that is neither paid nor given up."""
        ...

    async def take(self, lane: str, ready: Callable[[Debt], bool]) -> Debt | None:
        """As `head`; one that is owed and of which `ready` holds is begun by the same write."""
        ...

    async def begin(self, debt: Debt) -> Debt:
        """A send is about to be tried: from now until the next word on it nobody knows whether it arrived."""
        ...

    async def pay(self, debt: Debt, *ids: str, rest: bool = False, uncertain: bool = False) -> Debt:
        """It arrived, with these ids of the platform's. `rest`: more parts follow; if none do, the drafts
        of its turn there have become it, and are drafts no more. `uncertain`: some of it may be there twice.
        """
        ...

    async def postpone(
        self, debt: Debt, due: float, why: str, *, uncertain: bool = False, counts: bool = True
    ) -> None:
        """It did not arrive, or we cannot tell (`uncertain`); to be tried again at `due`.

        `counts`: the try was one of those after which it is given up.
        """
        ...

    async def give_up(self, debt: Debt, state: Literal["dead", "expired"], why: str) -> None:
        """It is not tried any more; it stays to be looked at, and may be owed again."""
        ...

    async def cut_off(self, platform: str) -> tuple[Debt, ...]:
        """At the start: those that an earlier process was sending when it died, with their drafts."""
        ...

    async def withdraw(self, platform: str) -> int:
        """At the start: give up what is `fleeting`, since whoever owed it is gone; how many."""
        ...

    async def find(self, id: str) -> Debt | None:
        """The debt that an `Outbound` with this id became."""
        ...

    async def look(self, *states: DebtState, limit: int = 100) -> tuple[Debt, ...]:
        """Debts in these states, or in all, the latest first."""
        ...

    async def again(self, number: int) -> bool:
        """Owe a dead or expired one anew; False if there is none with this number."""
        ...
