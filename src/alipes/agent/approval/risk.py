"""Why a call needs approval."""

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from alipes.kernel.messages import ToolCall

Scope: TypeAlias = Literal["machine", "workspace", "remote"]


class Risk(Struct, frozen=True):
    """Why a call needs approval."""

    rule: str
    """Short name of the rule."""
    reason: str
    """What the command does: a verb phrase that completes "This command ..."."""
    scope: Scope = "machine"
    """What it touches: `machine` is contained by a sandbox; the project and remote systems are not."""
    floor: bool = False
    """No setting and no approval allows it."""
    unseen: bool = False
    """The rules cannot see what it does; in a script file, where that is normal, it does not count."""
    exact: bool = False
    """Only exactly this call can be allowed: a pattern of commands does not cover it."""
    paths: tuple[str, ...] = ()
    """The files that a command in the sandbox can change only after a yes."""
    why: str = ""
    """The reason as a person reads it; empty: as it is."""
    question: ToolCall | None = None
    """What is asked about instead of the call."""
    also: tuple["Risk", ...] = ()
    """What else the same program does, for when this one does not count."""


Counts: TypeAlias = Callable[[Risk], bool]
"""Whether a risk counts; others are passed over, so that one behind them is found."""


def first_risk(risks: Iterable[Risk | None]) -> Risk | None:
    """The first risk that nothing allows; if there is none, the first. The others go with it."""
    found = [each for risk in risks if risk for each in (structs.replace(risk, also=()), *risk.also)]
    if not found:
        return None
    first = next((risk for risk in found if risk.floor), found[0])
    return structs.replace(first, also=tuple(risk for risk in found if risk is not first))
