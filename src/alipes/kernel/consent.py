"""What came of asking a person for leave: their word, or why there is none. Pure."""

from typing import TypeAlias

from msgspec import Struct

from alipes.kernel.turns import Consent


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
