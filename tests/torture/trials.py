"""Number of trials, and figures for the report, which `conftest.py` writes."""

import os
from collections.abc import Sequence

import pytest

LONG = int(os.environ.get("ALIPES_TORTURE_TRIALS", "0"))
"""More than zero: the long pass."""


def seeds(short: int, long: int = 20) -> Sequence[int]:
    """For `parametrize`: the name of a failed test contains its seed."""
    return range(max(short, min(long, LONG)))


def trials(short: int, long: int) -> int:
    """Repetitions within one test."""
    return max(short, min(long, LONG * long // 200))


class Figures:
    """Figures of one test for the report."""

    def __init__(self, node: pytest.Item) -> None:
        self._received = node.user_properties

    def tried(self, times: int) -> None:
        self._received.append(("tried", times))

    def worst(self, name: str, value: float, unit: str = "") -> None:
        """The report shows the highest value of all tests."""
        self._received.append(("worst", [name, round(value, 3), unit]))
