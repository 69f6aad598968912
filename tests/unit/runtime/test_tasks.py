"""How long to wait before asking again."""

import random

from alipes.runtime.tasks import FIRST_DELAY_S, MAX_DELAY_S, backoff


def test_the_wait_doubles_up_to_a_limit():
    waits = [backoff(attempt, lambda: 1.0) for attempt in range(1, 10)]
    assert waits[:4] == [FIRST_DELAY_S, FIRST_DELAY_S * 2, FIRST_DELAY_S * 4, FIRST_DELAY_S * 8]
    assert waits[-1] == MAX_DELAY_S == backoff(10**9, lambda: 1.0)


def test_the_whole_span_is_thrown():
    dice = random.Random(1).random
    throws = [backoff(4, dice) for _ in range(200)]
    assert min(throws) < 0.2 < 3.8 < max(throws) <= FIRST_DELAY_S * 8


def test_an_attempt_before_the_first_waits_like_the_first():
    assert backoff(0, lambda: 1.0) == backoff(-5, lambda: 1.0) == FIRST_DELAY_S
