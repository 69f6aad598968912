"""Background processes of conversations: which run, and which ended with the process that had started them."""

import time
from collections.abc import Callable

from msgspec import Struct

from alipes.store.ports.cluster import Liveness
from alipes.store.sql.connection import Connection, Database
from alipes.store.sql.rows import SqlRows, clean_text


class LostProcess(Struct, frozen=True):
    """A background process that ended with the process of alipes that had started it."""

    holder: str
    name: str
    command: str


KEEP_S = 30 * 86400.0
"""How long a lost process is reported if its conversation is continued."""


class BackgroundProcessStore(SqlRows):
    """The running background processes of conversations, and those that were lost."""

    _lost = ""
    """A condition of the processes that are gone, if the database knows it."""

    def __init__(self, database: Database, processes: Liveness, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database, clock=clock)
        self._processes = processes

    async def add(self, session: str, name: str, command: str) -> None:
        """One was started here. `name` is unique in this process."""
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
        """One that was started here has ended."""
        sql = "DELETE FROM background_processes WHERE holder = ? AND name = ?"
        await self._database.execute(sql, self._processes.own_name, name, sync=False)

    async def list_lost(self, session: str) -> tuple[LostProcess, ...]:
        """Those of a conversation whose process of alipes is gone, oldest first."""
        sql = f"""SELECT holder, name, command FROM background_processes
            WHERE session_id = ? AND holder <> ?{self._lost} ORDER BY started, name"""
        found = await self._database.fetch_all(sql, session, self._processes.own_name)
        return tuple(LostProcess(*row) for row in found if self._lost or not self._processes.is_alive(row[0]))

    async def forget(self, *lost: LostProcess) -> None:
        """The conversation has its notice."""
        sql = "DELETE FROM background_processes WHERE holder = ? AND name = ?"
        rows = [(each.holder, each.name) for each in lost]
        await self._database.run(lambda db: db.executemany(sql, rows).rowcount)
