"""How long a server asks to wait, wherever it says so, and the few words that are shown meanwhile."""

import pytest

from alipes.kernel.errors import Transient
from alipes.kernel.models import Endpoint
from alipes.providers.errors import ModelTarget, parse_error, translate_error

PLACE = ModelTarget(Endpoint("play", "http://127.0.0.1:1/v1"), "m")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached for m: Limit 30000, Used 29000. Please try again in 20s.", 20.0),
        ("retry after 1m30s", 90.0),
        ("Please retry in 34.07s.", 34.07),
        ("Try again in 250ms", 0.25),
        ("Too many requests, please wait 5 seconds", 5.0),
        ("The limit resets in 2 minutes, 5 sec", 125.0),
        ("Rate limit reached: 3 requests per 10 s", None),
        ("try again later", None),
    ],
)
def test_the_wait_is_read_from_the_text(text, seconds):
    error = translate_error(PLACE, parse_error({"error": {"message": text}}, 429))
    assert isinstance(error, Transient) and error.retry_after == seconds


def test_a_header_goes_before_the_text():
    error = translate_error(PLACE, parse_error({"error": {"message": "try again in 20s"}}, 429, 3.0))
    assert isinstance(error, Transient) and error.retry_after == 3.0


@pytest.mark.parametrize(
    ("status", "kind", "brief", "counts_as"),
    [
        (429, "", "Rate limit of play reached", 429),
        (0, "rate_limit_exceeded", "Rate limit of play reached", 429),
        (503, "", "play is unavailable (503)", 503),
        (0, "overloaded_error", "play aborted the answer", None),
    ],
)
def test_a_retry_has_few_words(status, kind, brief, counts_as):
    error = translate_error(PLACE, parse_error({"error": {"message": "no", "type": kind}}, status))
    assert isinstance(error, Transient) and (error.brief, error.status) == (brief, counts_as)
