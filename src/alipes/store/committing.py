"""What the database's one thread does: commits, one by one or together, and looks. It asks for nothing."""

import logging
import sqlite3
from asyncio import Future
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from alipes.kernel.errors import AlipesError, StoreError
from alipes.store.complaints import ours

log = logging.getLogger(__name__)

T = TypeVar("T")
LOG, FILLER = 6_000_000, 1_000_000
"""Bytes that are written in vain to stretch the log, which takes those that find no place in the cache."""


class Job(Generic[T]):
    __slots__ = ("soon", "told", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T], told: "Future[T]", soon: bool) -> None:
        self.work, self.told, self.soon = work, told, soon

    def tell(self, outcome: T | "Failed") -> StoreError | None:
        """To whoever asked; it is done also if they were cancelled meanwhile. If it failed then, that is
        given back where the store is to blame: nobody else knows that it lacks what was asked for."""
        if not self.told.done():
            settle(self.told, outcome)
        elif isinstance(outcome, Failed):
            log.warning("a write failed after its asker was cancelled: %s", outcome.error)
            if type(outcome.error) is StoreError:
                return outcome.error
        return None


class Writer:
    """The connection, and how it is written by; used on the thread alone."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self.connection = path, connection
        self._waits_for_disk = True
        self.loose = False
        """Was something written that may not be on disk yet?"""

    def commit(self, batch: list[Job[Any]], waits: Callable[[], object] | None = None) -> list[Any]:
        """On the thread: the outcomes, all on disk; raises when the transaction as a whole was lost.
        `waits` is called before the disk is waited for."""
        db, before = self.connection, self.connection.total_changes
        try:
            self._wait_for_disk(not all(job.soon for job in batch))
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return [Failed(ours(error, self._path)) for _ in batch]
        with _ending(db):
            outcomes = self._together(batch)
            if waits is not None:
                waits()
        changed = db.total_changes != before
        if not self._waits_for_disk:
            self.loose = self.loose or changed
        elif changed and not any(isinstance(each, Failed) for each in outcomes):
            self.loose = False  # where nothing is changed, or all is taken back, SQLite asks no disk
        return outcomes

    def _together(self, batch: list[Job[Any]]) -> list[Any]:
        """Mostly nobody has anything to object; if somebody has, all is begun again, each by itself."""
        if len(batch) == 1:
            return [batch[0].work(self.connection)]
        try:
            return [job.work(self.connection) for job in batch]
        except AlipesError:
            self.connection.execute("ROLLBACK")
            self.connection.execute("BEGIN IMMEDIATE")
            return [self._apart(job) for job in batch]

    def _wait_for_disk(self, wanted: bool) -> None:
        if self._waits_for_disk is not wanted:
            self.connection.execute(f"PRAGMA synchronous = {'FULL' if wanted else 'NORMAL'}")
            self._waits_for_disk = wanted

    def _apart(self, job: Job[Any]) -> Any:
        db = self.connection
        db.execute("SAVEPOINT job")
        try:
            outcome = job.work(db)
        except AlipesError as error:  # what SQLite complains of is found out one by one
            db.execute("ROLLBACK TO job")
            outcome = Failed(error)
        db.execute("RELEASE job")
        return outcome


def stretch(connection: sqlite3.Connection) -> None:
    """On the thread: what does not fit into the cache goes to the log, and is not kept."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute("CREATE TABLE filler (data BLOB)")
            for _ in range(LOG // FILLER):
                connection.execute("INSERT INTO filler VALUES (zeroblob(?))", (FILLER,))
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:  # a full disk, a busy neighbour: then it grows as it always did
        log.info("the write-ahead log was not stretched: %s", error)


def look(connection: sqlite3.Connection, path: Path, work: Callable[[sqlite3.Connection], T]) -> T:
    """On the thread: one view for all that it reads."""
    try:
        connection.execute("BEGIN")
        with _ending(connection):
            return work(connection)
    except (sqlite3.Error, msgspec.DecodeError) as error:
        raise ours(error, path) from error


class Failed:
    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


@contextmanager
def _ending(db: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def settle(told: "Future[T]", outcome: T | Failed) -> None:
    if isinstance(outcome, Failed):
        told.set_exception(outcome.error)
    else:
        told.set_result(outcome)
