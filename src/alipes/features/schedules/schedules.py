"""Adds, changes and lists scheduled jobs, for the command, the chat command, the tool and the API."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any, get_args

from msgspec import Struct, structs

from alipes.config.loader import parse_amount
from alipes.config.messengers import MESSENGERS
from alipes.config.settings import Settings
from alipes.config.time_zones import find_local_zone, find_zone
from alipes.features.schedules.job import (
    MANUAL,
    Job,
    JobRun,
    OverlapPolicy,
    Schedule,
    ScheduleState,
    next_fire,
    parse_quiet_hours,
    zone_of,
)
from alipes.features.schedules.run import NewRun
from alipes.features.schedules.store.jobs import ScheduleStore
from alipes.features.schedules.store.runs import ScheduleRunStore
from alipes.features.schedules.timetable import (
    Timetable,
    describe_timetable,
    format_moment,
    next_time,
    next_times,
    parse_duration,
    parse_timetable,
)
from alipes.features.skills.catalog import usable
from alipes.features.skills.skills import Skills, pick_skill
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.formatting import did_you_mean, format_duration, format_excerpt
from alipes.kernel.messages import Json
from alipes.kernel.turns import Address, PermissionMode, Stop, Turn
from alipes.sessions.sessions import Sessions
from alipes.store.sql.people import PeopleStore
from alipes.store.sql.store import Store

PLUGIN_OWNER = "plugin"
"""The owner of jobs that plugins make outside of a conversation."""
HEARTBEAT = "heartbeat"
"""The name and id of the job that `[heartbeat]` describes."""
ALL_TOOLS = "*"
"""As the only name in `tools`: no restriction."""
MAX_PROMPT_CHARS = 100_000
MAX_RETRIES = 20
MAX_DELAY_S = 86_400.0
_NAME = r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?"
OWN_TARGETS = ("origin", "home", "files", "none")
"""Places for answers that are not a platform."""
_WITH_TEXT = ("after", "mail", "webhook")
"""Events that bring a text of their own: if the last run has not finished, they wait unless the job says otherwise."""
_TEXT_FIELDS = ("model", "budget", "daily_budget", "quiet_hours", "workdir")
FIELDS = (
    *("when", "prompt", "script", "name", "tools", "skills", "mode", "targets", "missed", "overlap", "jitter"),
    *("retries", "retry", "zone", "together", "output_schema"),
    *_TEXT_FIELDS,
)
"""What a request may set."""


class ScheduleView(Struct, frozen=True):
    """A job as people see it."""

    schedule: Schedule
    next_times: tuple[float, ...]
    zone: tzinfo
    last: JobRun | None = None

    @property
    def name(self) -> str:
        return self.schedule.job.name

    @property
    def is_fixed(self) -> bool:
        """The heartbeat, which is set in config.toml."""
        return self.schedule.id == HEARTBEAT

    @property
    def when_text(self) -> str:
        """Its time in words."""
        return describe_timetable(self.schedule.job.timetable, self.zone)

    @property
    def when(self) -> str:
        """Its next time, or what starts it, or its state."""
        schedule, timetable = self.schedule, self.schedule.job.timetable
        if schedule.state != "on":
            return schedule.state
        if schedule.due is not None:
            return format_moment(schedule.due, self.zone)
        events = {"after": f"after {timetable.job}", "file": f"on file {timetable.path}", "mail": "on mail"}
        events["webhook"] = f"on webhook {timetable.webhook}"
        return events.get(timetable.kind, timetable.kind)

    def describe(self) -> str:
        """A line such as `report: every weekday at 9. Next: Mon 09:00 CET, ...`."""
        moments = [format_moment(each, self.zone) for each in self.next_times]
        following = f"Next: {', '.join(moments)}." if moments and self.schedule.state == "on" else f"({self.when})"
        return f"{self.name}: {self.schedule.job.when}. {following}"


def open_stores(store: Store, clock: Callable[[], float] = time.time) -> tuple[ScheduleStore, ScheduleRunStore]:
    changes = store.schedule_changes
    return store.tables(ScheduleStore, changes, clock=clock), store.tables(ScheduleRunStore, changes, clock=clock)


class Schedules:
    """The jobs of a home."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        clock: Callable[[], float] = time.time,
        sessions: Sessions | None = None,
        skills: Skills | None = None,
    ) -> None:
        """`skills`: those that jobs may name; without them, a name is checked when the job runs."""
        self._settings, self._clock, self._sessions, self._skills = settings, clock, sessions, skills
        self.jobs, self.runs = open_stores(store, clock)
        self.sources, self._people = store.sources, store.people

    @property
    def default_zone(self) -> str:
        return self._settings.timezone or find_local_zone()

    async def default_targets(self) -> list[str]:
        """Where answers go if nobody says where: to the default chats, or into files if there are none."""
        return ["home"] if await self._people.default_chats() else ["files"]

    def now(self) -> float:
        return self._clock()

    def build(self, request: Mapping[str, Any]) -> Job:
        """A job that is not stored. Raises `ConfigError`."""
        return self._build(None, request)

    def preview(self, when: str, zone: str = "", count: int = 5) -> tuple[str, tuple[float, ...]]:
        """A time in words, and the next moments at which it fires. Raises `ConfigError`."""
        place, now = find_zone(zone or self.default_zone), self._clock()
        timetable = parse_timetable(when, now, place)
        return describe_timetable(timetable, place), next_times(timetable, now, place, count)

    async def add(
        self, request: Mapping[str, Any], *, origin: Address | None = None, **facts: str | bool
    ) -> ScheduleView:
        """Store a new job. `facts`: `owner`, `by_owner` and `untrusted` of the job. Raises `ConfigError`."""
        job = structs.replace(self._build(None, request), origin=origin, **facts)
        if not job.name:
            job = structs.replace(job, name=await self.make_name(job.prompt or job.script))
        await self._check_event(job)
        await _check_skills(job, self._skills)
        await check_platforms(job.targets, self._people)
        due = self._first_due(job)
        schedule = await self.jobs.add(job, due)
        if schedule is None:
            raise ConfigError(f"there is a job {job.name} already: choose another name, or edit it")
        return _view(schedule)

    async def edit(self, name: str, request: Mapping[str, Any], **facts: str) -> ScheduleView:
        """Change a job. Its next time is computed again if its time or zone changes. Raises `ConfigError`."""
        schedule = await self.find(name)
        _refuse_heartbeat(schedule)
        job = structs.replace(self._build(schedule.job, request), **facts)
        await self._check_event(job)
        if "skills" in request:
            await _check_skills(job, self._skills)
        if "targets" in request:
            await check_platforms(job.targets, self._people)
        moved = "when" in request or "zone" in request or ("quiet_hours" in request and schedule.due is not None)
        due = self._first_due(job) if moved else schedule.due
        state: ScheduleState = "on" if moved and schedule.state == "done" else schedule.state
        if not await self.jobs.update(schedule.id, job, due, state):
            raise ConfigError(f"{name} was removed meanwhile, or there is a job {job.name} already")
        if job.name != schedule.job.name:
            await _rename_in_chains(self.jobs, schedule.job.name, job.name)
        return _view(structs.replace(schedule, job=job, due=due, state=state))

    async def pause(self, name: str) -> ScheduleView:
        schedule = await self.find(name)
        await self.jobs.update(schedule.id, schedule.job, schedule.due, "paused")
        return _view(structs.replace(schedule, state="paused"))

    async def resume(self, name: str) -> ScheduleView:
        """Switch it on again; times that passed meanwhile are left out. Raises `ConfigError` if there is none left."""
        schedule = await self.find(name)
        due = self._first_due(schedule.job)
        await self.jobs.update(schedule.id, schedule.job, due, "on")
        return _view(structs.replace(schedule, state="on", due=due))

    async def remove(self, name: str, *, stop: bool = False) -> str:
        """Remove a job for ever, and describe that; with `stop`, also stop its running runs."""
        schedule = await self.find(name)
        _refuse_heartbeat(schedule)
        running = await self.runs.running(schedule.id) if stop else ()
        await self.jobs.remove(schedule.id)
        await self._stop(running)
        later = [each.job.name for each in await _list_after(self.jobs, schedule.job.name)]
        note = f" Jobs that ran after it no longer start: {', '.join(later)}." if later else ""
        return f"Removed {schedule.job.name}.{note}"

    async def stop(self, name: str) -> int:
        """Stop the running runs; returns how many there were."""
        schedule = await self.find(name)
        running = await self.runs.running(schedule.id)
        await self._stop(running)
        return len(running)

    async def _stop(self, running: tuple[JobRun, ...]) -> None:
        if running and self._sessions is None:
            raise ConfigError("runs can be stopped only where sessions are open")
        for run in running:
            assert self._sessions is not None
            await self._sessions.stop(run.address.key, Stop(turn=run.turn))

    async def run_now(self, name: str, *, cause: str = MANUAL) -> int:
        """Make a run that starts at once; returns its number."""
        schedule, now = await self.find(name), round(self._clock(), 3)
        run = NewRun(schedule.id, schedule.job, now, now, cause=cause)
        while not (number := await self.runs.add(run)):  # another run of this millisecond
            run = structs.replace(run, fire_at=round(run.fire_at + 0.001, 3))
        return number

    async def start_by_webhook(
        self, name: str, delivery: str, describe: Callable[[str], str]
    ) -> tuple[str, ...] | None:
        """Start the jobs of a webhook, each once for a delivery; returns their names, or None if there is no such job.
        `describe(prompt)`: what a job with this prompt is given of the request."""
        started, now = [], round(self._clock(), 3)
        found = await self.jobs.list_events("webhook", name)
        for schedule in found:
            run = NewRun(
                schedule.id,
                schedule.job,
                now,
                now,
                cause=f"webhook {name} {hashlib.sha256(delivery.encode()).hexdigest()[:12]}",
                given=describe(schedule.job.prompt),
                untrusted=f"the body of webhook {name}",
            )
            if await self.jobs.fire_event(schedule, run, delivery=delivery):
                started.append(schedule.job.name)
        return tuple(started) if found else None

    async def find(self, name: str) -> Schedule:
        """By name or id. Raises `ConfigError` with similar names."""
        schedule = await self.jobs.find(name)
        if schedule is None:
            names = [each.job.name for each in await self.jobs.all()]
            raise ConfigError(f"there is no job {name!r}.{did_you_mean(name, names)}")
        return schedule

    async def view(self, name: str, *, count: int = 3) -> ScheduleView:
        """One job with its next `count` times."""
        schedule = await self.find(name)
        runs = await self.runs.latest(schedule.id, 1)
        return _view(schedule, runs[0] if runs else None, count)

    async def list(self, *, count: int = 1) -> tuple[ScheduleView, ...]:
        last = await self.runs.last_runs()
        return tuple(_view(each, last.get(each.id), count) for each in await self.jobs.all())

    async def sync_heartbeat(self, workdir: str) -> None:
        """Make the job of `[heartbeat]`, change it, or remove it."""
        chosen = self._settings.heartbeat
        found = await self.jobs.find(HEARTBEAT)
        if not chosen.every:
            if found is not None and found.id == HEARTBEAT:
                await self.jobs.remove(HEARTBEAT)
            return
        now, every_s = self._clock(), parse_duration(chosen.every) or 0.0
        old = found.job.timetable if found is not None else None
        start = old.at if old is not None and old.every_s == every_s else round(now, 3)
        job = Job(
            HEARTBEAT,
            f"every {chosen.every}",
            Timetable("every", at=start, every_s=every_s),
            self.default_zone,
            prompt=chosen.prompt,
            targets=(chosen.to,),
            quiet_hours=chosen.quiet_hours,
            daily_budget=chosen.per_day,
            workdir=workdir,
            missed="skip",
            owner=HEARTBEAT,
            by_owner=True,
        )
        due = next_fire(job, now, find_zone(job.zone))
        if found is None:
            await self.jobs.add(job, due, id=HEARTBEAT)
        elif found.id == HEARTBEAT and found.job != job:
            await self.jobs.update(HEARTBEAT, job, due, found.state)

    def _build(self, job: Job | None, request: Mapping[str, Any]) -> Job:
        """A job with the fields of the request. Raises `ConfigError`."""
        unknown = [name for name in request if name not in FIELDS]
        if unknown:
            raise ConfigError(f"unknown field {unknown[0]!r}.{did_you_mean(unknown[0], FIELDS)}")
        zone = str(request.get("zone") or (job.zone if job else "") or self.default_zone)
        when = str(request.get("when") or (job.when if job else ""))
        if job is None or "when" in request or "zone" in request:
            timetable = parse_timetable(when, self._clock(), find_zone(zone))
        else:
            timetable = job.timetable
        changes = _read_fields(request) | {"when": when, "timetable": timetable, "zone": zone}
        if changes.get("workdir"):
            changes["workdir"] = _check_workdir(changes["workdir"])
        if timetable.path:
            path = os.path.expanduser(timetable.path)
            base = changes.get("workdir") or (job.workdir if job else "") or self._settings.workdir or os.getcwd()
            changes["timetable"] = structs.replace(timetable, path=os.path.join(base, path))
        if job is None and timetable.kind in _WITH_TEXT:
            changes.setdefault("overlap", "queue")
        built = structs.replace(job, **changes) if job is not None else Job(**{"name": "", **changes})
        _check_task(built)
        return built

    def _first_due(self, job: Job) -> float | None:
        if not job.timetable.is_timed:
            return None
        now, zone = self._clock(), find_zone(job.zone)
        due = next_fire(job, now, zone)
        if due is None and next_time(job.timetable, now, zone) is not None:
            raise ConfigError(f"{job.when} is within the quiet hours {job.quiet_hours}, so the job would never run")
        if due is None:
            raise ConfigError(f"the time of {job.name or 'the job'} ({job.when}) is past: give another")
        return due

    async def _check_event(self, job: Job) -> None:
        """The webhook, or the job before, exists, and a chain has no circle."""
        webhook = job.timetable.webhook
        if webhook and webhook not in (webhooks := await self.jobs.list_webhooks()):
            near = did_you_mean(webhook, webhooks) or f" Add it with `alipes webhook add {webhook}`."
            raise ConfigError(f"there is no webhook {webhook!r}.{near}")
        names, name = [job.name], job.timetable.job
        while name:
            if name in names:
                raise ConfigError(f"a job cannot wait for itself: {' after '.join([*names, name])}")
            before = await self.find(name)
            names, name = [*names, before.job.name], before.job.timetable.job

    async def make_name(self, text: str) -> str:
        """A free name from the first words of a text."""
        words = re.findall(r"[a-z0-9]+", text.lower())[:4]
        base = "-".join(words)[:40].strip("-") or "job"
        taken = {each.job.name for each in await self.jobs.all()}
        return next(name for n in range(1, 100_000) if (name := base if n == 1 else f"{base}-{n}") not in taken)


def _view(schedule: Schedule, last: JobRun | None = None, count: int = 3) -> ScheduleView:
    zone = zone_of(schedule.job)
    if schedule.due is None:
        moments: tuple[float, ...] = ()
    elif count == 1:
        moments = (schedule.due,)
    else:
        moments = (schedule.due,)
        while len(moments) < count and (following := next_fire(schedule.job, moments[-1], zone)) is not None:
            moments = (*moments, following)
    return ScheduleView(schedule, moments, zone, last)


async def _list_after(jobs: ScheduleStore, name: str) -> list[Schedule]:
    """The jobs that run after this one."""
    return [each for each in await jobs.all() if each.job.timetable.job == name]


async def _rename_in_chains(jobs: ScheduleStore, old: str, new: str) -> None:
    for each in await _list_after(jobs, old):
        job = structs.replace(each.job, when=f"after {new}", timetable=Timetable("after", job=new))
        await jobs.update(each.id, job, each.due, each.state)


async def _check_skills(job: Job, skills: Skills | None) -> None:
    """They can be used in the folder of the job. Raises `ConfigError`."""
    if not job.skills or skills is None:
        return
    listed = await skills.list(job.workdir)
    for name in job.skills:
        try:
            pick_skill(name, usable(listed), listed)
        except ToolError as error:
            raise ConfigError(str(error)) from error


def _refuse_heartbeat(schedule: Schedule) -> None:
    if schedule.id == HEARTBEAT:
        raise ConfigError("the heartbeat is set in config.toml: [heartbeat]. It can be paused here")


async def describe_maker(schedules: Schedules, turn: Turn | None) -> dict[str, str | bool]:
    """The `facts` of a job that is made in a turn, or by a plugin outside of any."""
    if turn is None:
        return {"owner": PLUGIN_OWNER}
    inbound = turn.inbound
    origin = inbound.origin.address if inbound.origin is not None else inbound.address
    read = await schedules.sources.list_read(turn)
    untrusted = next(iter(read.values()), inbound.untrusted)
    return {"owner": inbound.sender, "by_owner": inbound.owner and origin.chat_type == "dm", "untrusted": untrusted}


def describe_last(run: JobRun | None, now: float) -> str:
    """The result of the latest run, in a few words."""
    if run is None:
        return "never ran"
    ago = format_duration(max(0.0, now - (run.finished or run.started or run.created)))
    detail = f": {format_excerpt(run.detail, 60)[1:-1]}" if run.detail else ""
    return f"{run.state} {ago} ago{detail}"


def _read_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job that the request sets, checked. Raises `ConfigError`."""
    found: dict[str, Any] = {name: str(request[name] or "").strip() for name in _TEXT_FIELDS if name in request}
    found |= {name: _check_text(name, request[name]) for name in ("prompt", "script") if name in request}
    if request.get("name"):
        found["name"] = _check_name(str(request["name"]))
    lists = [name for name in ("tools", "skills", "targets") if request.get(name) is not None]
    found |= {name: _read_names(request[name]) for name in lists}
    if found.get("tools") == (ALL_TOOLS,) or ("tools" in request and request["tools"] is None):
        found["tools"] = None
    if "output_schema" in request:
        found["output_schema"] = _check_schema(request["output_schema"])
    found |= _read_policies(request)
    for name in ("budget", "daily_budget"):
        if found.get(name) and parse_amount(found[name]) is None:
            raise ConfigError(f'{name} must be an amount like "$0.50" or "200k tokens", not {found[name]!r}')
    if found.get("quiet_hours"):
        parse_quiet_hours(found["quiet_hours"])
    for target in found.get("targets", ()):
        _check_target(target)
    return found


def _check_schema(schema: object) -> dict[str, Json]:
    """Raises `ConfigError` for one that cannot be used."""
    if not schema:
        return {}
    from alipes.agent.answer_schema import check_schema, parse_schema  # noqa: PLC0415

    return parse_schema(schema) if isinstance(schema, str) else check_schema(schema)


def _read_policies(request: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, choices in (("mode", get_args(PermissionMode)), ("overlap", get_args(OverlapPolicy))):
        if request.get(name):
            found[name] = _check_choice(name, request[name], choices)
    if missed := str(request.get("missed") or ""):
        if missed not in ("once", "skip") and parse_duration(missed) is None:
            raise ConfigError(f'missed must be "once", "skip" or an age such as "2h", not {missed!r}')
        found["missed"] = missed
    for name, field, label in (("jitter", "jitter_s", "jitter"), ("retry", "retry_s", "the pause before a retry")):
        if request.get(name):
            found[field] = _check_duration(label, str(request[name]))
    if (retries := str(request.get("retries", ""))) not in ("", "None"):
        if not retries.isdecimal() or int(retries) > MAX_RETRIES:
            raise ConfigError(f"retries must be a number from 0 to {MAX_RETRIES}, not {retries!r}")
        found["retries"] = int(retries)
    if "together" in request:
        found["together"] = bool(request["together"])
    return found


def _check_task(job: Job) -> None:
    if not job.prompt.strip() and not job.script.strip():
        raise ConfigError("the job has nothing to do: give a prompt or a script")
    if job.script and job.output_schema:
        raise ConfigError("a script has no schema: what it prints is its answer")
    if job.prompt and job.script:
        raise ConfigError("a job has a prompt or a script, not both")
    if job.script and job.skills:
        raise ConfigError("a script runs without a model, so it cannot use skills: give a prompt instead")


def _check_text(name: str, given: object) -> str:
    text = str(given or "")
    if len(text) > MAX_PROMPT_CHARS or "\0" in text:
        raise ConfigError(f"the {name} is too long, or contains a null byte")
    return text


def _check_choice(name: str, given: object, choices: tuple[str, ...]) -> object:
    if given not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {given!r}")
    return given


def _check_duration(name: str, text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None or seconds > MAX_DELAY_S:
        raise ConfigError(f'{name} must be a duration such as "5m", of a day at most, not {text!r}')
    return seconds


def _check_name(name: str) -> str:
    if name == HEARTBEAT:
        raise ConfigError(f"the name {HEARTBEAT} belongs to the job of [heartbeat] in config.toml: choose another")
    if not re.fullmatch(_NAME, name):
        usable = "use lowercase letters, digits, and -, _ or . between them"
        raise ConfigError(f"{name!r} is not a valid name of a job: {usable}")
    return name


def _check_workdir(path: str) -> str:
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(path):
        raise ConfigError(f"{path} is not a folder")
    return path


def _check_target(target: str) -> None:
    if not re.fullmatch(r"https?://\S+|[A-Za-z0-9_-]+(?::(?!//).+)?", target):
        raise ConfigError(
            f"answers cannot go to {target!r}: use origin, home, a platform, platform:chat, a web address, "
            "files or none"
        )


async def check_platforms(targets: tuple[str, ...], people: PeopleStore) -> None:
    """The platforms exist, and have a default chat if no chat is named. Raises `ConfigError`."""
    named = [each for each in targets if each not in OWN_TARGETS and "://" not in each]
    if not named:
        return
    homes = await people.default_chats()
    known = {*MESSENGERS, *homes, *(each.platform for each in await people.all())}
    for target in named:
        platform, _, chat = target.partition(":")
        if platform not in known:
            near = did_you_mean(platform, known)
            raise ConfigError(f"unknown platform {platform!r} (available: {', '.join(sorted(known))}).{near}")
        if not chat and platform not in homes:
            fix = f"send /sethome in a chat there, or name one as {platform}:CHAT"
            raise ConfigError(f"{platform} has no default chat: {fix}")


def _read_names(given: object) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given
    assert isinstance(names, list | tuple)
    return tuple(dict.fromkeys(str(each).strip() for each in names if str(each).strip()))
