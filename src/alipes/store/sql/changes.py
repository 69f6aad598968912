"""Announces committed changes of the tables that people see, to this process and to the other ones of the home.

Nothing is noticed, and nothing costs anything, before somebody watches: then triggers note the rows that change.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from alipes.kernel.turns import HOME_KEY, Envelope, HomeChanged
from alipes.runtime.subscription import HomeSubscription, Subscription
from alipes.store.ports.cluster import EventBus
from alipes.store.sql.connection import Database, RowChange


class HomeChangeFeed:
    """What changes in the home, in whichever process: ids only."""

    def __init__(self, database: Database, bus: EventBus) -> None:
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
            await self._database.watch_rows(partial(self._bus.has_subscribers, HOME_KEY), self._on_changes)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Subscription]:
        """All changes from now on, of every process."""
        await self.start()
        async with self._bus.subscribe(HOME_KEY, HomeSubscription()) as subscription:
            yield subscription

    def _on_changes(self, changes: tuple[RowChange, ...]) -> None:
        for change in changes:
            self.announce(*change)
