"""The PostgreSQL database of a cluster: one connection for writes, used by one thread, with group commit."""

import asyncio
import logging
import time
from asyncio import Future
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from concurrent.futures import Future as ThreadFuture
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import psycopg
from msgspec import Struct
from psycopg import errors

from alipes.kernel.errors import AlipesError, LeaseLost, StoreError, StoreFull
from alipes.store.ports.cluster import WriteCounts
from alipes.store.postgres.connection import PostgresConnection, PostgresSession, translate_error
from alipes.store.postgres.migrate import migrate
from alipes.store.postgres.workers import LEASE_LOST
from alipes.store.sql.connection import Connection, Database, RowChange
from alipes.store.sqlite.database import (
    RESULTS_PER_STEP,
    WriteFailure,
    WriteJob,
    resolve_write,
    set_outcome,
    wait_to_end,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
MAX_BATCH = 256
CLOSE_PATIENCE_S = 5.0
"""How long a store that closes waits for a server that is away."""
CLAIM = "claim"
"""The verb after which a turn is loaded."""
_REST_LOCK = "SELECT pg_advisory_xact_lock(20001, hashtext(current_schema()))"
_WATCH = "set_config('alipes.watched', 'on', true)"
_NOTED = "current_setting('alipes.noted', true)"
_APPLY = "SELECT apply(%s, %s, %s, %s::int::boolean), NULL"
_APPLY_WATCHED = f"SELECT r, {_NOTED} FROM (SELECT {_WATCH} OFFSET 0) w, apply(%s, %s, %s, %s::int::boolean) r"
_changes_decoder = msgspec.json.Decoder(list[RowChange])
_encoder = msgspec.json.Encoder()


class VerbJob(Struct):
    """One call of a verb of `apply`, and the future of its caller."""

    call: tuple[object, ...]
    future: "Future[Any]"
    sync: bool

    def resolve(self, outcome: Any) -> StoreError | None:
        return resolve_write(self.future, outcome)


class LookJob(Struct):
    """One call of a verb of `look`, and the future of its caller."""

    call: tuple[object, ...]
    future: "Future[Any]"

    def resolve(self, outcome: Any) -> None:
        if not self.future.done():
            set_outcome(self.future, outcome)


class ReadJob(Struct):
    """Another read; it runs after the writes before it, and perhaps after later ones."""

    start: Callable[[], None]

    def resolve(self, _outcome: Any) -> None:
        self.start()


class Committed(NamedTuple):
    """The outcomes of a batch, and what triggers noted while it ran."""

    outcomes: list[Any]
    noted: str | None
    changed: bool = True
    """False if nothing was written: then its commit did not wait for the disk."""


class PostgresWriter:
    """Commits batches of writes; used by the thread of its session only."""

    def __init__(self, name: str, session: PostgresSession, on_lost: Callable[[], None]) -> None:
        """`on_lost` is called if the server has lost writes that it had confirmed."""
        self._name, self._session, self._on_lost = name, session, on_lost
        self._session.after_connect = self._check_kept
        self._batch_number = time.time_ns()
        self._acknowledged = 0
        """The last batch of verbs whose results were passed on."""
        self.unsynced = False
        """True if a committed write may not be on disk yet."""

    def apply(self, batch: list[VerbJob], watched: bool) -> Committed:
        """One statement, one round trip, one commit. Sent again after a lost connection, it runs once."""
        self._batch_number = number = self._batch_number + 1
        calls = encode_calls([job.call for job in batch])
        sync = any(job.sync for job in batch)

        def work(db: PostgresConnection) -> Any:
            sql = _APPLY_WATCHED if watched else _APPLY
            return db.raw.execute(sql, (self._name, number, calls, sync)).fetchone()

        results, noted = self._session.run(work)
        self.unsynced, self._acknowledged = not sync, number
        outcomes = list(msgspec.json.decode(results))
        self._load_claimed([outcome for job, outcome in zip(batch, outcomes, strict=True) if job.call[0] == CLAIM])
        return Committed(outcomes, noted)

    def _load_claimed(self, outcomes: list[Any]) -> None:
        """Add the description of its turn to the result of each claim, in one more round trip for all."""
        claimed = [outcome for outcome in outcomes if outcome and outcome[0] != "held"]
        if claimed:
            calls = encode_calls([("load", number) for number, *_ in claimed])
            for outcome, described in zip(claimed, self._session.run(partial(_look, calls)), strict=True):
                outcome.append(described)

    def _check_kept(self, db: PostgresConnection) -> None:
        """After a crash, PostgreSQL may lack the last commits that nobody waited for. What others have learned
        from us is then not true: raise `LeaseLost`, so that this process starts over."""
        sql = "SELECT coalesce(max(last_batch), 0) FROM worker_batches WHERE worker = %s"
        ((kept,),) = db.raw.execute(sql, (self._name,)).fetchall()
        if kept < self._acknowledged:
            self._on_lost()
            raise LeaseLost("PostgreSQL lost the last writes when it stopped; this process starts over")

    def commit(self, batch: list[WriteJob[Any]], watched: bool) -> Committed:
        sync = any(job.sync for job in batch)
        relaxed, watch = "" if sync else "SET LOCAL synchronous_commit = off;", f", {_WATCH}" if watched else ""
        begin = f"""BEGIN; {relaxed} {_REST_LOCK};
            SELECT require_alive('{self._name}'), set_config('alipes.worker', '{self._name}', true){watch}"""
        committed = self._session.run(partial(_run_transaction, begin, batch, self._session))
        if committed.changed:
            self.unsynced = not sync
        return committed


class PostgresDatabase(Database):
    """Calls of verbs that follow each other are one statement; other work that follows each other is one transaction.
    While the server is away, callers wait."""

    def __init__(
        self,
        name: str,
        sessions: tuple[PostgresSession, PostgresSession],
        threads: tuple[Executor, Executor, Executor],
        check: Callable[[], None],
    ) -> None:
        """`check` is called before each write; what it raises refuses the write."""
        self.name, self._check = name, check
        self._thread, self._read_thread, self._cancel_thread = threads
        self._session, self._reads = sessions
        self._writer = PostgresWriter(name, self._session, self.abandon)
        self._queue: deque[WriteJob[Any] | VerbJob | LookJob | ReadJob] = deque()
        self._on_disk = asyncio.Event()
        """Set while everything committed is on disk."""
        self._unresolved: deque[tuple[Any, Any]] = deque()
        """Committed jobs whose callers do not have their result yet."""
        self._during_sync: deque[Callable[[], None]] = deque()
        self._busy = 0
        """Jobs of the queue that the thread has not finished, and one more if the next are about to start."""
        self._synced: Future[None] | None = None
        self._is_watched: Callable[[], bool] = lambda: False
        self._on_changes: Callable[[tuple[RowChange, ...]], None] = lambda changes: None
        self._failure: StoreError | None = None
        self._full: StoreFull | None = None
        """Set if a write failed because the disk is full, until it was reported as not writable."""
        self._closed: Future[None] | None = None
        self.counts, self._batch_started = WriteCounts(), 0.0

    def call(self, verb: str, key: str, args: tuple[object, ...], *, sync: bool = True) -> "Future[Any]":
        """Run a verb of the session `key` (empty: of none). Once called it happens, in the order of the calls."""
        future: Future[Any] = asyncio.get_running_loop().create_future()
        self._check()
        self._enqueue(VerbJob((verb, key, *args), future, sync))
        return future

    def look(self, verb: str, *args: object) -> "Future[Any]":
        """Run a read verb after the writes before; those that wait at the same time share a round trip."""
        future: Future[Any] = asyncio.get_running_loop().create_future()
        self._enqueue(LookJob((verb, *args), future))
        return future

    def submit(self, work: Callable[[Connection], T], *, sync: bool = True, key: str = "") -> "Future[T]":
        future: Future[T] = asyncio.get_running_loop().create_future()
        self._check()
        self._enqueue(WriteJob(work, future, sync, key))
        return future

    async def wait_synced(self, patience_s: float = 0.0) -> None:
        if self._writer.unsynced and patience_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._on_disk.wait()
        if self._writer.unsynced:
            if self._synced is None or self._synced.done():
                self._synced = self.call("sync", "", ())
            await asyncio.shield(self._synced)  # commits are in order, so that one write is enough for all who wait

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._read_in_order(partial(_read, work))

    async def read_statement(self, work: Callable[[Connection], T]) -> T:
        return await self._read_in_order(work)

    async def read_long(self, work: Callable[[Connection], T]) -> T:
        """It is cancelled when the caller is."""
        try:
            return await self._on_thread(self._read_thread, partial(self._reads.run, partial(_read, work)))
        except asyncio.CancelledError:
            if (db := self._reads.db) is not None:
                self._cancel_thread.submit(db.raw.cancel)
            raise

    async def fetch_one(self, sql: str, *values: object) -> Any:
        return await self._read_in_order(lambda db: db.execute(sql, values).fetchone())

    async def fetch_all(self, sql: str, *values: object) -> list[Any]:
        return await self._read_in_order(lambda db: list(db.execute(sql, values).fetchall()))

    async def watch_rows(
        self, is_watched: Callable[[], bool], on_changes: Callable[[tuple[RowChange, ...]], None]
    ) -> None:
        """While `is_watched()`, triggers of the tables note what changes; see `0005_changes.sql`."""
        self._is_watched, self._on_changes = is_watched, on_changes

    async def check_writable(self) -> None:
        await self.call("sync", "", ())
        full, self._full = self._full, None
        if full is not None:  # this write was small enough to find room
            raise full

    def call_during_sync(self, callback: Callable[[], None]) -> None:
        self._during_sync.append(callback)

    def abandon(self) -> None:
        """Every queued and later job fails without being sent."""
        self._session.abort()
        self._reads.abort()
        self._failure = LeaseLost(LEASE_LOST)

    async def close(self) -> None:
        """Finish all submitted writes, then close the connections."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            self._session.deadline = self._reads.deadline = time.monotonic() + CLOSE_PATIENCE_S
            if not self._busy:
                self._start_next()
        await wait_to_end(self._closed)

    def _require_open(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure)) from self._failure
        if self._closed is not None:
            raise StoreError("the store is closed")

    def _enqueue(self, job: "WriteJob[Any] | VerbJob | LookJob") -> None:
        self._require_open()
        self._queue.append(job)
        if not self._busy:
            self._busy = 1
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._start_next)  # so that writes of the same step share the commit

    def _start_next(self) -> None:
        while self._failure is not None and self._queue:
            self._queue.popleft().resolve(WriteFailure(self._failure))
        batch, looks, reads = _take_batch(self._queue)
        self._busy = bool(batch) + bool(looks)
        if batch:
            write = self._writer.apply if isinstance(batch[0], VerbJob) else self._writer.commit
            work = partial(write, batch, self._is_watched())
            self._batch_started = time.monotonic()
            callbacks, self._during_sync = self._during_sync, deque()
            _submit(self._thread, work, partial(self._finish_batch, batch))
            for callback in callbacks:
                callback()
        if looks:
            calls = encode_calls([job.call for job in looks])
            _submit(self._thread, partial(self._session.run, partial(_look, calls)), partial(self._finish_looks, looks))
        for read in reads:
            read.start()
        if not self._busy and self._closed is not None:
            _submit(self._read_thread, self._reads.drop, lambda _: None)
            _submit(self._thread, self._session.drop, self._finish_close)

    def _finish_batch(self, batch: list[Any], done: "ThreadFuture[Committed]") -> None:
        self.counts.commits += 1
        self.counts.writes += len(batch)
        self.counts.seconds += time.monotonic() - self._batch_started
        error = done.exception()
        committed = Committed([WriteFailure(error)] * len(batch), None) if error is not None else done.result()
        if committed.noted:
            self._on_changes(tuple(_changes_decoder.decode(f"[{committed.noted[1:]}]")))
        (self._on_disk.clear if self._writer.unsynced else self._on_disk.set)()
        resolving = bool(self._unresolved)
        self._unresolved.extend(zip(batch, committed.outcomes, strict=True))
        if not resolving:
            self._resolve_some()
        self._finish_job()

    def _finish_looks(self, looks: list[LookJob], done: "ThreadFuture[list[Any]]") -> None:
        error = done.exception()
        results = done.result() if error is None else [WriteFailure(error)] * len(looks)
        for job, result in zip(looks, results, strict=True):
            job.resolve(result)
        self._finish_job()

    def _finish_job(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._start_next()

    def _resolve_some(self) -> None:
        """Resolve a few jobs per step of the loop: every caller continues within the same step."""
        for _ in range(min(RESULTS_PER_STEP, len(self._unresolved))):
            job, outcome = self._unresolved.popleft()
            self._failure = job.resolve(outcome) or self._failure
            if isinstance(outcome, WriteFailure) and isinstance(outcome.error, StoreFull):
                self._full = outcome.error
        if self._unresolved:
            asyncio.get_running_loop().call_soon(self._resolve_some)

    def _finish_close(self, closing: "ThreadFuture[None]") -> None:
        if self._unresolved:
            asyncio.get_running_loop().call_soon(self._finish_close, closing)
        elif self._closed is not None and not self._closed.done():
            self._closed.set_result(None)

    async def _read_in_order(self, work: Callable[[PostgresConnection], T]) -> T:
        """The result of `work`, after the writes submitted before."""
        return await self._on_thread(self._thread, partial(self._session.run, work), in_order=True)

    async def _on_thread(self, thread: Executor, work: Callable[[], T], *, in_order: bool = False) -> T:
        self._require_open()
        future: Future[T] = asyncio.get_running_loop().create_future()

        def finish(done: "ThreadFuture[T]") -> None:
            if not future.done():
                error = done.exception()
                set_outcome(future, done.result() if error is None else WriteFailure(error))

        start = partial(_submit, thread, work, finish)
        if in_order and self._queue:
            self._queue.append(ReadJob(start))
        else:
            start()
        return await future


def _take_batch(queue: deque[Any]) -> tuple[list[Any], list[LookJob], list[ReadJob]]:
    """Writes of the same kind from the start of the queue, and the reads between them, which run after them."""
    batch: list[Any] = []
    looks: list[LookJob] = []
    reads: list[ReadJob] = []
    while queue and len(batch) + len(looks) < MAX_BATCH:
        job = queue[0]
        if isinstance(job, ReadJob):
            reads.append(job)
        elif isinstance(job, LookJob):
            looks.append(job)
        elif not batch or type(job) is type(batch[0]):
            batch.append(job)
        else:
            break
        queue.popleft()
    return batch, looks, reads


def _submit(thread: Executor, work: Callable[[], T], then: "Callable[[ThreadFuture[T]], None]") -> None:
    """Run `work` on the thread and call `then` on the loop."""
    loop = asyncio.get_running_loop()
    thread.submit(work).add_done_callback(lambda done: loop.call_soon_threadsafe(then, done))


def _run_transaction(
    begin: str, batch: list[WriteJob[Any]], session: PostgresSession, db: PostgresConnection
) -> Committed:
    """Run the jobs and commit. If one of them fails, start over with a savepoint for each."""
    keys = [job.key for job in batch if job.key]
    db.run_script(begin)
    db.lock_sessions(keys)
    try:
        outcomes = [job.work(db) for job in batch]
    except (AlipesError, psycopg.Error) as error:
        if db.raw.broken or isinstance(error, errors.DeadlockDetected | errors.SerializationFailure):
            raise
        db.run_script("ROLLBACK")
        db.run_script(begin)
        db.lock_sessions(keys)
        outcomes = [_run_in_savepoint(db, job) for job in batch]
    ((xid, noted),) = db.raw.execute(f"SELECT pg_current_xact_id_if_assigned()::text, {_NOTED}").fetchall()
    try:
        db.run_script("COMMIT")
    except psycopg.OperationalError:
        session.drop()
        if xid is None or session.run(lambda db: _was_committed(db, xid)):
            return Committed(outcomes, noted, xid is not None)
        raise
    return Committed(outcomes, noted, xid is not None)


def _was_committed(db: PostgresConnection, xid: str) -> bool:
    """Find out what became of a COMMIT whose answer was lost."""
    while True:
        sql = "SELECT pg_xact_status(%s::text::xid8)"
        ((status,),) = db.raw.execute(sql, (xid,)).fetchall()
        if status != "in progress":
            return bool(status == "committed")
        time.sleep(0.01)


def _run_in_savepoint(db: PostgresConnection, job: WriteJob[Any]) -> Any:
    db.run_script("SAVEPOINT job")
    try:
        outcome = job.work(db)
    except AlipesError as error:
        outcome = WriteFailure(error)
    except psycopg.Error as error:
        if db.raw.broken:
            raise
        outcome = WriteFailure(translate_error(error))
    if isinstance(outcome, WriteFailure):
        db.run_script("ROLLBACK TO job")
    db.run_script("RELEASE job")
    return outcome


def _look(calls: str, db: PostgresConnection) -> list[Any]:
    ((results,),) = db.raw.execute("SELECT look(%s)", (calls,)).fetchall()
    return list(msgspec.json.decode(results))


def _read(work: Callable[[Connection], T], db: PostgresConnection) -> T:
    db.run_script("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
    try:
        return work(db)
    finally:
        if not db.raw.broken:
            db.run_script("ROLLBACK")


def encode_calls(calls: list[tuple[object, ...]]) -> str:
    """Calls as JSON. NUL and lone surrogates, which PostgreSQL refuses, are removed."""
    try:
        text = _encoder.encode(calls).decode()
    except UnicodeEncodeError:
        text = "\\u0000"
    if "\\u0000" in text:
        text = _encoder.encode(_clean(calls)).decode()
    return text


def _clean(value: object) -> object:
    match value:
        case str():
            return value.replace("\0", "").encode("utf-8", "replace").decode()
        case list() | tuple():
            return [_clean(inner) for inner in value]
    return value


async def migrate_store(url: str) -> None:
    """Bring the tables at `url` up to date; create them if there are none. Raises `StoreError`."""

    def work() -> None:
        session = PostgresSession(url, "alipes migration")
        try:
            session.run(lambda db: migrate(db.raw), again=False)
        finally:
            session.drop()

    await asyncio.to_thread(work)


def _thread(name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix=name)


@asynccontextmanager
async def open_postgres(
    url: str, name: str, *, check: Callable[[], None] = lambda: None, pooled: bool = False
) -> AsyncIterator[PostgresDatabase]:
    """The database at `url`, whose tables are up to date. `name`: of this process. Raises `StoreError`.

    `check`: raises if this process may no longer write. `pooled`: `url` is that of a connection pooler.
    """
    sessions = PostgresSession(url, f"alipes {name}", pooled), PostgresSession(url, f"alipes {name} reads", pooled)
    threads = (_thread("postgres"), _thread("reads"), _thread("cancel"))
    database = PostgresDatabase(name, sessions, threads, check)
    try:
        yield database
    finally:
        await database.close()
        for thread in threads:
            thread.shutdown(wait=False)
