"""What came in and did not become a turn at once: kept until it does, remembered so that it counts once."""

import sqlite3
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Inbound
from alipes.store import outbox
from alipes.store.database import codec
from alipes.store.database.database import Database
from alipes.store.turn_rows import ANSWER

Amended: TypeAlias = Literal["replaced", "same", "late", "unknown"]
"""What became of an edit: the message waits and has the new words; it had them already; its turn had begun;
or there is no such message."""
KEPT = 7 * 86400.0
"""Seconds for which a second copy of something that was dealt with is recognised."""
_arrivals = msgspec.json.Decoder(Arrival)


class Waiting(Struct, frozen=True):
    arrival: Arrival
    batch: str
    """Empty, or the id under which it was put together with others."""


class SqliteArrivals:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def keep(self, arrival: Arrival) -> bool:
        """Keep it until `settle`; False for a second copy."""
        row = (arrival.address.platform, codec.whole(arrival.id), codec.dump(arrival), self._clock())
        sql = "INSERT OR IGNORE INTO arrivals (platform, id, arrival, created) VALUES (?, ?, ?, ?)"
        return bool(await self._database.run(lambda db: db.execute(sql, row).rowcount))

    async def replace(self, arrival: Arrival) -> None:
        """Keep this in place of the one with the same id, which waits still."""
        sql = "UPDATE arrivals SET arrival = ? WHERE platform = ? AND id = ? AND done IS NULL"
        row = (codec.dump(arrival), arrival.address.platform, codec.whole(arrival.id))
        await self._database.run(lambda db: db.execute(sql, row).rowcount)

    async def known(self, platform: str, id: str) -> bool:
        """Was it kept, or dealt with?"""
        sql, row = "SELECT 1 FROM arrivals WHERE platform = ? AND id = ?", (platform, codec.whole(id))
        return await self._database.read(lambda db: db.execute(sql, row).fetchone()) is not None

    async def waits(self, platform: str, id: str) -> bool:
        """Was it kept, and is not settled yet?"""
        sql = "SELECT 1 FROM arrivals WHERE platform = ? AND id = ? AND done IS NULL"
        row = (platform, codec.whole(id))
        return await self._database.read(lambda db: db.execute(sql, row).fetchone()) is not None

    async def answered(self, platform: str, id: str) -> bool:
        """It was said as the answer to a question, and is nothing else from now on: a second copy becomes no
        turn. False where it was known before, also as a message."""
        sql = (
            "INSERT OR IGNORE INTO arrivals (platform, id, batch, created, done) SELECT ?1, ?2, ?3, ?4, ?4 "
            "WHERE NOT EXISTS (SELECT 1 FROM turns WHERE platform = ?1 AND inbound_id = ?2)"
        )
        row = (platform, codec.whole(id), ANSWER, self._clock())
        return bool(await self._database.run(lambda db: db.execute(sql, row).rowcount))

    async def settle(self, platform: str, *ids: str, owed: tuple[Outbound, ...] = ()) -> None:
        """They are dealt with; in the same transaction a debt for what is said about it."""
        now, debts = self._clock(), [outbox.entry(each) for each in owed]
        settled = [(platform, codec.whole(id), now, now) for id in ids]

        def work(db: sqlite3.Connection) -> None:
            db.executemany(
                "INSERT INTO arrivals (platform, id, created, done) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (platform, id) DO UPDATE SET done = excluded.done, arrival = ''",
                settled,
            )
            outbox.owe(db, debts, now)

        await self._database.run(work)

    async def batch(self, platform: str, name: str, ids: tuple[str, ...]) -> None:
        """They are one message from now on, and nothing that comes later joins it."""
        sql = "UPDATE arrivals SET batch = ? WHERE platform = ? AND id = ?"
        together = [(codec.whole(name), platform, codec.whole(id)) for id in ids]
        await self._database.run(lambda db: db.executemany(sql, together).rowcount)

    async def waiting(self, platform: str) -> tuple[Waiting, ...]:
        """What was kept and not settled, the oldest first."""
        sql = "SELECT arrival, batch FROM arrivals WHERE platform = ? AND done IS NULL ORDER BY number"
        found = await self._database.read(lambda db: db.execute(sql, (platform,)).fetchall())
        return tuple(Waiting(_arrivals.decode(arrival), batch) for arrival, batch in found)

    async def amend(self, edit: str, original: str, inbound: Inbound) -> Amended:
        """Give the message `original` the words of `inbound`, if nobody has begun to answer it.

        Unless that is too late the edit itself, which came in as `edit`, is settled with it.
        """
        platform, now = inbound.address.platform, self._clock()

        def work(db: sqlite3.Connection) -> Amended:
            sql = "SELECT inbound, begun, ending FROM turns WHERE platform = ? AND inbound_id = ?"
            row = db.execute(sql, (platform, codec.whole(original))).fetchone()
            if row is None:
                return "unknown"
            before = codec.inbounds.decode(row[0])
            same = before.text == inbound.text
            if not same and (row[1] is not None or row[2] is not None):
                return "late"
            changed = structs.replace(before, text=inbound.text, attachments=inbound.attachments)
            if not same:
                sql = "UPDATE turns SET inbound = ? WHERE platform = ? AND inbound_id = ?"
                db.execute(sql, (codec.dump(changed), platform, codec.whole(original)))
            settled = "INSERT OR IGNORE INTO arrivals (platform, id, created, done) VALUES (?, ?, ?, ?)"
            db.execute(settled, (platform, codec.whole(edit), now, now))
            return "same" if same else "replaced"

        return await self._database.run(work)

    async def forget(self) -> int:
        """Let go of what was dealt with long ago; how many."""
        sql, before = "DELETE FROM arrivals WHERE done < ?", self._clock() - KEPT
        return await self._database.run(lambda db: db.execute(sql, (before,)).rowcount)
