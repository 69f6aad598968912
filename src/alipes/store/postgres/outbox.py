"""The outbox of a cluster in PostgreSQL: taking and completing a delivery are verbs of `apply`."""

import time
from collections.abc import Callable
from typing import Any, Literal

from msgspec import structs

from alipes.kernel.outbox import Delivery
from alipes.store.postgres.turns import VerbDatabase
from alipes.store.sql.connection import Connection
from alipes.store.sql.outbox import COLUMNS, OPEN, SqlOutbox, delivery_from_row, with_drafts
from alipes.store.sql.rows import to_json

FRESH_S = 60.0
"""A message that is not older than this can be taken without being read first."""
_DEAD_SENDER = "NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = sender AND w.state = 'alive')"
_DEAD_OWNER = "NOT EXISTS (SELECT 1 FROM workers w WHERE w.id = owner AND w.state = 'alive')"
_INTERRUPTED = f"platform = ? AND state = 'sending' AND sender <> ? AND {_DEAD_SENDER}"


class PostgresOutbox(SqlOutbox):
    """`SqlOutbox` in PostgreSQL. A lane is sent by the worker that sends its first message.

    Rows of a worker are changed by that worker only; those of a dead one by the first that takes them over.
    """

    _database: VerbDatabase

    def __init__(self, database: VerbDatabase, own_name: str, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database, clock=clock)
        self._own_name = own_name
        self._mine = f" AND (state = 'queued' OR (state = 'sending' AND sender IN ('', '{own_name}')))"
        self._interrupted: set[int] = set()
        """Deliveries of dead workers that this one has taken over and not yet postponed or given up."""

    async def lanes(self, platform: str) -> dict[str, float]:
        """As in `SqlOutbox`, without the lanes that other workers send."""
        sql = f"""SELECT lane, due FROM outbox WHERE number IN
            (SELECT min(number) FROM outbox WHERE platform = ? AND {OPEN} GROUP BY lane)
            AND (state = 'queued' OR sender IN ('', ?))"""
        return dict(await self._database.fetch_all(sql, platform, self._own_name))

    async def take(self, lane: str, ready: Callable[[Delivery], bool]) -> Delivery | None:
        """As in `SqlOutbox`; None as well while another worker sends the head."""
        platform = lane.partition(":")[0].replace("%3A", ":").replace("%25", "%")
        args = (platform, lane, self._clock() - FRESH_S)
        while (found := await self._database.call("take_first", "", args)) is not None:
            taken, sender, row, drafts = found
            head = _with_drafts(row[:-1], drafts)
            if taken:
                before = structs.replace(head, state="queued", attempts=0)
                if ready(before):
                    return head
                await self._database.call("put_back", "", (head.number,))
                return before
            if head.state == "sending":
                taken_over = head.number in self._interrupted
                return head if sender in ("", self._own_name) and not taken_over else None
            if not ready(head):
                return head
            delivery = await self._call("take", head.number, head.attempts, head.outbound.turn)
            if delivery is not None:
                return delivery  # else another worker changed it in between
        return None

    async def mark_sending(self, debt: Delivery) -> Delivery | None:
        return await self._call("take", debt.number, debt.attempts, debt.outbound.turn)

    async def mark_sent(self, debt: Delivery, *ids: str, rest: bool = False, uncertain: bool = False) -> Delivery:
        outbound, finished = debt.outbound, None if rest else self._clock()
        args = (to_json((*debt.paid, *ids)), int(uncertain), finished, outbound.lane, outbound.turn)
        found: bool | None = await self._database.call("sent", "", (debt.number, *args))
        if found is None:
            return debt
        return structs.replace(
            debt,
            state="sending" if rest else "sent",
            paid=(*debt.paid, *ids),
            uncertain=debt.uncertain or uncertain,
            doubtful=debt.doubtful and not ids,
            why=debt.why if rest else "",
            emptied_lane=found,
        )

    async def postpone(
        self, debt: Delivery, due: float, why: str, *, uncertain: bool = False, counts: bool = True
    ) -> None:
        await super().postpone(debt, due, why, uncertain=uncertain, counts=counts)
        self._interrupted.discard(debt.number)

    async def give_up(self, debt: Delivery, state: Literal["failed", "expired"], why: str) -> bool:
        given_up = await super().give_up(debt, state, why)
        self._interrupted.discard(debt.number)
        return given_up

    async def list_interrupted(self, platform: str) -> tuple[Delivery, ...]:
        """Take over the deliveries of dead workers."""
        values = (platform, self._own_name)
        if await self._database.fetch_one(f"SELECT 1 FROM outbox WHERE {_INTERRUPTED} LIMIT 1", *values) is None:
            return ()
        sql = f"UPDATE outbox SET sender = ? WHERE {_INTERRUPTED} RETURNING {COLUMNS}"

        def work(db: Connection) -> tuple[Delivery, ...]:
            rows: list[Any] = db.execute(sql, (self._own_name, *values)).fetchall()
            self._interrupted.update(row[0] for row in rows)  # before the commit, so that no lane takes them
            return tuple(with_drafts(db, delivery_from_row(row)) for row in sorted(rows))

        return await self._database.run(work)

    async def expire_fleeting(self, platform: str) -> int:
        where = f"platform = ? AND {OPEN} AND fleeting = 1 AND owner <> ? AND {_DEAD_OWNER}"
        values = (platform, self._own_name)
        if await self._database.fetch_one(f"SELECT 1 FROM outbox WHERE {where} LIMIT 1", *values) is None:
            return 0
        # one that a living worker sends for the dead one may still arrive
        sql = f"""UPDATE outbox SET uncertain_part =
            CASE WHEN state = 'sending' AND uncertain_part = 0 THEN 1 ELSE uncertain_part END, state = 'expired',
            finished = ?, reason = 'the process that sent it is gone', sender = ''
            WHERE {where} AND (state = 'queued' OR {_DEAD_SENDER})"""
        return await self._database.execute(sql, self._clock(), *values)

    async def _call(self, verb: str, *args: object) -> Delivery | None:
        found = await self._database.call(verb, "", args)
        if found is None:
            return None
        *row, drafts = found
        return structs.replace(delivery_from_row(row), drafts=tuple(drafts))


def _with_drafts(row: Any, drafts: list[tuple[str, str]]) -> Delivery:
    """A delivery with those drafts of its lane that belong to its turn."""
    delivery = delivery_from_row(row)
    own = tuple(message for turn, message in drafts if turn == delivery.outbound.turn)
    return structs.replace(delivery, drafts=own)
