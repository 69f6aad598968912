"""Rows of scheduled jobs and of their runs: columns, and how they are read and written."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from alipes.features.schedules.job import Job, JobRun, Schedule
from alipes.features.schedules.run import NewRun
from alipes.kernel.turns import SCHEDULED
from alipes.store.sql.connection import Connection
from alipes.store.sql.damage import RowDecoder
from alipes.store.sql.rows import clean_text, to_json

BATCH = 100
"""Rows that are handled in one transaction."""
SCHEDULE_COLUMNS = "id, job, state, due, created, updated, seen"
RUN_COLUMNS = """number, schedule_id, job, fire_at, attempt, state, start_at, cause, given, untrusted, turn_id,
    session_id, detail, created, started, finished"""
_job_decoder: RowDecoder[Job] = RowDecoder(Job)


def schedule_from_row(row: Sequence[Any]) -> Schedule:
    id, job, *rest = row
    return Schedule(id, _job_decoder.decode(job), *rest)


def run_from_row(row: Sequence[Any]) -> JobRun:
    number, schedule, job, *rest = row
    return JobRun(number, schedule, _job_decoder.decode(job), *rest)


def insert_run(db: Connection, run: NewRun, now: float, state: str = "waiting", detail: str = "") -> int:
    """Returns its number, or 0 if there is such a run."""
    sql = """INSERT OR IGNORE INTO schedule_runs
        (schedule_id, name, job, fire_at, attempt, state, start_at, cause, given, untrusted, detail, created, finished)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""
    texts = map(clean_text, (run.cause, run.given, run.untrusted, detail))
    row = (run.schedule, clean_text(run.job.name), to_json(run.job), run.fire_at, run.attempt, state, run.start_at)
    found = db.execute(sql, (*row, *texts, now, None if state == "waiting" else now)).fetchone()
    return int(found[0]) if found else 0


def insert_event_run(db: Connection, run: NewRun, now: float) -> None:
    """Insert the run of an event; later by milliseconds, if the job has a run of that moment."""
    while not insert_run(db, run, now):
        run = structs.replace(run, fire_at=round(run.fire_at + 0.001, 3))


def mark_delivery(db: Connection, id: str, now: float) -> bool:
    """Remember that a delivery of a webhook has started a job; False if it has before. Kept as long as the ids of
    handled messages."""
    sql = "INSERT OR IGNORE INTO inbox (platform, id, created, handled) VALUES (?, ?, ?, ?)"
    return bool(db.execute(sql, (SCHEDULED, clean_text(id), now, now)).rowcount)
