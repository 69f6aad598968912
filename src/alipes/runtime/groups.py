"""What a task group raises, as the one error that it was. It starts nothing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ungrouped() -> Iterator[None]:
    """Around an `async with TaskGroup()` that one child or the body ends: its error, and no group."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first(group) from group


def first(error: BaseException) -> BaseException:
    return first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
