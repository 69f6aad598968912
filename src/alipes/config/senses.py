"""What the operator decided about tools that look, draw, ask and compute. Values, and how they are read."""

from typing import Any

from msgspec import Struct


class Senses(Struct, frozen=True):
    allow: tuple[str, ...] = ()
    """Private hosts that may be fetched from."""
    images_model: str = ""
    images_timeout: float = 180.0
    clarify_timeout: float = 600.0
    code_timeout: float = 300.0
    code_calls: int = 50


def senses_settings(picked: dict[str, Any]) -> Senses:
    """`picked`: the values of all keys without a `*`, by path."""
    return Senses(
        allow=tuple(picked["fetch.allow"]),
        images_model=picked["images.model"],
        images_timeout=picked["images.timeout"],
        clarify_timeout=picked["clarify.timeout"],
        code_timeout=picked["code.timeout"],
        code_calls=picked["code.calls"],
    )
