"""What the operator decided about the HTTP API. Values, and how they are read."""

from typing import Any

from msgspec import Struct

from alipes.config.messengers import fitting
from alipes.config.reading import Reading


class Api(Struct, frozen=True):
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    rate: int = 1200
    body: int = 20_000_000
    body_seconds: float = 30.0
    wait: float = 600.0


def api_settings(_reading: Reading, picked: dict[str, Any]) -> Api:
    """`picked`: the values of all keys without a `*`, by path."""
    return Api(**fitting({path[4:]: value for path, value in picked.items() if path.startswith("api.")}))
