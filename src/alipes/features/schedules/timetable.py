"""When a job fires: "in 30m", "every 2h", cron expressions, ISO times and plain English, read in a time zone."""

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.features.schedules.cron import describe_cron, first_moment, next_cron_time, parse_cron
from alipes.kernel.errors import ConfigError

TimetableKind: TypeAlias = Literal["at", "every", "cron", "after", "file", "mail", "webhook", "manual"]
"""`after`: when another job has succeeded; `file`: when a file changes; `mail`: when a mail matches; `webhook`: when
a webhook receives a request; `manual`: only by hand."""
MIN_INTERVAL_S = 10.0
DEFAULT_TIME = (9, 0)
"""Hour and minute of "every monday"."""
EXAMPLES = (
    'Examples: "in 30m", "every 2h", "every weekday at 9", "tomorrow at 17:00", "0 9 * * 1-5", "2030-01-31T09:00"'
)
EVENTS = 'Events: "after JOB", "on file PATH", "on mail from:NAME", "on webhook NAME"'
# Patterns are compiled on first use: most processes read no time.
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_UNIT = r"(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)"
_DURATION = rf"(?:\d+(?:\.\d+)?\s*{_UNIT}\s*(?:and\s+)?)+"
_AMOUNT = rf"(\d+(?:\.\d+)?)\s*{_UNIT}(?![a-z])"
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_PARTS_OF_DAY = {"morning": 9, "afternoon": 15, "evening": 18, "night": 20}
"""The hour of "every evening"."""
_ORDINALS = {"first": "1", "1st": "1", "second": "2", "2nd": "2", "third": "3", "3rd": "3", "fourth": "4", "4th": "4"}
_ORDINALS |= {"fifth": "5", "5th": "5", "last": "L"}
_TIME = r"(?:(?P<hour>\d{1,2})(?:[:.](?P<minute>\d{2}))?\s*(?P<half>am|pm)?|(?P<word>noon|midnight))(?:\s*o'?clock)?"
_AT_END = rf"(?:^|\s)(?:at|@)\s*{_TIME}$"
_AT_START = rf"^(?:at\s+)?{_TIME}\s+(?=every|on|each|tomorrow|today|daily|weekdays)"
_FILE = r"(?i)(?:on|when)\s+(?:the\s+)?(?:file|folder)\s+(?P<path>\S.*?)(?:\s+changes)?"
_MAIL = r"(?i)(?:on|when)\s+mail(?:\s+(?P<filter>\S.*))?"
_WEBHOOK = r"(?i)(?:on|when)\s+(?:the\s+)?webhook(?:\s*:\s*|\s+)(?P<webhook>[a-z0-9][a-z0-9._-]*)"
_AFTER = r"(?i)after\s+(?:job\s+)?(?P<job>[a-z0-9][a-z0-9._-]*)"


class Timetable(Struct, frozen=True, omit_defaults=True):
    """A parsed time. Its fields are stored as JSON: do not rename them."""

    kind: TimetableKind
    at: float = 0.0
    """For `at`: the moment, in seconds since the epoch; for `every`: the moment from which intervals count."""
    every_s: float = 0.0
    cron: str = ""
    job: str = ""
    """For `after`: the name of the other job."""
    path: str = ""
    filter: str = ""
    """For `mail`: words such as `from:shop@example.org subject:invoice`."""
    webhook: str = ""
    """For `webhook`: its name."""

    @property
    def is_timed(self) -> bool:
        return self.kind in ("at", "every", "cron")


def next_time(timetable: Timetable, after: float, zone: tzinfo) -> float | None:
    """The first moment after `after` at which it fires; None if there is none."""
    match timetable.kind:
        case "at":
            return timetable.at if timetable.at > after else None
        case "every":
            passed = max(0.0, after - timetable.at) // timetable.every_s
            moment = timetable.at + passed * timetable.every_s
            while moment <= after:
                moment += timetable.every_s
            return moment
        case "cron":
            return next_cron_time(parse_cron(timetable.cron), after, zone)
    return None


def next_times(timetable: Timetable, after: float, zone: tzinfo, count: int = 3) -> tuple[float, ...]:
    found: list[float] = []
    while len(found) < count and (moment := next_time(timetable, after, zone)) is not None:
        found.append(moment)
        after = moment
    return tuple(found)


def format_moment(moment: float, zone: tzinfo) -> str:
    """Such as `Mon 2026-11-23 09:00 CET`."""
    local = datetime.fromtimestamp(moment, zone)
    seconds = f":{local.second:02}" if local.second else ""
    return f"{local:%a %Y-%m-%d %H:%M}{seconds} {local.tzname()}"


def describe_timetable(timetable: Timetable, zone: tzinfo) -> str:
    """The time in words, such as `at 09:00, Monday to Friday`."""
    match timetable.kind:
        case "at":
            return f"once: {format_moment(timetable.at, zone)}"
        case "every":
            return f"every {_describe_interval(timetable.every_s)}"
        case "cron":
            return describe_cron(parse_cron(timetable.cron))
        case "after":
            return f"after the job {timetable.job} has succeeded"
        case "file":
            return f"when {timetable.path} changes"
        case "mail":
            return f"when a mail arrives: {timetable.filter}" if timetable.filter else "when a mail arrives"
    return "only by hand or by a webhook"


def _describe_interval(seconds: float) -> str:
    """Such as `2 hours` or `1 hour 30 minutes`."""
    parts, left = [], seconds
    for name, length in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count = left // length if length > 1 else left
        left -= count * length
        if count:
            parts.append(f"{count:g} {name}{'' if count == 1 else 's'}")
    return " ".join(parts).removeprefix("1 ") if len(parts) == 1 else " ".join(parts)


def parse_duration(text: str) -> float | None:
    """Seconds of "30m", "1h 30m" or "2 hours"; None if it is something else."""
    text = text.strip().lower()
    if not re.fullmatch(_DURATION, text, re.ASCII):
        return None
    return sum(float(number) * _UNITS[unit[0]] for number, unit in re.findall(_AMOUNT, text, re.ASCII))


def parse_timetable(text: str, now: float, zone: tzinfo) -> Timetable:
    """Read `text`. Raises `ConfigError` with examples, or if the time is past."""
    whole = " ".join(text.split())
    if (event := parse_event(whole)) is not None:
        return event
    words = whole.lower().replace(",", " , ").strip(" .")
    words = " ".join(words.split())
    if not words:
        raise ConfigError(f"no time given. {EXAMPLES}")
    found = _parse_relative(words, now) or _parse_iso(whole, now, zone)
    if found is None and (words.startswith("@") or re.fullmatch(r"\S+( \S+){4}", whole)):
        found = _parse_cron_like(whole, strict=bool(re.match(r"[\d*@]", whole)))
    found = found or _parse_english(words, now, zone)
    if found is None:
        is_event = re.match(r"(on|when|after)\b", words)
        raise ConfigError(f"cannot read the time {text!r}. {EVENTS if is_event else EXAMPLES}")
    return found


def parse_event(text: str) -> Timetable | None:
    """The event in a text such as `after JOB` or `on file PATH`; None if it is something else."""
    text = " ".join(text.split())
    if text.lower() in ("manual", "manually", "never"):
        return Timetable("manual")
    if match := re.fullmatch(_AFTER, text):
        return Timetable("after", job=match["job"].lower())
    if match := re.fullmatch(_FILE, text):
        return Timetable("file", path=match["path"])
    if match := re.fullmatch(_MAIL, text):
        return Timetable("mail", filter=match["filter"] or "")
    if match := re.fullmatch(_WEBHOOK, text):
        return Timetable("webhook", webhook=match["webhook"].lower())
    return None


def _parse_relative(words: str, now: float) -> Timetable | None:
    """ "in 30m" and "every 2h"."""
    kind, _, rest = words.partition(" ")
    if kind == "in" and (delay := parse_duration(re.sub(r"^(an?|one) ", "1 ", rest))) is not None:
        if delay <= 0:
            raise ConfigError(f"{words!r} is now: give a time in the future")
        return Timetable("at", at=round(now + delay, 3))
    if words in ("hourly", "every hour", "every minute"):
        rest, kind = ("1m" if words.endswith("minute") else "1h"), "every"
    if kind not in ("every", "each") or (interval := parse_duration(rest)) is None:
        return None
    if interval < MIN_INTERVAL_S:
        raise ConfigError(f"{words!r} is too often: the shortest interval is {MIN_INTERVAL_S:.0f} s")
    return Timetable("every", at=round(now, 3), every_s=interval)


def _parse_iso(text: str, now: float, zone: tzinfo) -> Timetable | None:
    if not re.match(r"\d{4}-\d{2}-\d{2}", text):
        return None
    try:
        moment = datetime.fromisoformat(text if len(text) > 10 else f"{text}T{DEFAULT_TIME[0]:02}:{DEFAULT_TIME[1]:02}")
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a date and time: {error}") from error
    if moment.tzinfo is None:
        return _once(first_moment(moment, zone), now, zone)
    return _once(moment.timestamp(), now, zone)


def _once(moment: float, now: float, zone: tzinfo) -> Timetable:
    if moment <= now:
        raise ConfigError(f"{format_moment(moment, zone)} is past: give a time in the future")
    return Timetable("at", at=moment)


def _parse_cron_like(text: str, *, strict: bool) -> Timetable | None:
    try:
        return Timetable("cron", cron=parse_cron(text).text)
    except ConfigError:
        if strict:
            raise
        return None


def _parse_english(words: str, now: float, zone: tzinfo) -> Timetable | None:
    if (found := _parse_several_times(words)) is not None:
        return found
    words, clock = _take_clock(words)
    for parse in (_parse_once, _parse_repeated):
        if (found := parse(words, clock, now, zone)) is not None:
            return found
    return None


def _parse_several_times(words: str) -> Timetable | None:
    """ "every day at 9 and 17"."""
    plain = re.sub(r"\(\?P<\w+>", "(?:", _TIME)
    match = re.fullmatch(rf"(?P<days>\S.*?) (?:at|@) (?P<times>{plain}(?:(?: ,| and| , and) (?:at )?{plain})+)", words)
    if match is None:
        return None
    texts = re.split(r" , and | , | and ", match["times"])
    clocks = [_read_clock(found) for text in texts if (found := re.fullmatch(_TIME, text.removeprefix("at ")))]
    days = _find_days(match["days"])
    if days is None or len(clocks) != len(texts):
        return None
    minutes = {minute for _, minute in clocks}
    if len(minutes) > 1:
        raise ConfigError(f"the times in {words!r} have different minutes: make a job for each")
    return Timetable("cron", cron=f"{minutes.pop()} {','.join(map(str, sorted({hour for hour, _ in clocks})))} {days}")


def _take_clock(words: str) -> tuple[str, tuple[int, int] | None]:
    """The words without their time of day, and that time."""
    if match := re.search(_AT_END, words):
        return words[: match.start()].strip(" ,"), _read_clock(match)
    if match := re.search(_AT_START, words):
        return words[match.end() :].strip(" ,"), _read_clock(match)
    if (match := re.fullmatch(_TIME, words)) and (match["minute"] or match["half"] or match["word"]):
        return "", _read_clock(match)
    *most, last = words.split() or [""]
    if most and (match := re.fullmatch(_TIME, last)) and (match["minute"] or match["half"] or match["word"]):
        return " ".join(most).strip(" ,"), _read_clock(match)
    return words, None


def _read_clock(match: re.Match[str]) -> tuple[int, int]:
    if match["word"]:
        return (12, 0) if match["word"] == "noon" else (0, 0)
    hour, minute = int(match["hour"]), int(match["minute"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            raise ConfigError(f"{match[0].strip()!r} is not a time of day")
        hour = hour % 12 + (12 if match["half"] == "pm" else 0)
    if hour > 23 or minute > 59:
        raise ConfigError(f"{match[0].strip()!r} is not a time of day")
    return hour, minute


def _parse_once(words: str, clock: tuple[int, int] | None, now: float, zone: tzinfo) -> Timetable | None:
    """ "tomorrow at 17:00", "at 17:00", "next monday", "24 december at 10"."""
    today = datetime.fromtimestamp(now, zone).date()
    hour, minute = clock or DEFAULT_TIME

    def moment(day: date) -> float:
        return first_moment(datetime(day.year, day.month, day.day, hour, minute), zone)

    if words in ("today", "tonight", "tomorrow", "the day after tomorrow"):
        if words == "tonight" and clock is None:
            hour, minute = 20, 0
        days = {"tomorrow": 1, "the day after tomorrow": 2}.get(words, 0)
        return _once(moment(today + timedelta(days=days)), now, zone)
    if not words:
        return None if clock is None else _first_after(now, (moment(today + timedelta(days=n)) for n in range(2)))
    if match := re.fullmatch(r"(?:(?:on|next|this|on the next)\s+)?([a-z]+)", words):
        weekday = _find_name(match[1], _WEEKDAYS)
        if weekday is not None and not match[1].endswith("days"):
            ahead = (weekday - today.isoweekday()) % 7
            return _first_after(now, (moment(today + timedelta(days=ahead + n)) for n in (0, 7)))
    if (found := _find_date(words)) is not None:
        years = (date(today.year + n, *found) for n in range(9) if _is_date(today.year + n, *found))
        return _first_after(now, (moment(day) for day in years))
    return None


def _first_after(now: float, moments: Iterable[float]) -> Timetable | None:
    return next((Timetable("at", at=each) for each in moments if each > now), None)


def _find_date(words: str) -> tuple[int, int] | None:
    """Month and day of "24 december", "december 24" or "on the 24th of december"."""
    match = re.fullmatch(r"(?:on )?(?:the )?(\d{1,2})(?:st|nd|rd|th)?\.? (?:of )?([a-z]+)", words)
    day, name = (match[1], match[2]) if match else ("", "")
    if match is None and (match := re.fullmatch(r"(?:on )?([a-z]+) (?:the )?(\d{1,2})(?:st|nd|rd|th)?", words)):
        day, name = match[2], match[1]
    month = _find_name(name, _MONTHS) if day else None
    if month is None or not _is_date(2028, month + 1, int(day)):
        return None
    return month + 1, int(day)


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _find_name(word: str, names: tuple[str, ...]) -> int | None:
    """The number of a weekday or month, also in plural or shortened to three letters or more."""
    word = word.rstrip(".")
    word = word if word in names else word.removesuffix("s")
    return next((n for n, name in enumerate(names) if len(word) >= 3 and name.startswith(word)), None)


def _parse_repeated(words: str, clock: tuple[int, int] | None, _now: float, _zone: tzinfo) -> Timetable | None:
    part = re.fullmatch(r"(?:every|each) (?P<part>morning|afternoon|evening|night)", words)
    hour, minute = clock or (_PARTS_OF_DAY[part["part"]], 0) if part else clock or DEFAULT_TIME
    days = "* * *" if part else _find_days(words)
    return None if days is None else Timetable("cron", cron=f"{minute} {hour} {days}")


def _find_days(words: str) -> str | None:
    """The last three fields of a cron expression."""
    words = re.sub(r"^(every |each )?(on )?(the )?", "", words)
    found = (parse(words) for parse in (_days_of_week, _days_of_month, _days_of_year))
    return next((days for days in found if days is not None), None)


def _days_of_week(words: str) -> str | None:
    """The last three fields for "day", "weekday", "monday and friday"."""
    plain = {"day": "* * *", "daily": "* * *", "week": "* * 1", "weekly": "* * 1"}
    plain |= {"weekday": "* * 1-5", "weekdays": "* * 1-5", "workday": "* * 1-5", "working day": "* * 1-5"}
    plain |= {"weekend": "* * 0,6", "weekends": "* * 0,6"}
    if words in plain:
        return plain[words]
    words = re.sub(r"^(weekly|week) on ", "", words)
    if match := re.fullmatch(r"([a-z]+) ?(?:to|through|-) ?([a-z]+)", words):
        first, last = _find_name(match[1], _WEEKDAYS), _find_name(match[2], _WEEKDAYS)
        if first is None or last is None:
            return None
        span = [(first + n) % 7 for n in range((last - first) % 7 + 1)]
        return f"* * {','.join(map(str, sorted(span)))}"
    names = [word for word in re.split(r" |,", words) if word and word != "and"]
    days = [_find_name(name, _WEEKDAYS) for name in names]
    if not days or None in days:
        return None
    return f"* * {','.join(str(day) for day in sorted({day for day in days if day is not None}))}"


_MONTHLY = r"of (?:the|each|every) month"


def _days_of_month(words: str) -> str | None:
    """The last three fields for "first monday of the month", "month on the 15th", "last day of the month"."""
    if words in ("month", "monthly"):
        return "1 * *"
    if match := re.match(r"(monthly|month)( on)?( the)? ", words):
        words = f"{words[match.end() :]} of the month"
    match = re.fullmatch(rf"(\S+) (\S+) {_MONTHLY}", words)
    if match and match[1] in _ORDINALS:
        number, weekday = _ORDINALS[match[1]], _find_name(match[2], _WEEKDAYS)
        if weekday is not None:
            return f"* * {weekday}{'L' if number == 'L' else f'#{number}'}"
        if match[2] == "day":
            return f"{number} * *"
    day = r"(?:\d{1,2}(?:st|nd|rd|th)?|first|last)"
    match = re.fullmatch(rf"({day}(?:(?: ?, ?| and ){day})*) {_MONTHLY}", words)
    if match is None:
        return None
    days = [_ORDINALS.get(each) or re.sub(r"\D", "", each) for each in re.split(r" ?, ?| and ", match[1])]
    if any(each.isdecimal() and not 1 <= int(each) <= 31 for each in days):
        raise ConfigError(f"{match[1]!r} is not a day of the month")
    return f"{','.join(days)} * *"


def _days_of_year(words: str) -> str | None:
    words = re.sub(r"^(yearly|year)( on)?( the)? ?", "", words)
    found = _find_date(words)
    return None if found is None else f"{found[1]} {found[0]} *"
