"""Times as people write them."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from alipes.config.time_zones import find_zone
from alipes.features.schedules.timetable import format_moment, next_time, next_times, parse_duration, parse_timetable
from alipes.kernel.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 18, 10, tzinfo=BERLIN).timestamp()  # a Wednesday


def read(text: str, now: float = NOW) -> list[str]:
    return [
        format_moment(each, BERLIN).rpartition(" ")[0]
        for each in next_times(parse_timetable(text, now, BERLIN), now, BERLIN)
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("in 30m", "Wed 2026-11-18 10:30"),
        ("in 1h30m", "Wed 2026-11-18 11:30"),
        ("in an hour", "Wed 2026-11-18 11:00"),
        ("in 2 hours and 5 minutes", "Wed 2026-11-18 12:05"),
        ("tomorrow at 17:00", "Thu 2026-11-19 17:00"),
        ("tomorrow", "Thu 2026-11-19 09:00"),
        ("today at 6pm", "Wed 2026-11-18 18:00"),
        ("tonight", "Wed 2026-11-18 20:00"),
        ("at 9:00", "Thu 2026-11-19 09:00"),
        ("noon", "Wed 2026-11-18 12:00"),
        ("next monday at 9", "Mon 2026-11-23 09:00"),
        ("on friday", "Fri 2026-11-20 09:00"),
        ("wednesday at 9", "Wed 2026-11-25 09:00"),
        ("24 december at 10", "Thu 2026-12-24 10:00"),
        ("January 5th", "Tue 2027-01-05 09:00"),
        ("2026-11-20T09:00", "Fri 2026-11-20 09:00"),
        ("2026-11-20 09:00", "Fri 2026-11-20 09:00"),
        ("2026-11-20T09:00Z", "Fri 2026-11-20 10:00"),
        ("2026-11-20", "Fri 2026-11-20 09:00"),
    ],
)
def test_a_time_that_comes_once(text, first):
    assert read(text) == [first]


@pytest.mark.parametrize(
    ("text", "cron"),
    [
        ("every weekday at 9", "0 9 * * 1-5"),
        ("Weekdays at 9am.", "0 9 * * 1-5"),
        ("every day at 9:30", "30 9 * * *"),
        ("every day at 9 and 17", "0 9,17 * * *"),
        ("every weekday at 9:30, 13:30 and 17:30", "30 9,13,17 * * 1-5"),
        ("mondays at 9am and at 5pm", "0 9,17 * * 1"),
        ("every morning", "0 9 * * *"),
        ("every evening", "0 18 * * *"),
        ("every night at 11pm", "0 23 * * *"),
        ("daily at 18.15", "15 18 * * *"),
        ("at 9 every day", "0 9 * * *"),
        ("every monday at 9", "0 9 * * 1"),
        ("every mon, wed and fri at 17:30", "30 17 * * 1,3,5"),
        ("mondays at 8", "0 8 * * 1"),
        ("monday to friday at 7", "0 7 * * 1,2,3,4,5"),
        ("every weekend at 10", "0 10 * * 0,6"),
        ("first monday of the month at 10:00", "0 10 * * 1#1"),
        ("the last friday of every month at 17", "0 17 * * 5L"),
        ("on the 1st of every month at 9", "0 9 1 * *"),
        ("every month on the 15th at 8", "0 8 15 * *"),
        ("monthly", "0 9 1 * *"),
        ("last day of the month at 18:00", "0 18 L * *"),
        ("every 1st and 15th of the month at 6", "0 6 1,15 * *"),
        ("every year on 24 december at noon", "0 12 24 12 *"),
        ("@daily", "0 0 * * *"),
        ("0 9 * * 1-5", "0 9 * * 1-5"),
    ],
)
def test_a_time_that_comes_again_and_again(text, cron):
    assert parse_timetable(text, NOW, BERLIN).cron == cron


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("every 2h", 7200),
        ("every 15 minutes", 900),
        ("hourly", 3600),
        ("every minute", 60),
        ("every 2 weeks", 1_209_600),
    ],
)
def test_an_interval_counts_from_now(text, seconds):
    timetable = parse_timetable(text, NOW, BERLIN)
    assert (timetable.kind, timetable.every_s) == ("every", seconds)
    assert next_time(timetable, NOW, BERLIN) == NOW + seconds
    assert next_time(timetable, NOW + 10 * seconds, BERLIN) == NOW + 11 * seconds


def test_events_are_times_too():
    assert parse_timetable("after backup", NOW, BERLIN).job == "backup"
    assert parse_timetable("on file ~/Notes.md", NOW, BERLIN).path == "~/Notes.md"
    assert parse_timetable("when mail from:Shop subject:invoice", NOW, BERLIN).filter == "from:Shop subject:invoice"
    assert parse_timetable("manual", NOW, BERLIN).kind == "manual"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no time given"),
        ("every 1s", "too often"),
        ("25:00", "not a time of day"),
        ("yesterday", "cannot read"),
        ("2020-01-01", "is past"),
        ("2026-13-01", "is not a date"),
        ("61 * * * *", "minute"),
        ("on the 32nd of every month", "day of the month"),
        ("every", "cannot read"),
        ("in 0m", "is now: give a time in the future"),
        ("on file", 'cannot read the time .*"on file PATH"'),
        ("every day at 9:00 and 17:30", "different minutes"),
        ("every day at 9 and 25:00", "not a time of day"),
        ("x" * 10_000, "cannot read"),
    ],
)
def test_a_wrong_time_says_what_to_write(text, says):
    with pytest.raises(ConfigError, match=says):
        parse_timetable(text, NOW, BERLIN)


def test_a_local_time_that_does_not_exist_is_the_end_of_the_gap():
    eve = datetime(2026, 3, 28, 12, tzinfo=BERLIN).timestamp()
    assert read("tomorrow at 2:30", eve) == ["Sun 2026-03-29 03:00"]
    assert read("2026-03-29T02:30", eve) == ["Sun 2026-03-29 03:00"]


def test_a_local_time_that_comes_twice_is_the_first():
    eve = datetime(2026, 10, 24, 12, tzinfo=BERLIN).timestamp()
    (moment,) = next_times(parse_timetable("tomorrow at 2:30", eve, BERLIN), eve, BERLIN)
    assert format_moment(moment, BERLIN) == "Sun 2026-10-25 02:30 CEST"


def test_the_zone_of_a_job_decides_and_not_that_of_the_machine():
    tokyo = find_zone("Asia/Tokyo")
    timetable = parse_timetable("every day at 9", NOW, tokyo)
    assert format_moment(next_time(timetable, NOW, tokyo), BERLIN) == "Thu 2026-11-19 01:00 CET"


def test_durations():
    assert parse_duration("1h 30m") == 5400 and parse_duration("2 days") == 172_800 and parse_duration("90s") == 90
    assert parse_duration("soon") is None and parse_duration("") is None and parse_duration("5") is None
