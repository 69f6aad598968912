"""Background processes of conversations: which run, and which ended with the process that had started them."""

import time
from collections.abc import Callable

from alipes.store.ports.cluster import Liveness
from alipes.store.ports.turns import LostProcess
from alipes.store.sql.connection import Connection, Database
from alipes.store.sql.rows import SqlRows, clean_text

KEEP_S = 30 * 86400.0
"""How long a lost process is reported if its conversation is continued."""


class SqlBackgroundProcesses(SqlRows):
    """See `BackgroundProcessStore`."""

    _lost = ""
    """A condition of the processes that are gone, if the database knows it."""

    def __init__(self, database: Database, processes: Liveness, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database, clock=clock)
        self._processes = processes

    async def add(self, session: str, name: str, command: str) -> None:
        row, now = (self._processes.own_name, name, session, clean_text(command)), self._clock()

        def work(db: Connection) -> None:
            db.execute("DELETE FROM background_processes WHERE started < ?", (now - KEEP_S,))
            db.execute(
                "INSERT OR IGNORE INTO background_processes (holder, name, session_id, command, started)"
                " VALUES (?, ?, ?, ?, ?)",
                (*row, now),
            )

        await self._database.run(work, sync=False)

    async def remove(self, name: str) -> None:
        sql = "DELETE FROM background_processes WHERE holder = ? AND name = ?"
        await self._database.execute(sql, self._processes.own_name, name, sync=False)

    async def list_lost(self, session: str) -> tuple[LostProcess, ...]:
        sql = f"""SELECT holder, name, command FROM background_processes
            WHERE session_id = ? AND holder <> ?{self._lost} ORDER BY started, name"""
        found = await self._database.fetch_all(sql, session, self._processes.own_name)
        return tuple(LostProcess(*row) for row in found if self._lost or not self._processes.is_alive(row[0]))

    async def forget(self, *lost: LostProcess) -> None:
        sql = "DELETE FROM background_processes WHERE holder = ? AND name = ?"
        rows = [(each.holder, each.name) for each in lost]
        await self._database.run(lambda db: db.executemany(sql, rows).rowcount)


class PostgresBackgroundProcesses(SqlBackgroundProcesses):
    """In a cluster the table `workers` says which are gone."""

    _lost = " AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = holder AND w.state = 'alive')"
