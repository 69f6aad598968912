"""Debts to chats as rows of SQLite: owed, tried, paid, given up. Nothing here sends anything."""

import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec import structs

from alipes.kernel.outbox import Debt, DebtState, Outbound
from alipes.store.database import codec
from alipes.store.database.database import Database

_outbounds = msgspec.json.Decoder(Outbound)
ANSWERED = "answered"


def question(turn: str, ask: str) -> str:
    """The id under which it is owed."""
    return f"ask:{turn}:{ask}"


async def unanswered(database: Database, turn: str) -> str:
    """The text of the last one that surely arrived, unless somebody answered it; else empty."""
    sql = (
        "SELECT outbound, why FROM debts WHERE id > ? AND id < ? AND state = 'sent' "
        "ORDER BY number DESC LIMIT 1"
    )
    bounds = question(turn, ""), question(turn, "")[:-1] + ";"  # the letter after the colon

    def look(db: sqlite3.Connection) -> str:
        row = db.execute(sql, bounds).fetchone()
        return "" if row is None or row[1] == ANSWERED else _outbounds.decode(row[0]).text

    return await database.read(look)


async def answered(database: Database, id: str) -> None:
    """Nobody waits for a word on it any more."""
    sql, row = "UPDATE debts SET why = ? WHERE id = ? AND state IN ('trying', 'sent')", (ANSWERED, id)
    await database.run(lambda db: db.execute(sql, row).rowcount)


_ids = msgspec.json.Decoder(tuple[str, ...])
_COLUMNS = "number, outbound, created, state, attempts, due, paid, uncertain, why"
_OPEN = "state IN ('owed', 'trying')"
_DOUBTED = "max(uncertain, ? * (json_array_length(paid) + 1))"
"""Which part was in doubt last, counted from one: what follows it is sent for the first time."""
KEPT = 7 * 86400.0
"""Seconds that paid debts are kept: who asks twice within them is answered once."""


class SqliteOutbox:
    """`Outbox` on one file; what time it is is asked of `clock`."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def owe(self, *outbounds: Outbound) -> None:
        entries, now = [entry(outbound) for outbound in outbounds], self._clock()
        await self._database.run(lambda db: owe(db, entries, now))

    async def lanes(self, platform: str) -> dict[str, float]:
        # the first of a lane decides: what is behind it waits, whenever it is due itself
        sql = (
            f"SELECT lane, due FROM debts WHERE number IN "
            f"(SELECT min(number) FROM debts WHERE platform = ? AND {_OPEN} GROUP BY lane)"
        )
        return dict(await self._database.read(lambda db: db.execute(sql, (platform,)).fetchall()))

    async def head(self, lane: str) -> Debt | None:
        return await self._database.read(lambda db: _head(db, lane))

    async def take(self, lane: str, ready: Callable[[Debt], bool]) -> Debt | None:
        def work(db: sqlite3.Connection) -> Debt | None:
            debt = _head(db, lane)
            return _begin(db, debt) if debt is not None and debt.state == "owed" and ready(debt) else debt

        return await self._database.run(work)

    async def begin(self, debt: Debt) -> Debt:
        return await self._database.run(lambda db: _begin(db, debt))

    async def pay(self, debt: Debt, *ids: str, rest: bool = False, uncertain: bool = False) -> Debt:
        paid = codec.dump((*debt.paid, *ids))
        if rest:
            return await self._set(debt, "paid = ?, uncertain = max(uncertain, ?)", paid, int(uncertain))
        sql = (
            "UPDATE debts SET state = 'sent', paid = ?, why = '', uncertain = max(uncertain, ?), settled = ? "
            f"WHERE number = ? RETURNING {_COLUMNS}"
        )
        outbound, values = debt.outbound, (paid, int(uncertain), self._clock(), debt.number)

        def work(db: sqlite3.Connection) -> Debt:
            row = db.execute(sql, values).fetchone()
            if outbound.turn:  # its drafts have become it: what the turn says next has others
                db.execute("DELETE FROM drafts WHERE lane = ? AND turn = ?", (outbound.lane, outbound.turn))
            return debt if row is None else _debt(row)

        return await self._database.run(work)

    async def postpone(
        self, debt: Debt, due: float, why: str, *, uncertain: bool = False, counts: bool = True
    ) -> None:
        change = f"state = 'owed', due = ?, why = ?, uncertain = {_DOUBTED}, attempts = attempts - ?"
        await self._set(debt, change, due, codec.whole(why), int(uncertain), int(not counts))

    async def give_up(self, debt: Debt, state: Literal["dead", "expired"], why: str) -> None:
        await self._set(debt, "state = ?, why = ?, settled = ?", state, codec.whole(why), self._clock())

    async def cut_off(self, platform: str) -> tuple[Debt, ...]:
        sql = f"SELECT {_COLUMNS} FROM debts WHERE platform = ? AND state = 'trying' ORDER BY number"

        def look(db: sqlite3.Connection) -> tuple[Debt, ...]:
            return tuple(_with_drafts(db, _debt(row)) for row in db.execute(sql, (platform,)).fetchall())

        return await self._database.read(look)

    async def withdraw(self, platform: str) -> int:
        sql = (
            "UPDATE debts SET uncertain = max(uncertain, state = 'trying'), state = 'expired', settled = ?, "
            f"why = 'who owed it is gone' WHERE platform = ? AND {_OPEN} "
            "AND json_extract(outbound, '$.fleeting')"
        )
        row = (self._clock(), platform)
        return await self._database.run(lambda db: db.execute(sql, row).rowcount)

    async def find(self, id: str) -> Debt | None:
        sql = f"SELECT {_COLUMNS} FROM debts WHERE id = ?"
        row = await self._database.read(lambda db: db.execute(sql, (id,)).fetchone())
        return None if row is None else _debt(row)

    async def look(self, *states: DebtState, limit: int = 100) -> tuple[Debt, ...]:
        which = f"WHERE state IN ({', '.join('?' * len(states))})" if states else ""
        sql = f"SELECT {_COLUMNS} FROM debts {which} ORDER BY number DESC LIMIT ?"
        found = await self._database.read(lambda db: db.execute(sql, (*states, limit)).fetchall())
        return tuple(map(_debt, found))

    async def again(self, number: int) -> bool:
        sql = (
            "UPDATE debts SET state = 'owed', attempts = 0, due = 0, settled = NULL, "
            "outbound = json_remove(outbound, '$.expires'), created = ? "
            "WHERE number = ? AND state IN ('dead', 'expired')"
        )
        row = (self._clock(), number)
        return bool(await self._database.run(lambda db: db.execute(sql, row).rowcount))

    async def drop(self, number: int) -> bool:
        """Forget one that was given up; one that waits is given up. False for all others."""
        give_up = (
            "UPDATE debts SET state = 'dead', why = 'given up by hand', settled = ? "
            "WHERE number = ? AND state = 'owed'"
        )
        forget, now = "DELETE FROM debts WHERE number = ? AND state IN ('dead', 'expired')", self._clock()

        def work(db: sqlite3.Connection) -> bool:
            return bool(db.execute(give_up, (now, number)).rowcount or db.execute(forget, (number,)).rowcount)

        return await self._database.run(work)

    async def forget(self) -> int:
        """Let go of what was paid long ago; how many."""
        sql, before = "DELETE FROM debts WHERE settled < ? AND state = 'sent'", self._clock() - KEPT
        return await self._database.run(lambda db: db.execute(sql, (before,)).rowcount)

    async def _set(self, debt: Debt, change: str, *values: object) -> Debt:
        sql = f"UPDATE debts SET {change} WHERE number = ? RETURNING {_COLUMNS}"
        row = await self._database.run(lambda db: db.execute(sql, (*values, debt.number)).fetchone())
        return debt if row is None else _debt(row)


class SqliteDrafts:
    """Messages in chats that living turns are still writing: whoever ends the turn makes them whole."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def add(self, lane: str, turn: str, message: str) -> None:
        """A message of ours that a living turn is still writing."""
        sql, now = "INSERT OR IGNORE INTO drafts VALUES (?, ?, ?, ?)", self._clock()
        await self._database.run(lambda db: db.execute(sql, (lane, turn, message, now)).rowcount)

    async def of(self, lane: str, turn: str) -> tuple[str, ...]:
        """The messages that were begun for `turn` and not yet become what it said, oldest first."""
        return await self._database.read(lambda db: drafts(db, lane, turn))

    async def drop(self, lane: str, turn: str, *messages: str) -> None:
        """They are not drafts any more: become what was said, or taken away."""
        sql = "DELETE FROM drafts WHERE lane = ? AND turn = ? AND message = ?"
        gone = [(lane, turn, message) for message in messages]
        await self._database.run(lambda db: db.executemany(sql, gone).rowcount)

    async def forget(self) -> int:
        """Let go of those that were never made whole, because their turn was stopped; how many."""
        sql, before = "DELETE FROM drafts WHERE created < ?", self._clock() - KEPT
        return await self._database.run(lambda db: db.execute(sql, (before,)).rowcount)


def drafts(db: sqlite3.Connection, lane: str, turn: str) -> tuple[str, ...]:
    """As `SqliteDrafts.of`, for those who read something else as well; none where no turn is named."""
    sql = "SELECT message FROM drafts WHERE lane = ? AND turn = ? ORDER BY created, message"
    return tuple(message for (message,) in db.execute(sql, (lane, turn))) if turn else ()


def entry(outbound: Outbound) -> tuple[str, str, str, str]:
    """A debt as columns."""
    return outbound.id, outbound.address.platform, outbound.lane, codec.dump(outbound)


def owe(db: sqlite3.Connection, entries: Iterable[tuple[str, str, str, str]], now: float) -> None:
    """For those who write a debt in the same transaction as what was said."""
    db.executemany(
        "INSERT OR IGNORE INTO debts (id, platform, lane, outbound, created) VALUES (?, ?, ?, ?, ?)",
        [(*each, now) for each in entries],
    )


def _head(db: sqlite3.Connection, lane: str) -> Debt | None:
    sql = f"SELECT {_COLUMNS} FROM debts WHERE lane = ? AND {_OPEN} ORDER BY number LIMIT 1"
    row = db.execute(sql, (lane,)).fetchone()
    return None if row is None else _debt(row)


def _begin(db: sqlite3.Connection, debt: Debt) -> Debt:
    change = "state = 'trying', attempts = attempts + 1"
    sql = f"UPDATE debts SET {change} WHERE number = ? RETURNING {_COLUMNS}"
    row = db.execute(sql, (debt.number,)).fetchone()
    return debt if row is None else _with_drafts(db, _debt(row))


def _with_drafts(db: sqlite3.Connection, debt: Debt) -> Debt:
    return structs.replace(debt, drafts=drafts(db, debt.outbound.lane, debt.outbound.turn))


def _debt(row: tuple[int, str, float, DebtState, int, float, str, int, str]) -> Debt:
    number, outbound, created, state, attempts, due, paid, uncertain, why = row
    parts = _ids.decode(paid)
    return Debt(
        number=number,
        outbound=_outbounds.decode(outbound),
        created=created,
        state=state,
        attempts=attempts,
        due=due,
        paid=parts,
        uncertain=bool(uncertain),
        doubtful=uncertain == len(parts) + 1,
        why=why,
    )


WHY = "the home was restored from a backup"


async def give_up(database: Database) -> int:
    """Give up what was owed to chats; how many. `alipes serve outbox` shows it, and sends it if told to."""
    return await database.run(_give_up)


def _give_up(db: sqlite3.Connection) -> int:
    sql = "UPDATE debts SET state = 'dead', why = ?, settled = ? WHERE state IN ('owed', 'trying')"
    db.execute("DELETE FROM controls")
    db.execute("DELETE FROM drafts")
    return db.execute(sql, (WHY, time.time())).rowcount
