"""Cron expressions with five fields, and the moments at which they fire in a time zone.

A time that the zone skips in spring fires at the first moment after the gap; a time that occurs twice in autumn fires
at the first one. Expressions with `*` in the field of minutes or hours, such as `*/15 * * * *`, follow the passing
time instead: they fire in both hours of autumn. Debian's cron does the same.
"""

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

from msgspec import Struct

from alipes.kernel.errors import ConfigError

MAX_MONTHS = 12 * 40
"""How far to look for the next time: 29 February can be 8 years away, and on a given weekday 40."""
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_WEEKDAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}


class _Field(Struct, frozen=True):
    name: str
    low: int
    high: int
    names: dict[str, int] = {}


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _WEEKDAYS),
)


class Cron(Struct, frozen=True):
    """A parsed expression."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    last_day: bool = False
    """Also on the last day of the month (`L`)."""
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()
    """Weekday and its number in the month (`1#1`: the first Monday); 0 means the last one (`5L`)."""
    either_day: bool = False
    """Both fields of days are restricted: one of them is enough."""
    elapsed: bool = False
    """Minutes or hours start with `*`: it follows the passing time when the clocks change."""

    def matches_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        end = monthrange(day.year, day.month)[1]
        by_date = day.day in self.days or (self.last_day and day.day == end)
        weekday = day.isoweekday() % 7
        number, last = (day.day - 1) // 7 + 1, day.day + 7 > end
        nth = (weekday, number) in self.nth_weekdays or (last and (weekday, 0) in self.nth_weekdays)
        by_weekday = nth or weekday in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday


@lru_cache(maxsize=4096)
def parse_cron(text: str) -> Cron:
    """Raises `ConfigError` that names the wrong field."""
    words = MACROS.get(text.strip().lower(), text).split()
    if len(words) != 5:
        raise ConfigError(f"{text!r} is not a cron expression: give minute, hour, day, month and weekday")
    minute, hour, day, month, weekday = (word.lower() for word in words)
    plain_days = ",".join(part for part in day.split(",") if part != "l")
    special = [part for part in weekday.split(",") if "#" in part or (part.endswith("l") and len(part) > 1)]
    plain_weekdays = ",".join(part for part in weekday.split(",") if part not in special)
    cron = Cron(
        " ".join(words),
        tuple(sorted(_parse_field(minute, _FIELDS[0]))),
        tuple(sorted(_parse_field(hour, _FIELDS[1]))),
        frozenset(_parse_field(plain_days, _FIELDS[2]) if plain_days else ()),
        frozenset(_parse_field(month, _FIELDS[3])),
        frozenset(value % 7 for value in _parse_field(plain_weekdays, _FIELDS[4])) if plain_weekdays else frozenset(),
        last_day=plain_days != day,
        nth_weekdays=frozenset(map(_parse_nth, special)),
        either_day=not day.startswith("*") and not weekday.startswith("*"),
        elapsed=minute.startswith("*") or hour.startswith("*"),
    )
    if next_cron_time(cron, 0.0, UTC) is None:
        raise ConfigError(f"{text!r} never fires: there is no such date")
    return cron


def _parse_field(text: str, field: _Field) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            low, high = field.low, field.high - (field.high == 7)
        else:
            low = _parse_value(first, field, text)
            high = _parse_value(last, field, text) if dash else field.high - (field.high == 7) if slash else low
        step = int(step_text) if step_text.isdecimal() and len(step_text) < 4 else 0
        if (slash and not step) or low > high:
            raise _field_error(text, field)
        found.update(range(low, high + 1, step or 1))
    return found


def _parse_value(text: str, field: _Field, whole: str) -> int:
    if text in field.names:
        return field.names[text]
    if not text.isascii() or not text.isdecimal() or len(text) > 2 or not field.low <= int(text) <= field.high:
        raise _field_error(whole, field)
    return int(text)


def _parse_nth(part: str) -> tuple[int, int]:
    field = _FIELDS[4]
    name, _, number = part.partition("#") if "#" in part else (part[:-1], "", "0")
    if number not in ("0", "1", "2", "3", "4", "5") or (number == "0" and "#" in part):
        raise _field_error(part, field)
    return _parse_value(name, field, part) % 7, int(number)


def _field_error(text: str, field: _Field) -> ConfigError:
    return ConfigError(f"{text!r} is not a valid {field.name} of a cron expression: use {field.low} to {field.high}")


def next_cron_time(cron: Cron, after: float, zone: tzinfo) -> float | None:
    """The first moment after `after` (seconds since the epoch) at which it fires; None if there is none."""
    return _next_elapsed(cron, after, zone) if cron.elapsed else _next_fixed(cron, after, zone)


def _next_fixed(cron: Cron, after: float, zone: tzinfo) -> float | None:
    day = datetime.fromtimestamp(after, zone).date() - timedelta(days=1)
    months = 0
    while months < MAX_MONTHS:
        if cron.matches_day(day):
            for hour in cron.hours:
                for minute in cron.minutes:
                    moment = first_moment(datetime(day.year, day.month, day.day, hour, minute), zone)
                    if moment > after:
                        return moment
        later = day + timedelta(days=1) if day.month in cron.months else _next_month(day)
        months += later.month != day.month
        day = later
    return None


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def _next_elapsed(cron: Cron, after: float, zone: tzinfo) -> float | None:
    moment, months, month = after // 60 * 60 + 60, 0, 0
    while months < MAX_MONTHS:
        local = datetime.fromtimestamp(moment, zone)
        months, month = months + (local.month != month), local.month
        if local.month not in cron.months:
            moment = _start_of_day(_next_month(local.date()), zone)
        elif not cron.matches_day(local.date()):
            moment = _start_of_day(local.date() + timedelta(days=1), zone)
        elif local.hour not in cron.hours:
            moment += (60 - local.minute) * 60
        elif local.minute not in cron.minutes:
            moment += 60
        else:
            return moment
    return None


def _start_of_day(day: date, zone: tzinfo) -> float:
    return first_moment(datetime(day.year, day.month, day.day), zone)


def first_moment(local: datetime, zone: tzinfo) -> float:
    """The moment at which clocks in `zone` show `local`; the first of two, or the end of a gap that skips it."""
    early = local.replace(tzinfo=zone, fold=0)
    moment = early.timestamp()
    if datetime.fromtimestamp(moment, zone).replace(tzinfo=None) == local:
        return moment
    low, high = local.replace(tzinfo=zone, fold=1).timestamp(), moment  # the clocks change between the two
    offset = datetime.fromtimestamp(low, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high


_WEEKDAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NUMBERS = ("last", "first", "second", "third", "fourth", "fifth")
_MAX_TIMES = 4
"""Times of a day that are listed in words."""


def describe_cron(cron: Cron) -> str:
    """The expression in words, such as `at 09:00, Monday to Friday`."""
    parts = [_describe_times(cron), _describe_days(cron), _describe_months(cron)]
    return ", ".join(filter(None, parts))


def _describe_times(cron: Cron) -> str:
    minutes, hours = cron.minutes, cron.hours
    if len(minutes) * len(hours) <= _MAX_TIMES:
        return f"at {_join([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    between = "" if len(hours) == 24 else f", {_describe_hours(hours)}"
    if len(minutes) == 60:
        return f"every minute{between}"
    step = minutes[1] - minutes[0] if len(minutes) > 1 else 0
    if step > 1 and minutes == tuple(range(0, 60, step)) and 60 % step == 0:
        return f"every {step} minutes{between}"
    if minutes == (0,):
        pause = hours[1] - hours[0]
        return f"every {pause} hours" if pause > 1 and hours == tuple(range(0, 24, pause)) else f"every hour{between}"
    return f"at minute {_join(list(map(str, minutes)))} of every hour{between}"


def _describe_hours(hours: tuple[int, ...]) -> str:
    if len(hours) > 1 and hours == tuple(range(hours[0], hours[-1] + 1)):
        return f"from {hours[0]:02}:00 to {hours[-1]:02}:59"
    return f"in the hours {_join([f'{hour:02}' for hour in hours])}"


def _describe_days(cron: Cron) -> str:
    nth = [f"the {_NUMBERS[number]} {_WEEKDAY_NAMES[day]} of the month" for day, number in sorted(cron.nth_weekdays)]
    every_weekday, every_date = len(cron.weekdays) == 7, len(cron.days) == 31
    weekdays = [] if every_weekday else [*_runs(sorted(cron.weekdays, key=lambda day: day or 7)), *nth]
    dates = [] if every_date else [str(day) for day in sorted(cron.days)]
    on_date = f"on day {_join(dates)} of the month" if dates else ""
    if cron.last_day:
        on_date = _join([*filter(None, [on_date]), "on the last day of the month"])
    by_weekday = _join(weekdays)
    if cron.either_day:
        return " or ".join(filter(None, (on_date, by_weekday)))
    return ", ".join(filter(None, (by_weekday, on_date))) or ("every day" if cron.days else "")


def _runs(days: list[int]) -> list[str]:
    """Weekdays with three or more in a row as `Monday to Friday`."""
    numbers = [day or 7 for day in days]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return [f"{_WEEKDAY_NAMES[numbers[0] % 7]} to {_WEEKDAY_NAMES[numbers[-1] % 7]}"]
    return [_WEEKDAY_NAMES[day] for day in days]


def _describe_months(cron: Cron) -> str:
    months = sorted(cron.months)
    return "" if len(months) == 12 else f"in {_join([_MONTH_NAMES[month - 1] for month in months])}"


def _join(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
