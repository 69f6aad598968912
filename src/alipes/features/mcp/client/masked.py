"""Masks secrets in what a server sends: one that was given a key may repeat it."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)
_BINARY = ("data", "blob")


def mask_model(given: Model, mask: Callable[[str], str]) -> Model:
    """The same with every text masked. Must happen before texts are cut: half a secret would not be recognised."""
    return type(given).model_validate(_mask_value(given.model_dump(mode="json", by_alias=True), mask))


def _mask_value(value: Any, mask: Callable[[str], str]) -> Any:
    match value:
        case str():
            return mask(value)
        case list():
            return [_mask_value(each, mask) for each in value]
        case dict():
            return {
                mask(name): each if name in _BINARY and isinstance(each, str) else _mask_value(each, mask)
                for name, each in value.items()
            }
    return value
