"""Scheduled jobs: stored, changed, and fired when their time has come."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from alipes.features.schedules.job import FirePlan, Job, JobRun, Schedule, ScheduleState, wake_time
from alipes.features.schedules.run import NewRun
from alipes.features.schedules.store.rows import (
    BATCH,
    RUN_COLUMNS,
    SCHEDULE_COLUMNS,
    insert_event_run,
    insert_run,
    mark_delivery,
    run_from_row,
    schedule_from_row,
)
from alipes.store.ports.cluster import ScheduleChangeFeed
from alipes.store.quick_reads import peek_rows, store_files
from alipes.store.sql.connection import Connection, Database
from alipes.store.sql.rows import SqlRows, clean_text, to_json


class ScheduleStore(SqlRows):
    """The jobs of a home."""

    def __init__(
        self, database: Database, changes: ScheduleChangeFeed, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(database, clock=clock)
        self.changes = changes

    def with_clock(self, clock: Callable[[], float]) -> "ScheduleStore":
        """The same jobs; what is written from now on has the time of `clock`."""
        return ScheduleStore(self._database, self.changes, clock=clock)

    async def add(self, job: Job, due: float | None, *, state: ScheduleState = "on", id: str = "") -> Schedule | None:
        """None if the name is already in use."""
        now, id = self._clock(), id or os.urandom(4).hex()
        row = (id, clean_text(job.name), *_columns(id, job, due), state, now, now)
        sql = """INSERT OR IGNORE INTO schedules (id, name, job, due, wake_at, event_kind, event_name, state, created,
            updated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
        if not await self._database.execute(sql, *row):
            return None
        await self.changes.announce()
        return Schedule(id, job, state, due, now, now)

    async def find(self, name: str) -> Schedule | None:
        """By name or id."""
        sql = f"SELECT {SCHEDULE_COLUMNS} FROM schedules WHERE name = ?1 OR id = ?1"
        row = await self._database.fetch_one(sql, clean_text(name))
        return None if row is None else schedule_from_row(row)

    async def all(self) -> tuple[Schedule, ...]:
        rows = await self._database.fetch_all(f"SELECT {SCHEDULE_COLUMNS} FROM schedules ORDER BY name")
        return tuple(map(schedule_from_row, rows))

    async def count(self) -> int:
        """Jobs that are on."""
        row = await self._database.fetch_one("SELECT count(*) FROM schedules WHERE state = 'on'")
        return int(row[0])

    async def list_events(self, kind: str, name: str = "") -> tuple[Schedule, ...]:
        """The jobs that an event of this kind starts, by name; `name`: of the webhook or job."""
        sql = f"""SELECT {SCHEDULE_COLUMNS} FROM schedules
            WHERE event_kind = ?1 AND ?2 IN ('', event_name) AND state = 'on' ORDER BY name"""
        return tuple(map(schedule_from_row, await self._database.fetch_all(sql, kind, clean_text(name))))

    async def list_webhooks(self) -> tuple[str, ...]:
        """The names of the webhooks, which jobs may wait for."""
        return tuple(row[0] for row in await self._database.fetch_all("SELECT name FROM webhooks ORDER BY name"))

    async def update(self, id: str, job: Job, due: float | None, state: ScheduleState) -> bool:
        """False if it was removed meanwhile, or if its new name is in use."""
        row = (clean_text(job.name), *_columns(id, job, due), state, self._clock(), id, clean_text(job.name), id)
        sql = """UPDATE schedules SET name = ?, job = ?, due = ?, wake_at = ?, event_kind = ?,
            event_name = ?, state = ?, updated = ? WHERE id = ?
            AND NOT EXISTS (SELECT 1 FROM schedules AS other WHERE other.name = ? AND other.id <> ?)"""

        def work(db: Connection) -> int:
            changed = db.execute(sql, row).rowcount
            if changed and state == "paused":  # runs that wait for a retry or for the one before
                _skip_waiting(db, id, "the job was paused")
            return changed

        done = bool(await self._database.run(work))
        await self.changes.announce()
        return done

    async def remove(self, id: str) -> bool:
        """Remove the job; a running run ends as usual. False if there is none."""

        def work(db: Connection) -> int:
            _skip_waiting(db, id, "the job was removed")
            return db.execute("DELETE FROM schedules WHERE id = ?", (id,)).rowcount

        done = bool(await self._database.run(work))
        await self.changes.announce()
        return done

    async def set_seen(self, id: str, seen: str) -> None:
        await self._database.execute("UPDATE schedules SET seen = ? WHERE id = ?", seen, id)

    async def next_wake(self, now: float) -> float | None:
        """When the scheduler has something to do next: a job, a retry, or an answer to send again."""
        sql = """SELECT min(at) FROM (
            SELECT min(wake_at) AS at FROM schedules WHERE wake_at IS NOT NULL AND state = 'on' UNION ALL
            SELECT min(start_at) FROM schedule_runs WHERE state = 'waiting' AND start_at > ? UNION ALL
            SELECT min(due) FROM schedule_posts WHERE state = 'queued') AS times"""
        row = await self._database.fetch_one(sql, now)
        return None if row is None else row[0]

    async def has_due(self, now: float) -> bool:
        """True if the time of a job has come."""
        sql = "SELECT 1 FROM schedules WHERE wake_at <= ? AND wake_at IS NOT NULL AND state = 'on' LIMIT 1"
        return await self._database.fetch_one(sql, now) is not None

    async def fire_due(self, now: float, plan: Callable[[Schedule], FirePlan]) -> int:
        """Make runs of the jobs whose time has come, and set their next time. Returns how many jobs there were."""

        def work(db: Connection) -> int:
            sql = f"""SELECT {SCHEDULE_COLUMNS} FROM schedules
                WHERE wake_at <= ? AND wake_at IS NOT NULL AND state = 'on' ORDER BY wake_at LIMIT {BATCH}"""
            found = list(map(schedule_from_row, db.execute(sql, (now,)).fetchall()))
            for schedule in found:
                _fire(db, schedule, plan(schedule), now)
            return len(found)

        return await self._database.run(work, sync=False)  # if a power cut takes it, the job fires again

    async def fire_event(self, schedule: Schedule, run: NewRun, seen: str = "", *, delivery: str = "") -> bool:
        """Make a run for an event, and remember what was seen. False if the event, named by the cause, has started
        the job already, or the job was changed meanwhile. `delivery`: its id, which is remembered longer than runs
        are."""
        now = self._clock()

        def work(db: Connection) -> bool:
            sql = "UPDATE schedules SET seen = ? WHERE id = ? AND seen = ? AND state = 'on'"
            known = "SELECT 1 FROM schedule_runs WHERE schedule_id = ? AND cause = ?"
            if not db.execute(sql, (seen, schedule.id, schedule.seen)).rowcount:
                return False
            if db.execute(known, (run.schedule, clean_text(run.cause))).fetchone():
                return False
            if delivery and not mark_delivery(db, f"{schedule.id}:{delivery}", now):
                return False
            insert_event_run(db, run, now)
            return True

        fired = await self._database.run(work)
        if fired:
            await self.changes.announce()
        return fired


def peek_schedules(home: Path) -> list[tuple[Schedule, JobRun | None]]:
    """The jobs, each with its latest run. Blocks the calling thread. Raises `StoreError`."""
    database = store_files(home)[0]
    newest = "SELECT max(number) FROM schedule_runs GROUP BY schedule_id"
    runs = peek_rows(database, f"SELECT {RUN_COLUMNS} FROM schedule_runs WHERE number IN ({newest})")
    last = {run.schedule: run for run in map(run_from_row, runs)}
    rows = peek_rows(database, f"SELECT {SCHEDULE_COLUMNS} FROM schedules ORDER BY name")
    return [(schedule, last.get(schedule.id)) for schedule in map(schedule_from_row, rows)]


def _columns(id: str, job: Job, due: float | None) -> tuple[object, ...]:
    timetable = job.timetable
    event = (
        ()
        if timetable.is_timed or timetable.kind == "manual"
        else (timetable.kind, timetable.job or timetable.path or timetable.webhook)
    )
    wake = None if due is None else wake_time(id, job, due)
    return (to_json(job), due, wake, *(map(clean_text, event) if event else ("", "")))


def _fire(db: Connection, schedule: Schedule, plan: FirePlan, now: float) -> None:
    job, next_due = schedule.job, plan.next_due
    if plan.runs and job.runs_left:
        next_due = next_due if job.runs_left > 1 else None
        job = structs.replace(job, runs_left=job.runs_left - 1)
        db.execute("UPDATE schedules SET job = ? WHERE id = ?", (to_json(job), schedule.id))
    wake = None if next_due is None else wake_time(schedule.id, job, next_due)
    state = "on" if next_due is not None else "done"
    sql = "UPDATE schedules SET due = ?, wake_at = ?, state = ? WHERE id = ?"
    db.execute(sql, (next_due, wake, state, schedule.id))
    if plan.is_recorded:
        run = NewRun(schedule.id, schedule.job, plan.fire_at, now)
        insert_run(db, run, now, "waiting" if plan.runs else "skipped", plan.detail)


def _skip_waiting(db: Connection, schedule: str, why: str) -> None:
    sql = "UPDATE schedule_runs SET state = 'skipped', detail = ? WHERE schedule_id = ? AND state = 'waiting'"
    db.execute(sql, (why, schedule))
