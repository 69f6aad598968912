"""The outbox in SQLite: messages to chats with their delivery state, and drafts. Nothing is sent here."""

import time
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import structs

from alipes.kernel.outbox import Delivery, DeliveryState, Outbound
from alipes.store.ports.outbox import RESTORED_REASON
from alipes.store.sql.connection import Connection
from alipes.store.sql.damage import RowDecoder
from alipes.store.sql.rows import SqlRows, clean_text, to_json

OutboxRow: TypeAlias = tuple[str, str, str, str, int]
KEEP_S = 7 * 86400.0
"""How long sent messages are kept: within that time the same id is not sent twice."""
ANSWERED = "answered"
"""The reason column of a question that was answered."""
COLUMNS = "number, outbound, created, state, attempts, due, sent_ids, uncertain_part, reason"
OPEN = "state IN ('queued', 'sending')"
_outbound_decoder: RowDecoder[Outbound] = RowDecoder(Outbound)
_ids_decoder: RowDecoder[tuple[str, ...]] = RowDecoder(tuple[str, ...])


class SqlOutbox(SqlRows):
    _mine = ""
    """A further condition of rows that this process may change."""

    async def enqueue(self, *outbounds: Outbound) -> None:
        rows, now = [make_outbox_row(outbound) for outbound in outbounds], self._clock()
        await self._database.run(lambda db: insert_outbound(db, rows, now))

    async def lanes(self, platform: str) -> dict[str, float]:
        # the first message of a lane decides: those behind it wait, even if they are due
        sql = f"""SELECT lane, due FROM outbox WHERE number IN
            (SELECT min(number) FROM outbox WHERE platform = ? AND {OPEN} GROUP BY lane)"""
        return dict(await self._database.fetch_all(sql, platform))

    async def head(self, lane: str) -> Delivery | None:
        return await self._database.read_statement(lambda db: _find_head(db, lane))

    async def take(self, lane: str, ready: Callable[[Delivery], bool]) -> Delivery | None:
        def work(db: Connection) -> Delivery | None:
            head = _find_head(db, lane)
            if head is not None and head.state == "queued" and ready(head):
                return _start_attempt(db, head)
            return head

        return await self._database.run(work)

    async def mark_sending(self, debt: Delivery) -> Delivery | None:
        return await self._database.run(lambda db: _start_attempt(db, debt))

    async def mark_sent(self, debt: Delivery, *ids: str, rest: bool = False, uncertain: bool = False) -> Delivery:
        sent_ids, part = to_json((*debt.paid, *ids)), int(uncertain)
        change = "sent_ids = ?, uncertain_part = CASE WHEN uncertain_part < ? THEN ? ELSE uncertain_part END"
        if rest:
            return await self._update(debt, change, sent_ids, part, part) or debt
        sql = f"""UPDATE outbox SET {change}, state = 'sent', reason = '', finished = ?
            WHERE number = ? RETURNING {COLUMNS}"""
        outbound, values = debt.outbound, (sent_ids, part, part, self._clock(), debt.number)

        def work(db: Connection) -> Delivery:
            row = db.execute(sql, values).fetchone()
            if outbound.turn:  # its drafts have become this message; the turn's next message has its own
                drafts = "DELETE FROM drafts WHERE lane = ? AND turn_id = ?"
                db.execute(drafts, (outbound.lane, outbound.turn))
            left = f"SELECT 1 FROM outbox WHERE lane = ? AND {OPEN} LIMIT 1"
            is_empty = db.execute(left, (outbound.lane,)).fetchone() is None
            return structs.replace(debt if row is None else delivery_from_row(row), emptied_lane=is_empty)

        return await self._database.run(work)

    async def postpone(
        self, debt: Delivery, due: float, why: str, *, uncertain: bool = False, counts: bool = True
    ) -> None:
        # the last part whose delivery was uncertain, counted from 1; the parts after it were never sent
        part = len(debt.paid) + 1 if uncertain else 0
        change = """state = 'queued', sender = '', due = ?, reason = ?, attempts = attempts - ?,
            uncertain_part = CASE WHEN uncertain_part < ? THEN ? ELSE uncertain_part END"""
        await self._update(debt, change, due, clean_text(why), int(not counts), part, part)

    async def give_up(self, debt: Delivery, state: Literal["failed", "expired"], why: str) -> bool:
        change = "state = ?, sender = '', reason = ?, finished = ?"
        return await self._update(debt, change, state, clean_text(why), self._clock()) is not None

    async def list_interrupted(self, platform: str) -> tuple[Delivery, ...]:
        sql = f"SELECT {COLUMNS} FROM outbox WHERE platform = ? AND state = 'sending' ORDER BY number"

        def work(db: Connection) -> tuple[Delivery, ...]:
            found = db.execute(sql, (platform,)).fetchall()
            return tuple(with_drafts(db, delivery_from_row(row)) for row in found)

        return await self._database.read(work)

    async def expire_fleeting(self, platform: str) -> int:
        sql = f"""UPDATE outbox SET uncertain_part =
            CASE WHEN state = 'sending' AND uncertain_part = 0 THEN 1 ELSE uncertain_part END, state = 'expired',
            finished = ?, reason = 'the process that sent it is gone' WHERE platform = ? AND {OPEN}
            AND fleeting = 1"""
        return await self._database.execute(sql, self._clock(), platform)

    async def find(self, id: str) -> Delivery | None:
        sql = f"SELECT {COLUMNS} FROM outbox WHERE id = ?"
        row = await self._database.fetch_one(sql, id)
        return None if row is None else delivery_from_row(row)

    async def find_number(self, number: int) -> Delivery | None:
        row = await self._database.fetch_one(f"SELECT {COLUMNS} FROM outbox WHERE number = ?", number)
        return None if row is None else delivery_from_row(row)

    async def list_deliveries(self, *states: DeliveryState, limit: int = 100) -> tuple[Delivery, ...]:
        where = f"WHERE state IN ({', '.join('?' * len(states))})" if states else ""
        sql = f"SELECT {COLUMNS} FROM outbox {where} ORDER BY number DESC LIMIT ?"
        found = await self._database.fetch_all(sql, *states, limit)
        return tuple(map(delivery_from_row, found))

    async def requeue(self, number: int) -> bool:
        find = "SELECT outbound FROM outbox WHERE number = ? AND state IN ('failed', 'expired')"
        sql = """UPDATE outbox SET state = 'queued', sender = '', attempts = 0, due = 0, finished = NULL,
            outbound = ?, created = ? WHERE number = ?"""
        now = self._clock()

        def work(db: Connection) -> bool:
            row = db.execute(find, (number,)).fetchone()
            if row is None:
                return False
            outbound = structs.replace(_outbound_decoder.decode(row[0]), expires=0.0)
            return bool(db.execute(sql, (to_json(outbound), now, number)).rowcount)

        return await self._database.run(work)

    async def discard(self, number: int) -> bool:
        give_up = """UPDATE outbox SET state = 'failed', reason = 'discarded by the operator', finished = ?
            WHERE number = ? AND state = 'queued'"""
        delete, now = "DELETE FROM outbox WHERE number = ? AND state IN ('failed', 'expired')", self._clock()
        return await self._database.run(
            lambda db: bool(db.execute(give_up, (now, number)).rowcount or db.execute(delete, (number,)).rowcount)
        )

    async def delete_old(self) -> int:
        sql = "DELETE FROM outbox WHERE finished < ? AND state = 'sent'"
        return await self._database.execute(sql, self._clock() - KEEP_S)

    async def find_unanswered(self, turn: str) -> str:
        sql = "SELECT id, reason FROM outbox WHERE id > ? AND id < ? AND state = 'sent' ORDER BY number DESC LIMIT 1"
        bounds = question_id(turn, ""), question_id(turn, "")[:-1] + ";"  # the character after the colon

        def work(db: Connection) -> str:
            row = db.execute(sql, bounds).fetchone()
            return "" if row is None or row[1] == ANSWERED else str(row[0]).split(":")[2]

        return await self._database.read(work)

    async def mark_answered(self, id: str) -> None:
        sql = """UPDATE outbox SET reason = ?1 WHERE (id = ?2 OR (id > ?2 || ':' AND id < ?2 || ';'))
            AND state IN ('sending', 'sent')"""
        await self._database.execute(sql, ANSWERED, id)

    async def fail_unsent(self) -> int:
        sql = f"UPDATE outbox SET state = 'failed', reason = ?, finished = ? WHERE {OPEN}"

        def work(db: Connection) -> int:
            db.execute("DELETE FROM pending_ops")
            db.execute("DELETE FROM drafts")
            return db.execute(sql, (RESTORED_REASON, time.time())).rowcount

        return await self._database.run(work)

    async def _update(self, delivery: Delivery, change: str, *values: object) -> Delivery | None:
        """None if the row is gone, or if another process has it now."""
        sql = f"UPDATE outbox SET {change} WHERE number = ?{self._mine} RETURNING {COLUMNS}"
        row = await self._database.run(lambda db: db.execute(sql, (*values, delivery.number)).fetchone())
        return None if row is None else delivery_from_row(row)


class DraftStore(SqlRows):
    """Messages in chats that show the answer of a running turn; they are completed when it ends."""

    async def add(self, lane: str, turn: str, message: str) -> None:
        sql = "INSERT OR IGNORE INTO drafts VALUES (?, ?, ?, ?)"
        await self._database.execute(sql, lane, turn, message, self._clock())

    async def list_ids(self, lane: str, turn: str) -> tuple[str, ...]:
        """The drafts of `turn`, oldest first."""
        return await self._database.read_statement(lambda db: list_drafts(db, lane, turn))

    async def remove(self, lane: str, turn: str, *messages: str) -> None:
        """They were completed or deleted."""
        sql = "DELETE FROM drafts WHERE lane = ? AND turn_id = ? AND message_id = ?"
        rows = [(lane, turn, message) for message in messages]
        await self._database.run(lambda db: db.executemany(sql, rows).rowcount)

    async def delete_old(self) -> int:
        """Delete drafts that were never completed because their turn was stopped; returns how many."""
        return await self._database.execute("DELETE FROM drafts WHERE created < ?", self._clock() - KEEP_S)


def list_drafts(db: Connection, lane: str, turn: str) -> tuple[str, ...]:
    """The drafts of `turn`, oldest first; none if `turn` is empty."""
    sql = "SELECT message_id FROM drafts WHERE lane = ? AND turn_id = ? ORDER BY created, message_id"
    return tuple(message for (message,) in db.execute(sql, (lane, turn))) if turn else ()


def make_outbox_row(outbound: Outbound) -> OutboxRow:
    return outbound.id, outbound.address.platform, outbound.lane, to_json(outbound), int(outbound.fleeting)


def insert_outbound(db: Connection, rows: Iterable[OutboxRow], now: float) -> None:
    """For callers that write other rows in the same transaction."""
    db.executemany(
        "INSERT OR IGNORE INTO outbox (id, platform, lane, outbound, fleeting, created) VALUES (?, ?, ?, ?, ?, ?)",
        [(*row, now) for row in rows],
    )


def _find_head(db: Connection, lane: str) -> Delivery | None:
    sql = f"SELECT {COLUMNS} FROM outbox WHERE lane = ? AND {OPEN} ORDER BY number LIMIT 1"
    row = db.execute(sql, (lane,)).fetchone()
    return None if row is None else delivery_from_row(row)


def _start_attempt(db: Connection, delivery: Delivery) -> Delivery:
    change = "state = 'sending', attempts = attempts + 1"
    sql = f"UPDATE outbox SET {change} WHERE number = ? RETURNING {COLUMNS}"
    row = db.execute(sql, (delivery.number,)).fetchone()
    return delivery if row is None else with_drafts(db, delivery_from_row(row))


def with_drafts(db: Connection, delivery: Delivery) -> Delivery:
    outbound = delivery.outbound
    return structs.replace(delivery, drafts=list_drafts(db, outbound.lane, outbound.turn))


def delivery_from_row(row: tuple[int, str, float, DeliveryState, int, float, str, int, str]) -> Delivery:
    number, outbound, created, state, attempts, due, sent_ids, uncertain_part, reason = row
    parts = _ids_decoder.decode(sent_ids)
    doubtful = uncertain_part == len(parts) + 1
    message = _outbound_decoder.decode(outbound)
    return Delivery(
        number, message, created, state, attempts, due, parts, bool(uncertain_part), doubtful=doubtful, why=reason
    )


def question_id(turn: str, ask: str) -> str:
    """The id of the outbound message that asks a question of the turn."""
    return f"ask:{turn}:{ask}"
