"""Settings of scheduled jobs and of the heartbeat."""

from typing import Annotated

from msgspec import Struct

from alipes.config.urls import InvalidValue
from alipes.config.value_types import AMOUNT, ValueType, whole
from alipes.kernel.errors import ConfigError


def _interval(value: object) -> str:
    text = value.strip() if isinstance(value, str) else "?"
    if text:
        from alipes.features.schedules.timetable import MIN_INTERVAL_S, parse_duration  # noqa: PLC0415

        if (parse_duration(text) or 0.0) < MIN_INTERVAL_S:
            raise InvalidValue(f'must be a duration such as "30m" or "2h", of {MIN_INTERVAL_S:.0f} seconds or more')
    return text


def _quiet_hours(value: object) -> str:
    text = value.strip() if isinstance(value, str) else "?"
    if text:
        from alipes.features.schedules.job import parse_quiet_hours  # noqa: PLC0415

        try:
            parse_quiet_hours(text)
        except ConfigError:
            raise InvalidValue('must be hours such as "22:00-07:00"') from None
    return text


INTERVAL = ValueType("duration", _interval)
QUIET_HOURS = ValueType("hours", _quiet_hours)


class SchedulesConfig(Struct, frozen=True):
    parallel: Annotated[int, whole(1, 1000), "Runs of jobs at the same time; others wait."] = 8
    per_day: Annotated[
        str,
        AMOUNT,
        "What all jobs together may spend in a day; later runs are skipped until midnight. Empty: no limit.",
    ] = ""


class HeartbeatConfig(Struct, frozen=True):
    """A job that looks from time to time whether something needs attention."""

    every: Annotated[str, INTERVAL, "How often the heartbeat runs, such as 30m. Empty: never."] = ""
    prompt: Annotated[str, "What it does. Its answer is sent only if there is something to say."] = (
        "Look whether anything needs attention: open to-dos, reminders, unanswered questions, HEARTBEAT.md in this "
        "folder. Report only what is new and worth an interruption."
    )
    quiet_hours: Annotated[str, QUIET_HOURS, "Hours without a heartbeat, such as 22:00-07:00."] = ""
    to: Annotated[str, "Who gets its answers, as in `alipes send`. `home`: the default chat."] = "home"
    per_day: Annotated[str, AMOUNT, "What heartbeats may spend in a day. Empty: no limit."] = "$1"
