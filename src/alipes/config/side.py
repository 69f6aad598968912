"""What the operator decided about models that work beside the one that answers, and how it is read."""

from typing import Any

from msgspec import Struct

from alipes.config.reading import Reading


class Side(Struct, frozen=True):
    pass


def side_settings(_reading: Reading, _picked: dict[str, Any]) -> Side:
    """`picked`: the values of all keys without a `*`, by path."""
    return Side()
