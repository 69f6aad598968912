"""What the operator decided about the HTTP API. Values, and how they are read."""

from typing import Any

from msgspec import Struct

from alipes.config.reading import Reading


class Api(Struct, frozen=True):
    pass


def api_settings(_reading: Reading, _picked: dict[str, Any]) -> Api:
    """`picked`: the values of all keys without a `*`, by path."""
    return Api()
