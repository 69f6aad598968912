"""The open features of an app, by class."""

from collections.abc import Iterator
from typing import Any, TypeVar

from alipes.kernel.errors import ConfigError

Kind = TypeVar("Kind")


class OpenFeatures:
    """A feature finds another one here by its class; commands and endpoints find their own."""

    def __init__(self) -> None:
        self._open: dict[type, Any] = {}

    def add(self, feature: object) -> None:
        self._open[type(feature)] = feature

    def find(self, kind: type[Kind]) -> Kind | None:
        """None if it is switched off or not set up."""
        return self._open.get(kind)

    def get(self, kind: type[Kind]) -> Kind:
        """Raises `ConfigError` if it is switched off or not set up."""
        found = self.find(kind)
        if found is None:
            raise ConfigError(f"{getattr(kind, 'name', kind.__name__).capitalize()} are not available here.")
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._open.values())
