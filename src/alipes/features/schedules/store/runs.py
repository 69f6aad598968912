"""The runs of scheduled jobs. A run starts, and its turn is admitted, in one transaction."""

import time
from collections.abc import Callable

from msgspec import structs

from alipes.features.schedules.job import MAX_WAITING, JobRun, start_time
from alipes.features.schedules.run import FinishedRun, NewRun, PrepareRun, QueuedPost, RunBudget, RunBudgets, Settlement
from alipes.features.schedules.store.rows import (
    BATCH,
    RUN_COLUMNS,
    SCHEDULE_COLUMNS,
    insert_event_run,
    insert_run,
    run_from_row,
    schedule_from_row,
)
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Message
from alipes.store.ports.cluster import ScheduleChangeFeed
from alipes.store.sql import history, outbox
from alipes.store.sql.connection import Connection, Database
from alipes.store.sql.rows import SqlRows, clean_text
from alipes.store.sql.turns import TurnRow, admit_turn, make_turn_row

MAX_EXAMINED = 1000
"""Waiting runs that are looked at in one transaction."""
KEEP_RUNS = 200
"""Finished runs of a job that are kept."""
_COST = """SELECT coalesce(sum(cost), 0), coalesce(sum(input + output), 0) FROM model_calls
    WHERE created >= :since AND turn_id IN
        (SELECT turn_id FROM schedule_runs WHERE turn_id <> '' AND (:id = '' OR schedule_id = :id))"""


class ScheduleRunStore(SqlRows):
    """The runs of all jobs."""

    def __init__(
        self, database: Database, changes: ScheduleChangeFeed, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(database, clock=clock)
        self.changes = changes

    def with_clock(self, clock: Callable[[], float]) -> "ScheduleRunStore":
        """The same runs; what is written from now on has the time of `clock`."""
        return ScheduleRunStore(self._database, self.changes, clock=clock)

    async def add(self, run: NewRun) -> int:
        """Start a job now or later, whatever its time; returns the number of the run, or 0 if there is such a run."""
        now = self._clock()
        added = await self._database.run(lambda db: insert_run(db, run, now))
        await self.changes.announce()
        return added

    async def has_waiting(self, now: float) -> bool:
        """True if a run waits to be started."""
        sql = "SELECT 1 FROM schedule_runs WHERE state = 'waiting' AND start_at <= ? LIMIT 1"
        return await self._database.fetch_one(sql, now) is not None

    async def list_waiting_with_skills(self, now: float) -> tuple[JobRun, ...]:
        """Waiting runs whose skills must be loaded before they start, in the order in which they start."""
        sql = f"""SELECT {RUN_COLUMNS} FROM schedule_runs WHERE state = 'waiting' AND start_at <= ?
            AND job ->> '$.skills' IS NOT NULL ORDER BY start_at, number LIMIT {MAX_EXAMINED}"""
        return tuple(map(run_from_row, await self._database.fetch_all(sql, now)))

    async def start_waiting(
        self, now: float, limit: int, prepare: PrepareRun, budgets: RunBudgets, *, only: int = 0
    ) -> tuple[str, ...]:
        """Admit the turns of waiting runs, of at most `limit` at a time; returns their session keys. A run for which
        `prepare` raises `ConfigError` has failed; one of which a budget is used up is left out. `only`: the number of
        a run."""

        def work(db: Connection) -> list[str]:
            (running,) = db.execute("SELECT count(*) FROM schedule_runs WHERE state = 'running'").fetchone()
            if running >= limit:
                return []
            sql = f"""SELECT {RUN_COLUMNS} FROM schedule_runs WHERE state = 'waiting' AND start_at <= ?1
                AND ?2 IN (0, number) ORDER BY start_at, number LIMIT {MAX_EXAMINED}"""
            keys: list[str] = []
            for row in db.execute(sql, (now, only)).fetchall():
                run = run_from_row(row)
                if len(keys) + running >= limit:
                    break
                if (turn := _start(db, run, prepare, budgets, now)) is not None:
                    keys.append(turn.key)
            return keys

        return tuple(await self._database.run(work, sync=False))  # a turn syncs before it acts

    async def add_detail(self, number: int, text: str) -> None:
        """Add a sentence to the detail of a run."""
        sql = "UPDATE schedule_runs SET detail = trim(detail || ' ' || ?) WHERE number = ?"
        await self._database.execute(sql, clean_text(text), number)

    async def list_finished(self) -> tuple[FinishedRun, ...]:
        """Ended runs that are not settled yet, oldest first."""

        def work(db: Connection) -> list[FinishedRun]:
            rows = db.execute(
                f"SELECT {RUN_COLUMNS} FROM schedule_runs WHERE settled = 0 ORDER BY number LIMIT {BATCH}"
            )
            return [_load_finished(db, run_from_row(row)) for row in rows.fetchall()]

        return tuple(await self._database.read(work))

    async def settle(self, run: JobRun, settlement: Settlement) -> tuple[str, ...] | None:
        """Store what follows from the end of a run, once; returns the session keys that got a message, or None if
        another process settled it."""
        now = self._clock()
        outbox_rows = [outbox.make_outbox_row(outbound) for outbound in settlement.outbounds]
        turn_rows = [make_turn_row(inbound, now) for inbound in settlement.notices]

        def work(db: Connection) -> bool:
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
                insert_run(db, settlement.retry, now)
            if run.state == "ok":
                _start_chain(db, run, settlement, now)
            _delete_old_runs(db, run.schedule)
            return True

        if not await self._database.run(work):
            return None
        return tuple(row.key for row in turn_rows)

    async def latest(self, schedule: str = "", limit: int = 20) -> tuple[JobRun, ...]:
        """The latest runs, of one job by its id or of all."""
        sql = f"SELECT {RUN_COLUMNS} FROM schedule_runs WHERE ?1 IN ('', schedule_id) ORDER BY number DESC LIMIT ?2"
        return tuple(map(run_from_row, await self._database.fetch_all(sql, schedule, limit)))

    async def find(self, number: int) -> JobRun | None:
        row = await self._database.fetch_one(f"SELECT {RUN_COLUMNS} FROM schedule_runs WHERE number = ?", number)
        return None if row is None else run_from_row(row)

    async def last_runs(self) -> dict[str, JobRun]:
        """By schedule, its latest run."""
        newest = "SELECT max(number) FROM schedule_runs GROUP BY schedule_id"
        sql = f"SELECT {RUN_COLUMNS} FROM schedule_runs WHERE number IN ({newest})"
        found = map(run_from_row, await self._database.fetch_all(sql))
        return {run.schedule: run for run in found}

    async def running(self, schedule: str = "") -> tuple[JobRun, ...]:
        sql = f"""SELECT {RUN_COLUMNS} FROM schedule_runs
            WHERE state = 'running' AND ?1 IN ('', schedule_id) ORDER BY number"""
        return tuple(map(run_from_row, await self._database.fetch_all(sql, schedule)))

    async def due_posts(self, now: float) -> tuple[QueuedPost, ...]:
        sql = """SELECT number, id, url, body, attempts FROM schedule_posts WHERE state = 'queued' AND due <= ?
            ORDER BY number LIMIT 20"""
        return tuple(QueuedPost(*row) for row in await self._database.fetch_all(sql, now))

    async def finish_post(self, post: QueuedPost, why: str = "", due: float | None = None) -> None:
        """It was sent; or, with `why`, it failed and is sent again at `due`, or never."""
        state = "sent" if not why else "queued" if due is not None else "failed"
        sql = "UPDATE schedule_posts SET state = ?, reason = ?, attempts = attempts + 1, due = ? WHERE number = ?"
        await self._database.execute(sql, state, clean_text(why), due or 0.0, post.number)


def _find_exhausted(db: Connection, budgets: tuple[RunBudget, ...]) -> str:
    """Why a run must not start: a budget is used up; empty if none is."""
    for budget in budgets:
        dollars, tokens = cost_since(db, budget.since, budget.schedule)
        if tokens >= budget.tokens if budget.tokens is not None else dollars >= (budget.dollars or 0.0):
            return budget.reason
    return ""


def cost_since(db: Connection, since: float, schedule: str = "") -> tuple[float, int]:
    """Dollars and tokens that runs have used since then; of one job, or of all."""
    dollars, tokens = db.execute(_COST, {"since": since, "id": schedule}).fetchone()
    return float(dollars), int(tokens)


def _start(db: Connection, run: JobRun, prepare: PrepareRun, budgets: RunBudgets, now: float) -> TurnRow | None:
    """Admit the turn of a waiting run, or mark the run as skipped, or leave it waiting."""
    if (start_at := start_time(run, now)) > now:
        db.execute("UPDATE schedule_runs SET start_at = ? WHERE number = ?", (start_at, run.number))
        return None
    busy = "SELECT 1 FROM schedule_runs WHERE state = 'running' AND schedule_id = ? LIMIT 1"
    if run.job.overlap != "parallel" and db.execute(busy, (run.schedule,)).fetchone():
        waiting = "SELECT count(*) FROM schedule_runs WHERE state = 'waiting' AND schedule_id = ? AND number < ?"
        (ahead,) = db.execute(waiting, (run.schedule, run.number)).fetchone()
        if run.job.overlap == "skip" or ahead >= MAX_WAITING:
            _skip(db, run.number, "the run before had not finished", now)
        return None
    if why := _find_exhausted(db, budgets(run)):
        _skip(db, run.number, why, now)
        return None
    try:
        inbound = prepare(structs.replace(run, continues=_find_failure(db, run)))
    except ConfigError as error:
        _fail(db, run.number, str(error), now)
        return None
    if inbound is None:
        return None
    row = make_turn_row(inbound, now)
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


def _find_failure(db: Connection, run: JobRun) -> str:
    """Why the turn of the attempt before failed; empty if there was none."""
    if run.attempt == 1 or run.job.script:
        return ""
    sql = """SELECT schedule_runs.detail FROM schedule_runs JOIN turns ON turns.id = turn_id
        WHERE schedule_runs.schedule_id = ? AND fire_at = ? AND attempt < ? ORDER BY attempt DESC LIMIT 1"""
    row = db.execute(sql, (run.schedule, run.fire_at, run.attempt)).fetchone()
    return "" if row is None else row[0] or "no reason given"


def _skip(db: Connection, number: int, why: str, now: float) -> None:
    sql = "UPDATE schedule_runs SET state = 'skipped', detail = ?, finished = ? WHERE number = ?"
    db.execute(sql, (clean_text(why), now, number))


def _fail(db: Connection, number: int, why: str, now: float) -> None:
    """It could not start: retried and delivered like any other failure."""
    sql = (
        "UPDATE schedule_runs SET state = 'failed', detail = ?, started = ?, finished = ?, settled = 0 WHERE number = ?"
    )
    db.execute(sql, (clean_text(why), now, now, number))


def _is_on(db: Connection, schedule: str) -> bool:
    """Removed and paused jobs are not tried again; one that has no further time is."""
    sql = "SELECT 1 FROM schedules WHERE id = ? AND state <> 'paused'"
    return db.execute(sql, (schedule,)).fetchone() is not None


def _load_finished(db: Connection, run: JobRun) -> FinishedRun:
    row = db.execute("SELECT number FROM turns WHERE id = ?", (run.turn,)).fetchone()
    messages: tuple[Message, ...] = ()
    if row is not None:
        _, own = history.load_transcript(db, run.session, row[0])
        messages = history.decode_messages(own)
    answer = next((each.text for each in reversed(messages) if each.role == "assistant"), "")
    sql = "SELECT label FROM untrusted_sources WHERE session_id = ? ORDER BY created LIMIT 1"
    source = db.execute(sql, (run.session,)).fetchone()
    return FinishedRun(run, answer, messages, source[0] if source else "")


def _start_chain(db: Connection, run: JobRun, settlement: Settlement, now: float) -> None:
    sql = f"""SELECT {SCHEDULE_COLUMNS} FROM schedules
        WHERE event_kind = 'after' AND event_name IN (?, ?) AND state = 'on'"""
    for schedule in map(schedule_from_row, db.execute(sql, (clean_text(run.job.name), run.schedule)).fetchall()):
        next_run = NewRun(
            schedule.id,
            schedule.job,
            round(now, 3),
            now,
            cause=f"after {run.job.name}",
            given=settlement.answer,
            untrusted=settlement.untrusted,
        )
        insert_event_run(db, next_run, now)


def _delete_old_runs(db: Connection, schedule: str) -> None:
    oldest = "SELECT number FROM schedule_runs WHERE schedule_id = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2"
    sql = f"""DELETE FROM schedule_runs WHERE schedule_id = ?1 AND settled = 1
        AND state NOT IN ('waiting', 'running') AND number <= ({oldest})"""
    db.execute(sql, (schedule, KEEP_RUNS))
