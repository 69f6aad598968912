"""Regular expressions that are compiled at their first use, because most starts use few of them."""

import re
from typing import Any, AnyStr, cast


class _LazyPattern:
    """Becomes the pattern: what is asked of it once is kept."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, later. For the methods of a pattern only: functions of `re` do not take it."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))
