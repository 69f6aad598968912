"""Policies of jobs: missed times, quiet hours, jitter, retries, silence."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from alipes.features.schedules.job import (
    Job,
    JobRun,
    Schedule,
    is_quiet,
    is_silent,
    next_fire,
    parse_quiet_hours,
    plan_fire,
    retry_time,
    wake_time,
    zone_of,
)
from alipes.features.schedules.timetable import Timetable, parse_timetable
from alipes.kernel.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")
DUE = datetime(2026, 11, 18, 9, tzinfo=BERLIN).timestamp()
HOUR, DAY = 3600.0, 86_400.0


def daily(when="every day at 9", **policies) -> Schedule:
    job = Job("report", when, parse_timetable(when, DUE - 1, BERLIN), "Europe/Berlin", prompt="go", **policies)
    return Schedule("abcd", job, "on", DUE, 0.0, 0.0)


def test_a_time_that_has_come_runs_and_the_next_one_follows():
    plan = plan_fire(daily(), DUE + 1, BERLIN)
    assert (plan.fire_at, plan.runs, plan.next_due) == (DUE, True, DUE + DAY)


@pytest.mark.parametrize(
    ("missed", "late", "runs"),
    [
        ("once", 3 * DAY + HOUR, True),
        ("skip", HOUR, False),
        ("skip", 30.0, True),
        ("2h", HOUR, True),
        ("2h", 3 * HOUR, False),
    ],
)
def test_a_missed_time_runs_by_its_policy(missed, late, runs):
    plan = plan_fire(daily(missed=missed), DUE + late, BERLIN)
    assert plan.runs is runs and plan.next_due > DUE + late


def test_of_several_missed_times_only_the_latest_runs():
    plan = plan_fire(daily(), DUE + 3 * DAY + HOUR, BERLIN)
    assert (
        plan.fire_at == DUE + 3 * DAY and plan.next_due == DUE + 4 * DAY and plan.detail == "earlier times were missed"
    )


def test_a_year_of_missed_minutes_is_planned_quickly_and_right():
    plan = plan_fire(daily("* * * * *"), DUE + 365 * DAY + 30, BERLIN)
    assert plan.fire_at == DUE + 365 * DAY and plan.next_due == DUE + 365 * DAY + 60


def test_missed_intervals_keep_their_rhythm():
    plan = plan_fire(
        Schedule("i", Job("i", "", Timetable("every", at=DUE, every_s=60), "UTC"), "on", DUE + 60, 0, 0),
        DUE + 3605,
        BERLIN,
    )
    assert plan.fire_at == DUE + 3600 and plan.next_due == DUE + 3660


def test_one_time_only_has_no_next_one():
    assert plan_fire(daily("2026-11-18T09:00"), DUE, BERLIN).next_due is None


def test_in_quiet_hours_nothing_runs_and_nothing_is_recorded():
    plan = plan_fire(daily(quiet_hours="22:00-10:00"), DUE, BERLIN)
    assert not plan.runs and not plan.is_recorded and plan.next_due is None


def test_the_next_time_is_after_the_quiet_hours():
    schedule = daily("every 40m", quiet_hours="09:30-12:00")
    noon = DUE + 3 * HOUR
    plan = plan_fire(schedule, DUE, BERLIN)
    assert plan.runs and plan.next_due is not None and noon <= plan.next_due < noon + 2400
    assert next_fire(daily(quiet_hours="08:00-10:00").job, DUE, BERLIN) is None
    assert next_fire(daily(quiet_hours="22:00-09:00").job, DUE, BERLIN) == DUE + DAY
    assert next_fire(daily("0 9,23 * * *", quiet_hours="22:00-07:00").job, DUE, BERLIN) == DUE + DAY


def test_quiet_hours_around_midnight():
    assert is_quiet("22:00-10:00", DUE, BERLIN) and not is_quiet("22:00-09:00", DUE, BERLIN)
    assert not is_quiet("", DUE, BERLIN) and is_quiet("08:00-12:00", DUE, BERLIN)
    for wrong in ("22-7", "22:00", "25:00-07:00", "22:70-07:00", "a-b"):
        with pytest.raises(ConfigError, match="quiet hours"):
            parse_quiet_hours(wrong)


def test_jitter_is_the_same_in_every_process_and_within_its_bound():
    job = daily(jitter_s=300.0).job
    moments = {wake_time(f"job{n}", job, DUE) for n in range(50)}
    assert len(moments) > 40 and all(DUE <= each <= DUE + 300 for each in moments)
    assert wake_time("job1", job, DUE) == wake_time("job1", job, DUE)


def test_retries_double_their_pause_and_end():
    job = daily(retries=2, retry_s=10.0).job
    pauses = [retry_time(JobRun(1, "s", job, DUE, attempt, "failed"), 0.0) for attempt in (1, 2, 3)]
    assert pauses == [10.0, 20.0, None]


def test_an_answer_that_is_just_silent_is_not_delivered():
    assert all(is_silent(each) for each in ("[SILENT]", " [silent]\n", "`[SILENT]`", "", "  "))
    assert not any(is_silent(each) for each in ("[SILENT] but the disk is full", "Silent night", "ok"))


def test_a_zone_that_is_no_longer_known_counts_as_utc():
    assert str(zone_of(Job("x", "", Timetable("manual"), "Gone/Zone"))) == "UTC"
    assert str(zone_of(daily().job)) == "Europe/Berlin"


def test_each_run_has_an_id_of_its_own():
    job = daily().job
    ids = {JobRun(1, "s", job, fire, attempt, "waiting").inbound_id for fire in (1.0, 1.5, 2.0) for attempt in (1, 2)}
    assert len(ids) == 6 and "schedule:s:1.5:2" in ids
