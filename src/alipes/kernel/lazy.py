"""Patterns and objects that are made at their first use, because most starts use few of them."""

import re
from collections.abc import Callable
from typing import Any, AnyStr, cast


class _Lazy:
    """Becomes the object: what is asked of it once is kept."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._made = make, None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
        found = getattr(self._made, name)
        setattr(self, name, found)
        return found


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, later. For the methods of a pattern only: functions of `re` do not take it."""
    return cast("re.Pattern[AnyStr]", _Lazy(lambda: re.compile(text, flags)))


def lazy_object(make: Callable[[], Any]) -> Any:
    """What `make()` returns, made at its first use. Only for objects whose attributes do not change."""
    return _Lazy(make)
