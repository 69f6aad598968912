"""How long to wait before asking again. It does not wait, and it does not decide whether to."""

import random
from collections.abc import Callable

FIRST = 0.5
LONGEST = 30.0


def backoff(attempt: int, dice: Callable[[], float] = random.random) -> float:
    """Seconds before retry number `attempt` (the first is 1): doubling, capped, with full jitter.

    `dice` gives a number in [0, 1); the whole span is thrown, so that many who failed together
    do not come back together.
    """
    doublings = min(max(attempt, 1), 32) - 1
    return dice() * min(LONGEST, FIRST * 2.0**doublings)
