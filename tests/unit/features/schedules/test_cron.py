"""Cron expressions: their times, also when the clocks change."""

import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from alipes.features.schedules.cron import describe_cron, next_cron_time, parse_cron
from alipes.kernel.errors import ConfigError

CASES = json.loads((Path(__file__).parent / "cron_cases.json").read_text())
BERLIN = ZoneInfo("Europe/Berlin")


def times(text: str, start: datetime, count: int) -> list[str]:
    found, moment = [], start.timestamp()
    for _ in range(count):
        moment = next_cron_time(parse_cron(text), moment, start.tzinfo)
        found.append(f"{datetime.fromtimestamp(moment, start.tzinfo):%m-%d %H:%M %Z}")
    return found


def test_the_times_are_those_of_cronsim():
    """The table was made with cronsim 2.8: random expressions in five zones, from days around changes of the clocks."""
    wrong = []
    for case in CASES:
        moment, found = case["from"], []
        for _ in case["times"]:
            moment = next_cron_time(parse_cron(case["cron"]), moment, ZoneInfo(case["zone"]))
            found.append(moment)
        wrong += [case] if found != case["times"] else []
    assert wrong == [] and len(CASES) > 200


def test_a_time_that_is_skipped_in_spring_runs_once_after_the_gap():
    start = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    assert times("30 2 * * *", start, 2) == ["03-29 03:00 CEST", "03-30 02:30 CEST"]
    assert times("0,15,30 2,3 * * *", start, 4) == [
        *("03-29 03:00 CEST", "03-29 03:15 CEST", "03-29 03:30 CEST", "03-30 02:00 CEST")
    ]


def test_a_time_that_occurs_twice_in_autumn_runs_once():
    start = datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    assert times("30 2 * * *", start, 2) == ["10-25 02:30 CEST", "10-26 02:30 CET"]


def test_a_job_made_between_both_occurrences_waits_for_the_next_day():
    second = datetime(2026, 10, 25, 2, 10, tzinfo=BERLIN, fold=1)
    assert times("30 2 * * *", second, 1) == ["10-26 02:30 CET"]


def test_every_hour_means_every_passing_hour_also_when_one_occurs_twice():
    start = datetime(2026, 10, 25, 1, 30, tzinfo=BERLIN)
    assert times("0 * * * *", start, 4) == ["10-25 02:00 CEST", "10-25 02:00 CET", "10-25 03:00 CET", "10-25 04:00 CET"]


def test_a_gap_at_midnight_does_not_lose_the_first_hour():
    start = datetime(2026, 4, 23, 12, tzinfo=ZoneInfo("Africa/Cairo"))
    assert times("*/30 0-1 * * *", start, 2) == ["04-24 01:00 EEST", "04-24 01:30 EEST"]


def test_the_first_monday_and_the_last_day_of_a_month():
    start = datetime(2026, 11, 18, tzinfo=BERLIN)
    assert times("0 9 * * MON#1", start, 2) == ["12-07 09:00 CET", "01-04 09:00 CET"]
    assert times("0 9 * * 5L", start, 2) == ["11-27 09:00 CET", "12-25 09:00 CET"]
    assert times("0 9 L * *", start, 3) == ["11-30 09:00 CET", "12-31 09:00 CET", "01-31 09:00 CET"]


def test_29_february_is_found_years_ahead():
    assert times("0 0 29 2 *", datetime(2025, 1, 1, tzinfo=BERLIN), 1) == ["02-29 00:00 CET"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("61 * * * *", "'61' is not a valid minute"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day of the month"),
        ("* * * foo *", "'foo' is not a valid month"),
        ("* * * * 8", "'8' is not a valid day of the week"),
        ("*/0 * * * *", "is not a valid minute"),
        ("5-1 * * * *", "is not a valid minute"),
        ("* * * * 1#6", "is not a valid day of the week"),
        ("0 0 31 2 *", "never fires"),
        ("* * * *", "is not a cron expression"),
    ],
)
def test_a_wrong_field_is_named(text, says):
    with pytest.raises(ConfigError, match=says):
        parse_cron(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0 9 * * 1-5", "at 09:00, Monday to Friday"),
        ("*/15 * * * *", "every 15 minutes, every day"),
        ("0 */2 * * *", "every 2 hours, every day"),
        ("30 8,17 * * *", "at 08:30 and 17:30, every day"),
        ("0 9 * * 1#1", "at 09:00, the first Monday of the month"),
        ("0 0 L * *", "at 00:00, on the last day of the month"),
        ("0 9 1,15 * 5", "at 09:00, on day 1 and 15 of the month or Friday"),
        ("* 9-17 * * 1-5", "every minute, from 09:00 to 17:59, Monday to Friday"),
        ("10,40 * * * 6,0", "at minute 10 and 40 of every hour, Saturday and Sunday"),
        ("0 9 * 6-8 *", "at 09:00, every day, in June, July and August"),
        ("0 22 1 1 *", "at 22:00, on day 1 of the month, in January"),
    ],
)
def test_an_expression_is_described_in_words(text, words):
    assert describe_cron(parse_cron(text)) == words
