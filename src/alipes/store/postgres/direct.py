"""Direct connections to PostgreSQL on the event loop, for advisory locks and notifications.

A query is never cancelled in the driver: that would ask the server, which may not answer. Instead the socket is shut
down, and the query ends with an error.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg

from alipes.kernel.errors import StoreError
from alipes.runtime.tasks import run_to_completion, unwrap_error_group

CONNECT_TIMEOUT_S = 2
"""The least that libpq allows."""


class ConnectionLost(StoreError):
    """The connection ended, or the server refused the statement: open another one."""

    code = "store.connection-lost"
    sqlstate: str | None = None
    """The server's code, if it refused the statement."""


class DirectConnection:
    """One connection in autocommit mode. It runs one statement at a time."""

    def __init__(self, connection: "psycopg.AsyncConnection[tuple[Any, ...]]", group: asyncio.TaskGroup) -> None:
        self._connection, self._group = connection, group
        self._running: asyncio.Task[Any] | None = None

    @property
    def is_lost(self) -> bool:
        return self._connection.closed or self._connection.broken

    @property
    def backend(self) -> int:
        """The process of the server, as it said at the start."""
        return self._connection.info.backend_pid

    async def fetch(self, sql: str, *values: object, timeout_s: float | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows; `%s` are its placeholders. Raises `ConnectionLost`.

        If it takes longer than `timeout_s`, or the caller is cancelled, the connection is lost.
        """
        query = self._group.create_task(self._run(sql, values))
        self._running = query
        try:
            async with asyncio.timeout(timeout_s):
                rows = await asyncio.shield(query)
        except TimeoutError:
            self.abort()
            raise ConnectionLost(f"PostgreSQL did not answer within {timeout_s} s") from None
        except asyncio.CancelledError:
            self.abort()
            raise
        if isinstance(rows, psycopg.Error):
            raise _lost("the connection to PostgreSQL failed", rows) from rows
        return rows

    async def _run(self, sql: str, values: tuple[object, ...]) -> list[tuple[Any, ...]] | psycopg.Error:
        try:
            cursor = await self._connection.execute(sql, values or None)
            return await cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            return error

    async def listen(self, channel: str, on_payload: Callable[[str], None], on_ready: Callable[[], None]) -> None:
        """Call `on_payload` for each notification, until the connection is lost. Raises `ConnectionLost`."""
        await self.fetch(f'LISTEN "{channel}"', timeout_s=CONNECT_TIMEOUT_S)
        on_ready()
        reader = self._group.create_task(self._read_notifications(on_payload))
        self._running = reader
        try:
            error = await asyncio.shield(reader)
        except asyncio.CancelledError:
            self.abort()
            raise
        raise _lost("the connection to PostgreSQL failed", error) from error

    async def _read_notifications(self, on_payload: Callable[[str], None]) -> psycopg.Error:
        try:
            async for notification in self._connection.notifies():
                on_payload(notification.payload)
        except psycopg.Error as error:
            return error
        return psycopg.OperationalError("the notifications ended")

    async def close(self) -> None:
        """Does not wait for the server: a running statement ends with an error before the socket is closed."""
        self.abort()
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._connection.close()

    def abort(self) -> None:
        """Shut the socket down: the running statement fails at once, also if the server is out of reach."""
        if self._connection.closed:
            return
        with suppress(OSError), socket.socket(fileno=os.dup(self._connection.pgconn.socket)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


def _lost(what: str, error: psycopg.Error) -> ConnectionLost:
    if isinstance(error, psycopg.errors.DiskFull):
        what = "the disk of PostgreSQL is full; free some space"
    lost = ConnectionLost(f"{what}: {str(error).strip()}")
    lost.sqlstate = error.sqlstate
    return lost


@asynccontextmanager
async def open_direct(url: str, name: str) -> AsyncIterator[DirectConnection]:
    """A direct connection, shown as `name` in `pg_stat_activity`. Raises `ConnectionLost`."""
    try:
        connection = await psycopg.AsyncConnection.connect(
            url,
            autocommit=True,
            application_name=name,
            connect_timeout=CONNECT_TIMEOUT_S,
            prepare_threshold=None,
            tcp_user_timeout=3000,
            keepalives_idle=5,
            keepalives_interval=1,
        )
    except psycopg.Error as error:
        raise _lost("PostgreSQL cannot be reached", error) from error
    with unwrap_error_group():
        async with asyncio.TaskGroup() as group:
            direct = DirectConnection(connection, group)
            try:
                yield direct
            finally:
                await run_to_completion(direct.close)
