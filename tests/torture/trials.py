"""How much is tried, and what the report is told. The report itself is written by `conftest.py`."""

import os
from collections.abc import Sequence

import pytest

LONG = int(os.environ.get("ALIPES_TORTURE_TRIALS", "0"))
"""More than zero: the long pass."""


def seeds(short: int, long: int = 20) -> Sequence[int]:
    """For `parametrize`: a seed that fails is in the name of its test, and reruns alone by it."""
    return range(max(short, min(long, LONG)))


def trials(short: int, long: int) -> int:
    """How often within one test."""
    return max(short, min(long, LONG * long // 200))


class Figures:
    """What a test tells the report of itself."""

    def __init__(self, node: pytest.Item) -> None:
        self._told = node.user_properties

    def tried(self, times: int) -> None:
        self._told.append(("tried", times))

    def worst(self, name: str, value: float, unit: str = "") -> None:
        """The highest of all tests is the one that counts."""
        self._told.append(("worst", [name, round(value, 3), unit]))
