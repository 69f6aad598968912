"""A conversation seen from outside: where it stands, what waits in it, what leaving it meant. Pure values."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Message
from alipes.kernel.turns import Address, Busy, Consent


class Unasked(Struct, frozen=True):
    """There was somebody to ask, and the question did not reach them."""

    why: str


Leave: TypeAlias = Consent | Unasked | None
"""None: there is nobody to ask."""


def withheld(word: Leave) -> str:
    """Who did not allow it, to follow an "and"; empty where somebody did."""
    match word:
        case "once" | "session" | "always":
            return ""
        case "no":
            return "the person said no"
        case Unasked(why):
            return f"the person could not be asked ({why})"
        case _:
            return "nobody is here to allow it"


class Standing(Struct, frozen=True):
    """The conversation that goes on under a key, and what was chosen for it."""

    session: str
    address: Address
    title: str
    """As it was named; empty when it was not."""
    model: str
    """Empty: the house's."""
    busy: Busy | Literal[""]
    created: float
    parent: str
    """The session it was branched from, or empty."""


class Waiting(Struct, frozen=True):
    """A turn that lives or waits."""

    id: str
    session: str
    text: str
    busy: Busy
    """How the message was accepted."""
    accepted: float
    begun: float | None
    """When it was first claimed; None while it only waits."""


class Admitted(Struct, frozen=True):
    turn: str
    busy: Busy
    ahead: tuple[Waiting, ...]
    """Unfinished before it, in order."""


class Absorbed(Struct, frozen=True):
    turn: str
    """The message's own turn, which is over."""
    message: Message


class Left(Struct, frozen=True):
    """What became of the conversation that was left, and which goes on now."""

    old: str
    """Empty when there was none."""
    new: str
    dropped: tuple[str, ...] = ()
    """Turns that waited and were ended."""
    living: str = ""
    """The turn that is still lived somewhere."""
    elsewhere: str = ""
    """The key under which the new one went on before."""


class Undone(Struct, frozen=True):
    turn: str
    text: str
    living: bool = False
    """It had not ended: whoever lives it has to be sent `Stop`."""


class Retried(Struct, frozen=True):
    undone: Undone
    turn: str
    """The message accepted anew."""
    steered: tuple[str, ...] = ()
    """Those that had been steered into it, accepted anew to be steered again."""
