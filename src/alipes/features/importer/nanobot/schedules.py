"""Scheduled jobs of nanobot: `jobs.json`, and `action.jsonl` with changes that the gateway has not read yet."""

from collections.abc import Iterator
from datetime import UTC, datetime

from alipes.features.importer.formats import content_hash, read_json, read_time
from alipes.features.importer.found import describe_interval
from alipes.features.importer.json_lines import JsonRows, Row, get_count, get_row, get_rows, get_text
from alipes.features.importer.records import FoundSchedule, LeftOut, RecordSource
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.formatting import format_count

_JOBS, _CHANGES = "cron/jobs.json", "cron/action.jsonl"
_CHANGES_BY_ITSELF = ("state", "updatedAtMs", "updated_at_ms")


def read_schedules(home: SourceHome, workspace: str, zone: str) -> Iterator[FoundSchedule | LeftOut]:
    """Raises `SourceError`."""
    jobs = _list_jobs(home, workspace)
    own = [job for job in jobs.values() if get_row(job, "payload").get("kind") == "system_event"]
    for job in jobs.values():
        if job not in own:
            yield _read_job(f"{workspace}/{_JOBS}", job, zone)
    if own:
        what = f"{format_count(len(own), 'job')} of nanobot itself"
        yield _left_out(f"{workspace}/{_JOBS}", what, "They look after nanobot's own memory and heartbeat.")


def _list_jobs(home: SourceHome, workspace: str) -> dict[str, Row]:
    file = f"{workspace}/{_JOBS}"
    found = read_json(home.read_text(file) or "{}", file)
    listed = get_rows(found, "jobs") if isinstance(found, dict) else []
    jobs = {get_text(job, "id"): job for job in listed}
    if home.has(f"{workspace}/{_CHANGES}"):
        for change in JsonRows(home, f"{workspace}/{_CHANGES}"):
            given = get_row(change, "params")
            name = get_text(given, "id", "job_id")
            if change.get("action") in ("del", "remove", "delete"):
                jobs.pop(name, None)
            else:
                jobs[name] = given
    return jobs


def _read_job(file: str, job: Row, zone: str) -> FoundSchedule | LeftOut:
    schedule, payload = get_row(job, "schedule"), get_row(job, "payload")
    name, when, prompt = get_text(job, "name", "id"), _read_time(schedule), get_text(payload, "message")
    if not when or not prompt:
        return _left_out(file, name, "Its time or what it says cannot be read.")
    content = {field: value for field, value in job.items() if field not in _CHANGES_BY_ITSELF}
    return FoundSchedule(
        source=RecordSource(file, get_text(job, "id"), content_hash(content)),
        name=name,
        when=when,
        zone=get_text(schedule, "tz") or zone,
        prompt=prompt,
        targets=_read_targets(payload),
        enabled=job.get("enabled") is not False,
    )


def _read_time(schedule: Row) -> str:
    match schedule.get("kind"):
        case "cron":
            return " ".join(get_text(schedule, "expr").split())
        case "every":
            return describe_interval(get_count(schedule, "everyMs", "every_ms") / 1000)
        case "at":
            at = read_time(schedule.get("atMs") or schedule.get("at_ms"))
            return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") if at else ""
    return ""


def _read_targets(payload: Row) -> tuple[str, ...]:
    """The chat in which it was made, or where it was to be delivered."""
    channel, chat = get_text(payload, "channel"), get_text(payload, "to")
    if not (channel and chat):
        channel, _, chat = get_text(payload, "sessionKey", "session_key").partition(":")
    if channel in ("", "cli", "websocket", "unified") or not chat:
        return ("home",)
    return (f"{channel}:{chat}",)


def _left_out(file: str, what: str, why: str) -> LeftOut:
    return LeftOut(source=RecordSource(file, what, ""), kind="schedules", what=what, why=why)
