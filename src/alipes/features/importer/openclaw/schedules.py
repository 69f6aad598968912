"""Scheduled jobs of OpenClaw. Those that it makes for itself have a `declarationKey` and are not taken."""

import re
import shlex
from collections.abc import Iterator

from alipes.features.importer.formats import content_hash, read_json
from alipes.features.importer.found import describe_interval
from alipes.features.importer.json_lines import Row, get_count, get_row, get_rows, get_text, get_texts, read_row
from alipes.features.importer.openclaw.config import OpenClawConfig
from alipes.features.importer.openclaw.databases import read_table
from alipes.features.importer.openclaw.settings import STATE
from alipes.features.importer.records import FoundSchedule, LeftOut, RecordSource
from alipes.features.importer.source_home import SourceHome
from alipes.kernel.formatting import format_count

_JOBS = "cron/jobs.json"
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash")
_CHANGES_BY_ITSELF = {"state": None, "updatedAtMs": None}


def read_schedules(home: SourceHome, config: OpenClawConfig) -> Iterator[FoundSchedule | LeftOut]:
    zone = get_text(config.row("agents", "defaults"), "userTimezone")
    own = 0
    for file, job in _list_jobs(home):
        payload = get_row(job, "payload")
        if get_text(job, "declarationKey") or payload.get("kind") == "heartbeat":
            own += 1
        else:
            yield _read_job(file, job, zone, config.main_agent())
    if own:
        file = STATE if home.has(STATE) else _JOBS
        yield _left_out(
            file, format_count(own, "job") + " of OpenClaw itself", "They look after OpenClaw's own memory and skills."
        )


def _list_jobs(home: SourceHome) -> Iterator[tuple[str, Row]]:
    if home.has(STATE):
        with home.open_database(STATE) as db:
            for row in read_table(db, "cron_jobs", ("job_id", "declaration_key", "job_json"), "sort_order"):
                job = read_row(get_text(row, "job_json"), STATE) or {}
                declared = get_text(row, "declaration_key")
                yield STATE, job | ({"declarationKey": declared} if declared else {}) | {"id": get_text(row, "job_id")}
    elif home.has(_JOBS):
        found = read_json(home.read_text(_JOBS) or "{}", _JOBS)
        for job in get_rows(found if isinstance(found, dict) else {}, "jobs"):
            yield _JOBS, job


def _read_job(file: str, job: Row, zone: str, main_agent: str) -> FoundSchedule | LeftOut:
    name = get_text(job, "name", "id")
    when, own_zone = read_time_of_job(get_row(job, "schedule"))
    prompt, script = _read_payload(get_row(job, "payload"))
    if not when or not (prompt or script):
        why = "Its time is of a kind that is not known here." if not when else "What it does has no counterpart here."
        return _left_out(file, name, why)
    agent = get_text(job, "agentId")
    tools = get_texts(get_row(job, "payload"), "toolsAllow")
    notes = [f"it belonged to the agent {agent}"] if agent not in ("", main_agent) else []
    if job.get("sessionTarget") == "main":
        notes.append("there it ran in the main conversation")
    if tools and tools != ["*"]:
        notes.append("its list of tools was left out")
    return FoundSchedule(
        source=RecordSource(file, get_text(job, "id") or name, content_hash({**job, **_CHANGES_BY_ITSELF})),
        name=name,
        when=when,
        zone=own_zone or zone,
        prompt=prompt,
        script=script,
        model=get_text(get_row(job, "payload"), "model"),
        targets=_read_targets(get_row(job, "delivery")),
        enabled=job.get("enabled") is not False,
        notes=tuple(notes),
    )


def read_time_of_job(schedule: Row) -> tuple[str, str]:
    """When it fires, as `alipes schedule` takes it, and in which zone; empty if it is not known."""
    match schedule.get("kind"):
        case "cron":
            expression = " ".join(get_text(schedule, "expr").split())
            fields = expression.split(" ")
            if len(fields) == 6 and fields[0] == "0":  # with seconds
                expression = " ".join(fields[1:])
            return expression, get_text(schedule, "tz")
        case "every":
            return describe_interval(get_count(schedule, "everyMs") / 1000), get_text(schedule, "tz")
        case "at":
            moment = re.sub(r"\.0+(?=Z|[+-]|$)", "", get_text(schedule, "at"))
            return moment.replace("Z", "+00:00"), get_text(schedule, "tz")
    return "", ""


def _read_payload(payload: Row) -> tuple[str, str]:
    """What the job says or runs."""
    match payload.get("kind"):
        case "agentTurn":
            return get_text(payload, "message"), ""
        case "systemEvent":
            return get_text(payload, "text"), ""
        case "command" | "script":
            words = get_texts(payload, "argv")
            if len(words) == 3 and words[0] in _SHELLS and words[1] in ("-c", "-lc"):
                return "", words[2]
            return "", shlex.join(words) or get_text(payload, "script", "command")
    return "", ""


def _read_targets(delivery: Row) -> tuple[str, ...]:
    channel, to = get_text(delivery, "channel"), get_text(delivery, "to")
    match delivery.get("mode"):
        case "none":
            return ("none",)
        case "webhook" if to.startswith("https://"):
            return (to,)
        case "announce" if channel not in ("", "last") and to:
            return (f"{channel}:{to.removeprefix(f'{channel}:')}",)
    return ("home",)


def _left_out(file: str, what: str, why: str) -> LeftOut:
    return LeftOut(source=RecordSource(file, what, ""), kind="schedules", what=what, why=why)
