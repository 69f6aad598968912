"""Scheduled jobs: what they do, when they fire, and what became of each run. Pure values and decisions."""

import hashlib
import re
from datetime import UTC, datetime, tzinfo
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.config.time_zones import find_zone
from alipes.features.schedules.cron import next_cron_time, parse_cron
from alipes.features.schedules.timetable import Timetable, next_time, parse_duration
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json
from alipes.kernel.turns import SCHEDULED, Address, PermissionMode

SILENT = "[SILENT]"
"""An answer that is not delivered."""
GRACE_S = 60.0
"""A run that starts later than this after its time was missed: its policy decides."""
MAX_WAITING = 10
"""Runs of one job that may wait for the one before, with the overlap policy `queue`."""
MANUAL, BY_MODEL = "manual", "by the model"
"""Causes of runs that a person asked for."""
ScheduleState: TypeAlias = Literal["on", "paused", "done"]
RunState: TypeAlias = Literal["waiting", "running", "ok", "failed", "stopped", "skipped"]
OverlapPolicy: TypeAlias = Literal["skip", "queue", "parallel"]
_MAX_QUIET_DAYS = 400
_CLOCK = r"(\d{1,2}):(\d{2})"


class Job(Struct, frozen=True, omit_defaults=True):
    """A job as a person or the model described it. Its fields are stored as JSON: do not rename them."""

    name: str
    when: str
    """The time as it was written."""
    timetable: Timetable
    zone: str
    """The time zone, such as `Europe/Berlin`."""
    prompt: str = ""
    script: str = ""
    """Shell commands; they run in the sandbox without a model. Instead of `prompt`."""
    model: str = ""
    """A model for this job alone, without fallback; empty: the default at the time of the run."""
    tools: tuple[str, ...] | None = None
    """None: all."""
    skills: tuple[str, ...] = ()
    workdir: str = ""
    mode: PermissionMode = "ask"
    """What its runs may do; nobody can be asked, so `ask` denies risky calls."""
    budget: str = ""
    """What one run may spend, such as `$0.50` or `20000 tokens`."""
    daily_budget: str = ""
    """What all runs of a day may spend; later ones are skipped."""
    targets: tuple[str, ...] = ("origin",)
    """Who gets the answer: `origin`, `home`, a platform, `platform:chat[:thread]`, an https URL, `files`, `none`."""
    origin: Address | None = None
    """The conversation in which it was made."""
    missed: str = "once"
    """If its time passed while nothing ran: `once`, `skip`, or the age up to which it still runs, such as `2h`."""
    overlap: OverlapPolicy = "skip"
    jitter_s: float = 0.0
    """Each run starts up to this many seconds later."""
    retries: int = 0
    retry_s: float = 60.0
    """Seconds before the first retry; doubled for each further one."""
    quiet_hours: str = ""
    """Such as `22:00-07:00`: no runs then."""
    runs_left: int = 0
    """So many more runs, then it is done; 0: no limit."""
    together: bool = False
    """All runs share one conversation; else each has its own."""
    output_schema: dict[str, Json] = {}
    """What the answer must match; empty: any text."""
    untrusted: str = ""
    """Whose text it may contain, if the conversation in which it was made had read text of strangers."""
    owner: str = ""
    """Who made it: the sender of the message."""
    by_owner: bool = False
    """An owner of this home made it, and not in a group: its runs may use the owner's notes."""


class Schedule(Struct, frozen=True):
    """A stored job."""

    id: str
    job: Job
    state: ScheduleState
    due: float | None
    """Its next time; None if it has none."""
    created: float
    updated: float
    seen: str = ""
    """For `file`: the state of the file when it was last looked at."""


class JobRun(Struct, frozen=True):
    """One run of a job."""

    number: int
    schedule: str
    """The id of the schedule, also after that was removed."""
    job: Job
    """As it was when the run was made."""
    fire_at: float
    """The time at which it was due."""
    attempt: int
    state: RunState
    start_at: float | None = None
    cause: str = ""
    """Why it runs, if not because of the time: `manual`, `after NAME`, and so on."""
    given: str = ""
    """Text from elsewhere for the prompt: what happened, or the answer of the job before."""
    given_untrusted: str = ""
    """Whose text `given` is, if not an owner's."""
    turn: str = ""
    session: str = ""
    detail: str = ""
    created: float = 0.0
    started: float | None = None
    finished: float | None = None
    continues: str = ""
    """Why the attempt before failed, if this one continues its turn; empty if it starts from the prompt."""

    @property
    def inbound_id(self) -> str:
        again = f":{self.attempt}" if self.attempt > 1 else ""
        return f"schedule:{self.schedule}:{format_fire(self.fire_at)}{again}"

    @property
    def address(self) -> Address:
        """All attempts of a run share a conversation, so that the next one sees what is done already. Those of a script
        do not: it runs again as a whole."""
        again = f"-{self.attempt}" if self.attempt > 1 and self.job.script else ""
        thread = "" if self.job.together else f"{format_fire(self.fire_at)}{again}"
        return Address(SCHEDULED, self.schedule, thread=thread)


def zone_of(job: Job) -> tzinfo:
    """The time zone of a job; UTC if this machine no longer knows it, so that one job cannot stop the others."""
    try:
        return find_zone(job.zone)
    except ConfigError:
        return UTC


def format_fire(moment: float) -> str:
    """A fire time in an id: seconds since the epoch, with milliseconds if there are any."""
    return f"{moment:.3f}".rstrip("0").rstrip(".")


def wake_time(schedule: str, job: Job, due: float) -> float:
    """When a run that is due at `due` starts: later by a fixed part of the jitter, the same in every process."""
    if not job.jitter_s:
        return due
    digest = hashlib.sha256(f"{schedule} {format_fire(due)}".encode()).digest()
    return due + job.jitter_s * int.from_bytes(digest[:4], "big") / 2**32


class FirePlan(Struct, frozen=True):
    """What happens with a job whose time has come."""

    fire_at: float
    """The latest time that has come; earlier ones are left out."""
    runs: bool
    detail: str = ""
    """Why it does not run, or what was left out."""
    next_due: float | None = None
    is_recorded: bool = True
    """False: it leaves no trace in the history, as in quiet hours."""


def plan_fire(schedule: Schedule, now: float, zone: tzinfo) -> FirePlan:
    """Decide by the policies of the job. Its `due` is not None and not after `now`."""
    job, due = schedule.job, schedule.due
    assert due is not None
    latest = _latest_time(job.timetable, due, now, zone)
    following = next_fire(job, max(latest, now), zone)
    if is_quiet(job.quiet_hours, latest, zone):
        return FirePlan(latest, False, "quiet hours", following, is_recorded=False)
    late = now - wake_time(schedule.id, job, latest)
    missed = "earlier times were missed" if latest > due else ""
    if late > GRACE_S and job.missed != "once":
        oldest = parse_duration(job.missed) or 0.0
        if late > oldest:
            return FirePlan(latest, False, "missed: alipes was not running", following)
    return FirePlan(latest, True, missed, following)


def _latest_time(timetable: Timetable, due: float, now: float, zone: tzinfo) -> float:
    """The latest time from `due` to `now`."""
    if timetable.kind == "every":
        return due + (now - due) // timetable.every_s * timetable.every_s
    latest = due
    for window in (7200.0, 172_800.0, 3_456_000.0, now - due):  # search back from now, so that it is quick
        moment = next_time(timetable, max(due, now - window), zone)
        while moment is not None and moment <= now:
            latest, moment = moment, next_time(timetable, moment, zone)
        if latest > due or now - window <= due:
            break
    return latest


def next_fire(job: Job, after: float, zone: tzinfo) -> float | None:
    """The first time after `after` that is not within the quiet hours of the job; None if there is none."""
    moment = next_time(job.timetable, after, zone)
    for _ in range(_MAX_QUIET_DAYS):
        if moment is None or not is_quiet(job.quiet_hours, moment, zone):
            return moment
        moment = next_time(job.timetable, _quiet_end(job.quiet_hours, moment, zone) - 0.001, zone)
    return None


def _quiet_end(hours: str, moment: float, zone: tzinfo) -> float:
    _, last = parse_quiet_hours(hours)
    return next_cron_time(parse_cron(f"{last % 60} {last // 60 % 24} * * *"), moment, zone) or moment


def is_quiet(hours: str, moment: float, zone: tzinfo) -> bool:
    """True if `moment` is within quiet hours such as `22:00-07:00`."""
    if not hours:
        return False
    first, last = parse_quiet_hours(hours)
    local = datetime.fromtimestamp(moment, zone)
    minute = local.hour * 60 + local.minute
    return first <= minute < last if first <= last else minute >= first or minute < last


def parse_quiet_hours(text: str) -> tuple[int, int]:
    """Start and end in minutes after midnight. Raises `ConfigError`."""
    parts = [re.fullmatch(_CLOCK, part.strip()) for part in text.split("-")]
    values = [int(part[1]) * 60 + int(part[2]) for part in parts if part is not None and int(part[2]) < 60]
    if len(parts) != 2 or len(values) != 2 or max(values) > 24 * 60:
        raise ConfigError(f"{text!r} are not quiet hours: write them as 22:00-07:00")
    return values[0], values[1]


def start_time(run: JobRun, now: float) -> float:
    """When a run that is due may start: now, or after the quiet hours, if an event or a failure made it or its time
    has passed long ago. Runs that a person asked for start at once."""
    hours, zone = run.job.quiet_hours, zone_of(run.job)
    is_in_time = not run.cause and run.attempt == 1 and now - run.fire_at <= GRACE_S + run.job.jitter_s
    if run.cause in (MANUAL, BY_MODEL) or is_in_time or not is_quiet(hours, now, zone):
        return now
    return _quiet_end(hours, now, zone)


def retry_time(run: JobRun, now: float) -> float | None:
    """When a failed run is tried again; None if it is not."""
    if run.attempt > run.job.retries:
        return None
    return now + run.job.retry_s * 2.0 ** (run.attempt - 1)


def is_silent(answer: str) -> bool:
    """True if an answer is not to be delivered."""
    return answer.strip().strip("`*\"'").upper() in (SILENT, "SILENT", "")
