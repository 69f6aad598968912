"""Announces committed changes of the tables that people see, to this process and to the other ones of the home.

Nothing is noticed, and nothing costs anything, before somebody watches: then triggers of the connection note the rows
that change. They are not part of the file.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from alipes.kernel.turns import HOME_KEY, Envelope, HomeChanged
from alipes.store.database.connection import Database, RowChange
from alipes.store.peers import LocalBus, Subscription

_SESSION = "{row}.session_id"
_RUN_SESSION = "coalesce(nullif({row}.origin_session, ''), {row}.session_id)"
_RUN_STATUS = """coalesce({row}.ending, iif({row}.attempts > 0, 'running', iif({row}.held, 'held', 'queued')))"""
_BOTH, _ALL = ("INSERT", "UPDATE"), ("INSERT", "UPDATE", "DELETE")
_VISIBLE = "{row}.platform <> 'subagent'"


def _triggers() -> Iterator[str]:
    """One statement for each event of each watched table."""
    for table, events, condition, *notes in (
        ("sessions", _BOTH, _VISIBLE, ("session", "{row}.id")),
        ("sessions", ("DELETE",), _VISIBLE, ("session_deleted", "{row}.id")),
        ("turns", ("INSERT", "UPDATE OF ending, attempts, held"), "1", ("run", "{row}.id", _RUN_SESSION, _RUN_STATUS)),
        ("todos", _BOTH, "1", ("session", _SESSION)),
        ("undone_turns", ("INSERT", "DELETE"), "1", ("session", _SESSION)),
        ("approvals", _BOTH, "1", ("inbox",), ("session", _SESSION)),
        ("questions", _BOTH, "1", ("inbox",), ("session", _SESSION)),
        ("schedules", _ALL, "1", ("schedule", "{row}.id")),
        ("schedule_runs", _BOTH, "1", ("schedule", "{row}.schedule_id")),
        ("memory_changes", _BOTH, "1", ("memory",)),
        ("proposals", _BOTH, "{row}.kind = 'memory'", ("memory",), ("inbox",)),
        ("proposals", _BOTH, "{row}.kind <> 'memory'", ("skill",), ("inbox",)),
        ("people", _ALL, "1", ("person",)),
        ("pairing_requests", _ALL, "1", ("person",), ("inbox",)),
        ("outbox", _ALL, "1", ("outbox",)),
    ):
        for event in events:
            row = "old" if event == "DELETE" else "new"
            calls = (_note(*(part.format(row=row) for part in note)) for note in notes)
            name = f"watch_{table}_{event.split()[0].lower()}_{notes[0][0]}"
            yield f"""CREATE TEMP TRIGGER IF NOT EXISTS {name} AFTER {event} ON main.{table}
                WHEN {condition.format(row=row)} BEGIN {" ".join(calls)} END"""


def _note(kind: str, id: str = "''", session: str = "''", status: str = "''") -> str:
    return f"SELECT note_change('{kind}', {id}, {session}, {status});"


class HomeSubscription(Subscription):
    """Changes of the home. It continues when one of the processes that publish them exits."""

    def close(self) -> None:
        return


class HomeChanges:
    """What changes in the home, in whichever process: ids only."""

    def __init__(self, database: Database, bus: LocalBus) -> None:
        self._database, self._bus = database, bus
        self._started = False

    def announce(self, kind: str, id: str = "", session: str = "", status: str = "") -> None:
        """Something has changed that is not a row which is watched, such as a plugin or a setting."""
        if self._bus.has_subscribers(HOME_KEY):
            self._bus.publish(Envelope(HOME_KEY, "", HomeChanged(kind, id, session, status)))

    async def start(self) -> None:
        """Announce the changes of rows from now on."""
        if not self._started:
            self._started = True
            await self._database.watch_rows(tuple(_triggers()), self._on_changes)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Subscription]:
        """All changes from now on, of every process."""
        await self.start()
        async with self._bus.subscribe(HOME_KEY, HomeSubscription()) as subscription:
            yield subscription

    def _on_changes(self, changes: tuple[RowChange, ...]) -> None:
        for change in changes:
            self.announce(*change)
