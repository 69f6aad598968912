"""The keys of a provider that has several: which of them rest, described by their variables."""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from alipes.kernel.formatting import format_clock

REASONS = {"limit": "at its limit", "credit": "out of credit", "rejected": "rejected"}


class KeyRest(Struct, frozen=True):
    """A key that its provider does not serve for a while."""

    variable: str
    reason: Literal["limit", "credit", "rejected"]
    until: float
    """Seconds since the epoch."""


def describe_keys(variables: Iterable[str], rests: Mapping[str, KeyRest], used: str, now: float) -> str:
    """`A_KEY (at its limit until 14:20), B_KEY (used)`."""
    described = []
    for variable in variables:
        rest = rests.get(variable)
        if rest is not None and rest.until > now:
            described.append(f"{variable} ({REASONS[rest.reason]} until {format_clock(rest.until, now)})")
        else:
            described.append(f"{variable} (used)" if variable == used else variable)
    return ", ".join(described)
