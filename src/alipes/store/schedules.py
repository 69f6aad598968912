"""Scheduled jobs and their runs in SQLite. A run is claimed, and its turn admitted, in one transaction."""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from alipes.kernel.messages import Message
from alipes.kernel.outbox import Outbound
from alipes.kernel.schedules import MAX_WAITING, FirePlan, Job, Run, Schedule, ScheduleState, wake_time
from alipes.kernel.turns import Inbound
from alipes.store import history, outbox
from alipes.store.database.damage import RowDecoder
from alipes.store.database.database import SqliteRows, clean_text, to_json
from alipes.store.store import Store
from alipes.store.turns import TurnRow, admit_turn, make_turn_row

BATCH = 100
"""Jobs that are claimed in one transaction."""
MAX_EXAMINED = 1000
"""Waiting runs that are looked at in one transaction."""
KEEP_RUNS = 200
"""Finished runs of a job that are kept."""
_SCHEDULE = "id, job, state, due, created, updated, seen"
_RUN = """number, schedule_id, job, fire_at, attempt, state, start_at, cause, given, untrusted, turn_id, session_id,
    detail, created, started, finished"""
_job_decoder: RowDecoder[Job] = RowDecoder(Job)
_COST = """SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0) FROM model_calls
    WHERE created >= :since AND turn_id IN
        (SELECT turn_id FROM schedule_runs WHERE turn_id <> '' AND (:id = '' OR schedule_id = :id))"""


class NewRun(Struct, frozen=True):
    """A run to be inserted."""

    schedule: str
    job: Job
    fire_at: float
    start_at: float
    attempt: int = 1
    cause: str = ""
    given: str = ""
    untrusted: str = ""


class FinishedRun(Struct, frozen=True):
    """An ended run that is not settled yet."""

    run: Run
    answer: str
    """The last message of the model."""
    messages: tuple[Message, ...] = ()
    """The messages of the turn."""
    sources: str = ""
    """The text of strangers that it has read, if any."""


class Settlement(Struct, frozen=True):
    """What follows from the end of a run; stored in one transaction."""

    outbounds: tuple[Outbound, ...] = ()
    notices: tuple[Inbound, ...] = ()
    """Messages for conversations that are not chats."""
    posts: tuple[tuple[str, str, str], ...] = ()
    """Id, URL and body."""
    retry: NewRun | None = None
    answer: str = ""
    """For the jobs that run after this one; empty if it failed."""
    untrusted: str = ""
    """Whose text the answer may contain."""


class QueuedPost(Struct, frozen=True):
    number: int
    id: str
    url: str
    body: str
    attempts: int


class SqliteSchedules(SqliteRows):
    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(store.database, clock=clock)
        self.changes = store.schedule_changes

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
        sql = f"SELECT {_SCHEDULE} FROM schedules WHERE name = ?1 OR id = ?1"
        row = await self._database.fetch_one(sql, clean_text(name))
        return None if row is None else _schedule_from_row(row)

    async def all(self) -> tuple[Schedule, ...]:
        rows = await self._database.fetch_all(f"SELECT {_SCHEDULE} FROM schedules ORDER BY name")
        return tuple(map(_schedule_from_row, rows))

    async def count(self) -> int:
        """Jobs that are on."""
        row = await self._database.fetch_one("SELECT count(*) FROM schedules WHERE state = 'on'")
        return int(row[0])

    async def list_events(self, kind: str) -> tuple[Schedule, ...]:
        """The jobs that an event of this kind starts."""
        sql = f"SELECT {_SCHEDULE} FROM schedules WHERE event_kind = ? AND state = 'on'"
        return tuple(map(_schedule_from_row, await self._database.fetch_all(sql, kind)))

    async def update(self, id: str, job: Job, due: float | None, state: ScheduleState) -> bool:
        """False if it was removed meanwhile, or if its new name is in use."""
        row = (clean_text(job.name), *_columns(id, job, due), state, self._clock(), id)
        sql = """UPDATE OR IGNORE schedules SET name = ?, job = ?, due = ?, wake_at = ?, event_kind = ?,
            event_name = ?, state = ?, updated = ? WHERE id = ?"""

        def work(db: sqlite3.Connection) -> int:
            changed = db.execute(sql, row).rowcount
            if changed and state == "paused":  # runs that wait for a retry or for the one before
                _skip_waiting(db, id, "the job was paused")
            return changed

        done = bool(await self._database.run(work))
        await self.changes.announce()
        return done

    async def remove(self, id: str) -> bool:
        """Remove the job; a running run ends as usual. False if there is none."""

        def work(db: sqlite3.Connection) -> int:
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
            SELECT min(due) FROM schedule_posts WHERE state = 'queued')"""
        row = await self._database.fetch_one(sql, now)
        return None if row is None else row[0]

    async def fire_due(self, now: float, plan: Callable[[Schedule], FirePlan]) -> int:
        """Make runs of the jobs whose time has come, and set their next time. Returns how many jobs there were."""

        def work(db: sqlite3.Connection) -> int:
            sql = f"""SELECT {_SCHEDULE} FROM schedules
                WHERE wake_at <= ? AND wake_at IS NOT NULL AND state = 'on' ORDER BY wake_at LIMIT {BATCH}"""
            found = list(map(_schedule_from_row, db.execute(sql, (now,)).fetchall()))
            for schedule in found:
                _fire(db, schedule, plan(schedule), now)
            return len(found)

        return await self._database.run(work)

    async def add_run(self, run: NewRun) -> int:
        """Start a job now or later, whatever its time; returns the number of the run, or 0 if there is such a run."""
        now = self._clock()
        added = await self._database.run(lambda db: _insert_run(db, run, now))
        await self.changes.announce()
        return added

    async def fire_event(self, schedule: Schedule, run: NewRun, seen: str = "") -> bool:
        """Make a run for an event, and remember what was seen. False if the event, named by the cause, has started
        the job already, or the job was changed meanwhile."""
        now = self._clock()

        def work(db: sqlite3.Connection) -> bool:
            sql = "UPDATE schedules SET seen = ? WHERE id = ? AND seen = ? AND state = 'on'"
            known = "SELECT 1 FROM schedule_runs WHERE schedule_id = ? AND cause = ?"
            if not db.execute(sql, (seen, schedule.id, schedule.seen)).rowcount:
                return False
            if db.execute(known, (run.schedule, clean_text(run.cause))).fetchone():
                return False
            return bool(_insert_run(db, run, now))

        fired = await self._database.run(work)
        if fired:
            await self.changes.announce()
        return fired

    async def start_waiting(
        self,
        now: float,
        limit: int,
        prepare: Callable[[Run], Inbound],
        refuse: Callable[[sqlite3.Connection, Run], str],
        *,
        only: int = 0,
    ) -> tuple[str, ...]:
        """Admit the turns of waiting runs, of at most `limit` at a time; returns their session keys. `refuse` says
        why a run must not start. `only`: the number of a run."""

        def work(db: sqlite3.Connection) -> list[str]:
            (running,) = db.execute("SELECT count(*) FROM schedule_runs WHERE state = 'running'").fetchone()
            if running >= limit:
                return []
            sql = f"""SELECT {_RUN} FROM schedule_runs WHERE state = 'waiting' AND start_at <= ?1
                AND ?2 IN (0, number) ORDER BY start_at, number LIMIT {MAX_EXAMINED}"""
            keys: list[str] = []
            for row in db.execute(sql, (now, only)).fetchall():
                run = _run_from_row(row)
                if len(keys) + running >= limit:
                    break
                if (turn := _start(db, run, prepare, refuse, now)) is not None:
                    keys.append(turn.key)
            return keys

        return tuple(await self._database.run(work))

    async def add_detail(self, number: int, text: str) -> None:
        """Add a sentence to the detail of a run."""
        sql = "UPDATE schedule_runs SET detail = trim(detail || ' ' || ?) WHERE number = ?"
        await self._database.execute(sql, clean_text(text), number)

    async def list_finished(self) -> tuple[FinishedRun, ...]:
        """Ended runs that are not settled yet, oldest first."""

        def work(db: sqlite3.Connection) -> list[FinishedRun]:
            rows = db.execute(f"SELECT {_RUN} FROM schedule_runs WHERE settled = 0 ORDER BY number LIMIT {BATCH}")
            return [_load_finished(db, _run_from_row(row)) for row in rows.fetchall()]

        return tuple(await self._database.read(work))

    async def settle(self, run: Run, settlement: Settlement) -> tuple[str, ...] | None:
        """Store what follows from the end of a run, once; returns the session keys that got a message, or None if
        another process settled it."""
        now = self._clock()
        outbox_rows = [outbox.make_outbox_row(outbound) for outbound in settlement.outbounds]
        turn_rows = [make_turn_row(inbound, now) for inbound in settlement.notices]

        def work(db: sqlite3.Connection) -> bool:
            if not db.execute(
                "UPDATE schedule_runs SET settled = 1 WHERE number = ? AND settled = 0", (run.number,)
            ).rowcount:
                return False
            outbox.insert_outbound(db, outbox_rows, now)
            for row in turn_rows:
                admit_turn(db, row, "queue", "queue")
            sql = "INSERT OR IGNORE INTO schedule_posts (id, url, body, due, created) VALUES (?, ?, ?, ?, ?)"
            db.executemany(sql, [(*post, now, now) for post in settlement.posts])
            if settlement.retry is not None and _is_on(db, run.schedule):
                _insert_run(db, settlement.retry, now)
            if run.state == "ok":
                _start_chain(db, run, settlement, now)
            _delete_old_runs(db, run.schedule)
            return True

        if not await self._database.run(work):
            return None
        return tuple(row.key for row in turn_rows)

    async def runs(self, schedule: str = "", limit: int = 20) -> tuple[Run, ...]:
        """The latest runs, of one job by its id or of all."""
        sql = f"SELECT {_RUN} FROM schedule_runs WHERE ?1 IN ('', schedule_id) ORDER BY number DESC LIMIT ?2"
        return tuple(map(_run_from_row, await self._database.fetch_all(sql, schedule, limit)))

    async def find_run(self, number: int) -> Run | None:
        row = await self._database.fetch_one(f"SELECT {_RUN} FROM schedule_runs WHERE number = ?", number)
        return None if row is None else _run_from_row(row)

    async def last_runs(self) -> dict[str, Run]:
        """By schedule, its latest run."""
        newest = "SELECT max(number) FROM schedule_runs GROUP BY schedule_id"
        sql = f"SELECT {_RUN} FROM schedule_runs WHERE number IN ({newest})"
        found = map(_run_from_row, await self._database.fetch_all(sql))
        return {run.schedule: run for run in found}

    async def running(self, schedule: str = "") -> tuple[Run, ...]:
        sql = f"SELECT {_RUN} FROM schedule_runs WHERE state = 'running' AND ?1 IN ('', schedule_id) ORDER BY number"
        return tuple(map(_run_from_row, await self._database.fetch_all(sql, schedule)))

    async def due_posts(self, now: float) -> tuple[QueuedPost, ...]:
        sql = """SELECT number, id, url, body, attempts FROM schedule_posts WHERE state = 'queued' AND due <= ?
            ORDER BY number LIMIT 20"""
        return tuple(QueuedPost(*row) for row in await self._database.fetch_all(sql, now))

    async def finish_post(self, post: QueuedPost, why: str = "", due: float | None = None) -> None:
        """It was sent; or, with `why`, it failed and is sent again at `due`, or never."""
        state = "sent" if not why else "queued" if due is not None else "failed"
        sql = "UPDATE schedule_posts SET state = ?, reason = ?, attempts = attempts + 1, due = ? WHERE number = ?"
        await self._database.execute(sql, state, clean_text(why), due or 0.0, post.number)


def cost_since(db: sqlite3.Connection, since: float, schedule: str = "") -> tuple[float, int]:
    """Dollars and tokens that runs have used since then; of one job, or of all."""
    dollars, tokens = db.execute(_COST, {"since": since, "id": schedule}).fetchone()
    return float(dollars), int(tokens)


def _columns(id: str, job: Job, due: float | None) -> tuple[object, ...]:
    timetable = job.timetable
    event = (
        () if timetable.is_timed or timetable.kind == "manual" else (timetable.kind, timetable.job or timetable.path)
    )
    wake = None if due is None else wake_time(id, job, due)
    return (to_json(job), due, wake, *(map(clean_text, event) if event else ("", "")))


def _schedule_from_row(row: Sequence[Any]) -> Schedule:
    id, job, *rest = row
    return Schedule(id, _job_decoder.decode(job), *rest)


def _run_from_row(row: Sequence[Any]) -> Run:
    number, schedule, job, *rest = row
    return Run(number, schedule, _job_decoder.decode(job), *rest)


def _fire(db: sqlite3.Connection, schedule: Schedule, plan: FirePlan, now: float) -> None:
    wake = None if plan.next_due is None else wake_time(schedule.id, schedule.job, plan.next_due)
    state = "on" if plan.next_due is not None else "done"
    sql = "UPDATE schedules SET due = ?, wake_at = ?, state = ? WHERE id = ?"
    db.execute(sql, (plan.next_due, wake, state, schedule.id))
    if plan.is_recorded:
        run = NewRun(schedule.id, schedule.job, plan.fire_at, now)
        _insert_run(db, run, now, "waiting" if plan.runs else "skipped", plan.detail)


def _insert_run(db: sqlite3.Connection, run: NewRun, now: float, state: str = "waiting", detail: str = "") -> int:
    """Returns its number, or 0 if there is such a run."""
    sql = """INSERT OR IGNORE INTO schedule_runs
        (schedule_id, name, job, fire_at, attempt, state, start_at, cause, given, untrusted, detail, created, finished)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
    texts = map(clean_text, (run.cause, run.given, run.untrusted, detail))
    row = (run.schedule, clean_text(run.job.name), to_json(run.job), run.fire_at, run.attempt, state, run.start_at)
    done = db.execute(sql, (*row, *texts, now, None if state == "waiting" else now))
    return done.lastrowid or 0 if done.rowcount else 0


def _start(
    db: sqlite3.Connection,
    run: Run,
    prepare: Callable[[Run], Inbound],
    refuse: Callable[[sqlite3.Connection, Run], str],
    now: float,
) -> TurnRow | None:
    """Admit the turn of a waiting run, or mark the run as skipped, or leave it waiting."""
    busy = "SELECT 1 FROM schedule_runs WHERE state = 'running' AND schedule_id = ? LIMIT 1"
    if run.job.overlap != "parallel" and db.execute(busy, (run.schedule,)).fetchone():
        waiting = "SELECT count(*) FROM schedule_runs WHERE state = 'waiting' AND schedule_id = ? AND number < ?"
        (ahead,) = db.execute(waiting, (run.schedule, run.number)).fetchone()
        if run.job.overlap == "skip" or ahead >= MAX_WAITING:
            _skip(db, run.number, "the run before had not finished", now)
        return None
    if why := refuse(db, run):
        _skip(db, run.number, why, now)
        return None
    row = make_turn_row(prepare(run), now)
    admitted = admit_turn(db, row, "queue", "queue")
    if admitted is None:  # cannot happen: the run is marked in the transaction that admits its turn
        _skip(db, run.number, "it has run already", now)
        return None
    sql = "SELECT session_id FROM turns WHERE id = ?"
    (session,) = db.execute(sql, (row.turn,)).fetchone()
    title = "UPDATE sessions SET title = ? WHERE id = ? AND title = ''"
    db.execute(title, (clean_text(run.job.name), session))
    sql = "UPDATE schedule_runs SET state = 'running', turn_id = ?, session_id = ?, started = ? WHERE number = ?"
    db.execute(sql, (row.turn, session, now, run.number))
    return row


def _skip(db: sqlite3.Connection, number: int, why: str, now: float) -> None:
    sql = "UPDATE schedule_runs SET state = 'skipped', detail = ?, finished = ? WHERE number = ?"
    db.execute(sql, (clean_text(why), now, number))


def _skip_waiting(db: sqlite3.Connection, schedule: str, why: str) -> None:
    sql = "UPDATE schedule_runs SET state = 'skipped', detail = ? WHERE schedule_id = ? AND state = 'waiting'"
    db.execute(sql, (why, schedule))


def _is_on(db: sqlite3.Connection, schedule: str) -> bool:
    """Removed and paused jobs are not tried again; one that has no further time is."""
    sql = "SELECT 1 FROM schedules WHERE id = ? AND state <> 'paused'"
    return db.execute(sql, (schedule,)).fetchone() is not None


def _load_finished(db: sqlite3.Connection, run: Run) -> FinishedRun:
    row = db.execute("SELECT number FROM turns WHERE id = ?", (run.turn,)).fetchone()
    messages: tuple[Message, ...] = ()
    if row is not None:
        _, own = history.load_transcript(db, run.session, row[0])
        messages = history.decode_messages(own)
    answer = next((each.text for each in reversed(messages) if each.role == "assistant"), "")
    sql = "SELECT label FROM untrusted_sources WHERE session_id = ? ORDER BY created LIMIT 1"
    source = db.execute(sql, (run.session,)).fetchone()
    return FinishedRun(run, answer, messages, source[0] if source else "")


def _start_chain(db: sqlite3.Connection, run: Run, settlement: Settlement, now: float) -> None:
    sql = f"""SELECT {_SCHEDULE} FROM schedules
        WHERE event_kind = 'after' AND event_name IN (?, ?) AND state = 'on'"""
    for schedule in map(_schedule_from_row, db.execute(sql, (clean_text(run.job.name), run.schedule)).fetchall()):
        next_run = NewRun(
            schedule.id,
            schedule.job,
            now,
            now,
            cause=f"after {run.job.name}",
            given=settlement.answer,
            untrusted=settlement.untrusted,
        )
        _insert_run(db, next_run, now)


def _delete_old_runs(db: sqlite3.Connection, schedule: str) -> None:
    oldest = "SELECT number FROM schedule_runs WHERE schedule_id = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2"
    sql = f"""DELETE FROM schedule_runs WHERE schedule_id = ?1 AND settled = 1
        AND state NOT IN ('waiting', 'running') AND number <= ({oldest})"""
    db.execute(sql, (schedule, KEEP_RUNS))
