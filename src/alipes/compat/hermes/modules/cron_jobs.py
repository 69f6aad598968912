"""`cron.jobs`: the scheduled jobs of alipes as Hermes' plugins know them.

Reading works in every thread; what changes a job waits for the database, so it must be called in a worker thread.
"""

import re
import shlex
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from alipes.compat.hermes.hook_arguments import hermes_platform
from alipes.compat.hermes.modules.current_app import NotAvailable, bridge
from alipes.compat.hermes.modules.tool_registry import resolve_toolset
from alipes.config.time_zones import find_local_zone, find_zone
from alipes.features.schedules.feature import SchedulesFeature
from alipes.features.schedules.job import Job, JobRun, Schedule, zone_of
from alipes.features.schedules.schedules import Schedules, describe_maker
from alipes.features.schedules.store.jobs import peek_schedules
from alipes.features.schedules.timetable import Timetable, next_time, parse_timetable
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import SCHEDULED, Address

T = TypeVar("T")
_DURATION = r"(\d+)\s*(m|mins?|minutes?|h|hrs?|hours?|d|days?)"
_MINUTES = {"m": 1, "h": 60, "d": 1440}
_STATES = {"on": "scheduled", "paused": "paused", "done": "completed"}
_RESULTS = {"ok": "ok", "failed": "error", "stopped": "error"}
_SHELLS = (".sh", ".bash")
_FIELDS = (
    "prompt",
    "schedule",
    "name",
    "deliver",
    "skills",
    "skill",
    "model",
    "provider",
    "workdir",
    "enabled_toolsets",
)
_SWITCHES = ("enabled", "state", "paused_at", "paused_reason", "next_run_at", "schedule_display")
_SPECIAL = ("repeat", "script", "no_agent", "base_url", "context_from", "attach_to_session")


class AmbiguousJobReference(LookupError):
    """Never raised: names of jobs are unique here."""

    def __init__(self, ref: str, matches: list[dict[str, Any]]) -> None:
        self.ref, self.matches = ref, matches
        super().__init__(f"the job {ref!r} is ambiguous: use its id")


def parse_duration(s: str) -> int:
    """Minutes of a text such as `30m`, `2h` or `1d`. Raises ValueError."""
    match = re.fullmatch(_DURATION, s.strip().lower())
    if match is None:
        raise ValueError(f"{s!r} is not a duration: use one such as 30m, 2h or 1d")
    return int(match[1]) * _MINUTES[match[2][0]]


def parse_schedule(schedule: str) -> dict[str, Any]:
    """`kind` is `once`, `interval` or `cron`, or an event of alipes; `display` describes it. Raises ValueError."""
    zone = find_zone(_default_zone())
    try:
        timetable = parse_timetable(_to_when(schedule), time.time(), zone)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return _describe_time(timetable, schedule.strip(), _default_zone())


def compute_next_run(schedule: Mapping[str, Any], last_run_at: str | None = None) -> str | None:
    """The next time in ISO format; None if there is none."""
    zone, now = find_zone(_default_zone()), time.time()
    start = now if last_run_at is None else datetime.fromisoformat(last_run_at).timestamp()
    match schedule.get("kind"):
        case "once":
            timetable = Timetable("at", at=datetime.fromisoformat(schedule["run_at"]).timestamp())
        case "interval":
            timetable = Timetable("every", at=start, every_s=60.0 * schedule["minutes"])
        case "cron":
            timetable = Timetable("cron", cron=schedule["expr"])
        case _:
            return None
    return _to_iso(next_time(timetable, now, zone), _default_zone())


def load_jobs() -> list[dict[str, Any]]:
    """All jobs, also paused ones."""
    return [_to_record(*each) for each in peek_schedules(bridge().settings.home)]


def list_jobs(include_disabled: bool = False) -> list[dict[str, Any]]:
    return [each for each in load_jobs() if include_disabled or each["enabled"]]


def get_job(job_id: str) -> dict[str, Any] | None:
    return next((each for each in load_jobs() if each["id"] == job_id), None)


def resolve_job_ref(ref: str) -> dict[str, Any] | None:
    """A job by its id or name."""
    named = (each for each in load_jobs() if each["name"] == _to_name(ref))
    return get_job(ref) or (next(named, None) if ref else None)


def get_due_jobs() -> list[dict[str, Any]]:
    """None: alipes starts the jobs that are due by itself."""
    return []


def referenced_skill_names() -> set[str]:
    return {name for job in load_jobs() for name in job["skills"]}


def get_cron_output_dir() -> Path:
    """Where answers with `deliver="local"` are saved."""
    return bridge().settings.paths.schedules


def create_job(
    prompt: str | None,
    schedule: str,
    name: str | None = None,
    repeat: int | None = None,
    deliver: str | None = None,
    origin: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Add a job and return it. Raises ValueError if it cannot be understood."""
    request = _to_request({"prompt": prompt, "schedule": schedule, "deliver": deliver or "", "repeat": repeat, **more})
    address, turn = _to_address(origin), bridge().host.current_turn()
    if "script" in request and turn is not None and turn.inbound.untrusted:
        raise ValueError("only an owner may schedule a script")
    if deliver is None:
        request["targets"] = ["files"] if address is None else ["origin"]

    async def work(schedules: Schedules) -> str:
        if name:
            request["name"] = await schedules.make_name(name)
        facts = await describe_maker(schedules, turn)
        return (await schedules.add(request, origin=address, **facts)).schedule.id

    return _require(_run(work))


def update_job(job_id: str, updates: dict[str, Any]) -> dict[str, Any] | None:
    """Change a job, which may also be paused or resumed so; None if there is none. Raises ValueError."""
    found = get_job(job_id)
    if "id" in updates:
        raise ValueError("the id of a job cannot be changed")
    if found is None:
        return None
    request = _to_request(updates)
    enabled = updates.get("enabled", updates["state"] != "paused" if "state" in updates else None)

    async def work(schedules: Schedules) -> str:
        if updates.get("name") and _to_name(updates["name"]) != found["name"]:
            request["name"] = await schedules.make_name(updates["name"])
        if request:
            await schedules.edit(job_id, request)
        if enabled is not None and bool(enabled) != found["enabled"]:
            await (schedules.resume(job_id) if enabled else schedules.pause(job_id))
        return job_id

    return _require(_run(work))


def pause_job(job_id: str, reason: str | None = None) -> dict[str, Any] | None:
    """By id or name. The reason is not kept."""
    return _act(job_id, lambda schedules, id: schedules.pause(id))


def resume_job(job_id: str) -> dict[str, Any] | None:
    """By id or name. Raises ValueError if its time is past."""
    return _act(job_id, lambda schedules, id: schedules.resume(id))


def trigger_job(job_id: str) -> dict[str, Any] | None:
    """Run a job now, by id or name."""
    return _act(job_id, lambda schedules, id: schedules.run_now(id, cause="by a plugin"))


def remove_job(job_id: str) -> bool:
    """By id or name; False if there is none."""
    found = resolve_job_ref(job_id)
    if found is None:
        return False
    _run(lambda schedules: schedules.remove(found["id"]))
    return True


def save_jobs(jobs: list[dict[str, Any]]) -> None:
    raise NotAvailable("cron.jobs.save_jobs", "use create_job, update_job and remove_job")


def mark_job_run(job_id: str, success: bool, error: str | None = None, **_more: Any) -> None:
    raise NotAvailable("cron.jobs.mark_job_run", "alipes runs its jobs itself and keeps their history")


def save_job_output(job_id: str, output: str) -> Path:
    raise NotAvailable("cron.jobs.save_job_output", 'use deliver="local"')


def _run(act: Callable[[Schedules], Coroutine[Any, Any, T]]) -> T:
    """Wait for `act` in a worker thread. Raises RuntimeError on the event loop, and ValueError for our ConfigError."""
    current = bridge()
    turn = current.host.current_turn()
    if turn is not None and turn.inbound.address.platform == SCHEDULED:
        raise RuntimeError("a job cannot change jobs")
    if current.find_feature is None:
        raise NotAvailable("cron.jobs without a running alipes")
    try:
        return current.wait(current.any_context(), act(current.find_feature(SchedulesFeature).schedules))
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _act(ref: str, act: Callable[[Schedules, str], Coroutine[Any, Any, object]]) -> dict[str, Any] | None:
    found = resolve_job_ref(ref)
    if found is None:
        return None
    _run(lambda schedules: act(schedules, found["id"]))
    return get_job(found["id"])


def _require(id: str) -> dict[str, Any]:
    found = get_job(id)
    assert found is not None, "it was removed meanwhile"
    return found


def _default_zone() -> str:
    return bridge().settings.timezone or find_local_zone()


def _to_when(schedule: str) -> str:
    """Our words for a time: `30m` means in 30 minutes."""
    text = schedule.strip()
    return f"in {text}" if re.fullmatch(_DURATION, text.lower()) else text


def _to_name(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())[:4])[:40].strip("-")


def _to_request(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of our job. Raises NotAvailable for what it has not."""
    _check_fields(given)
    request: dict[str, Any] = {}
    if given.get("no_agent"):
        request["script"] = _to_commands(given.get("script"))
    elif given.get("prompt"):
        request["prompt"] = str(given["prompt"])
    if schedule := given.get("schedule"):
        request["when"] = _to_when(schedule) if isinstance(schedule, str) else _from_record(schedule)
    if "skills" in given or "skill" in given:
        request["skills"] = _to_list(given.get("skills")) or _to_list(given.get("skill"))
    if model := given.get("model"):
        request["model"] = "/".join(filter(None, (given.get("provider"), str(model))))
    if deliver := given.get("deliver"):
        request["targets"] = [{"local": "files", "all": "home"}.get(each, each) for each in _to_list(deliver)]
    if toolsets := given.get("enabled_toolsets"):
        request["tools"] = [tool for each in toolsets for tool in resolve_toolset(each)]
    if given.get("workdir"):
        request["workdir"] = str(given["workdir"])
    return request


def _check_fields(given: Mapping[str, Any]) -> None:
    unknown = [name for name in given if name not in (*_FIELDS, *_SWITCHES, *_SPECIAL)]
    if unknown:
        raise ValueError(f"unknown field of a job: {unknown[0]}")
    if given.get("repeat") not in (None, 0, 1):
        raise NotAvailable("repeat of cron.jobs", "remove the job when it has run often enough")
    if given.get("script") and not given.get("no_agent"):
        raise NotAvailable("script of cron.jobs without no_agent", "let the prompt name the script")
    for name in ("base_url", "context_from"):
        if given.get(name):
            raise NotAvailable(f"{name} of cron.jobs")


def _to_commands(script: object) -> str:
    if not isinstance(script, str) or not script.strip():
        raise ValueError("no_agent=True needs a script")
    path = bridge().home / "scripts" / Path(script.strip()).expanduser()
    program = "bash" if path.suffix in _SHELLS else shlex.quote(sys.executable)
    return f"{program} {shlex.quote(str(path))}"


def _to_list(given: object) -> list[str]:
    if isinstance(given, str):
        given = given.split(",")
    found = given if isinstance(given, Iterable) else ()
    return [str(each).strip() for each in found if str(each).strip()]


def _to_address(origin: Mapping[str, Any] | None) -> Address | None:
    if not origin or not origin.get("platform") or not origin.get("chat_id"):
        return None
    return Address(str(origin["platform"]), str(origin["chat_id"]), thread=str(origin.get("thread_id") or ""))


def _from_record(schedule: Mapping[str, Any]) -> str:
    """Our words for a parsed schedule."""
    kind = schedule.get("kind")
    minutes = {"interval": lambda: f"every {schedule['minutes']}m", "once": lambda: str(schedule["run_at"])}
    return minutes.get(str(kind), lambda: str(schedule.get("expr") or schedule.get("display") or ""))()


def _to_record(schedule: Schedule, last: JobRun | None) -> dict[str, Any]:
    job, zone = schedule.job, schedule.job.zone
    skills, is_once = list(job.skills), job.timetable.kind == "at"
    origin = job.origin
    return {
        "id": schedule.id,
        "name": job.name,
        "prompt": job.prompt,
        "skills": skills,
        "skill": skills[0] if skills else None,
        "model": job.model or None,
        "provider": None,
        "base_url": None,
        "script": job.script or None,
        "no_agent": bool(job.script),
        "context_from": None,
        "schedule": _describe_time(job.timetable, job.when, zone),
        "schedule_display": job.when,
        "repeat": {"times": 1 if is_once else None, "completed": int(is_once and schedule.state == "done")},
        "enabled": schedule.state == "on",
        "state": _STATES[schedule.state],
        "paused_at": _to_iso(schedule.updated, zone) if schedule.state == "paused" else None,
        "paused_reason": None,
        "created_at": _to_iso(schedule.created, zone),
        "next_run_at": _to_iso(schedule.due, zone) if schedule.state == "on" else None,
        "deliver": ",".join("local" if each == "files" else each for each in job.targets),
        "origin": origin and {"platform": hermes_platform(origin.platform), "chat_id": origin.chat},
        "enabled_toolsets": None,
        "workdir": job.workdir or None,
        **_describe_run(last, job),
    }


def _describe_run(run: JobRun | None, job: Job) -> dict[str, Any]:
    status = None if run is None else _RESULTS.get(run.state)
    return {
        "last_run_at": None if run is None or run.started is None else _to_iso(run.started, job.zone),
        "last_status": status,
        "last_error": run.detail if run is not None and status == "error" else None,
        "last_delivery_error": run.detail if run is not None and status == "ok" and run.detail else None,
    }


def _describe_time(timetable: Timetable, display: str, zone: str) -> dict[str, Any]:
    match timetable.kind:
        case "at":
            return {"kind": "once", "run_at": _to_iso(timetable.at, zone), "display": display}
        case "every":
            return {"kind": "interval", "minutes": int(timetable.every_s // 60), "display": display}
        case "cron":
            return {"kind": "cron", "expr": timetable.cron, "display": display}
    return {"kind": timetable.kind, "display": display}


def _to_iso(moment: float | None, zone: str) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, zone_of(Job("", "", Timetable("manual"), zone))).isoformat()
