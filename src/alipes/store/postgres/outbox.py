"""The outbox of a cluster in PostgreSQL: taking and completing a delivery are verbs of `apply`."""

import time
from collections.abc import Callable
from typing import Any

from msgspec import structs

from alipes.kernel.outbox import Delivery
from alipes.store.database.connection import Connection
from alipes.store.database.rows import to_json
from alipes.store.outbox import SqlOutbox, delivery_from_row
from alipes.store.postgres.turns import VerbDatabase

_HEAD = """
    SELECT number, outbound, created, state, attempts, due, sent_ids, uncertain_part, reason, sender FROM outbox
    WHERE platform = ? AND lane = ? AND state IN ('queued', 'sending') ORDER BY number LIMIT 1"""


class PostgresOutbox(SqlOutbox):
    """`SqlOutbox` in PostgreSQL. A lane is sent by the worker that sends its first message."""

    _database: VerbDatabase

    def __init__(self, database: VerbDatabase, own_name: str, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database, clock=clock)
        self._own_name = own_name

    async def take(self, lane: str, ready: Callable[[Delivery], bool]) -> Delivery | None:
        """As in `SqlOutbox`; None as well while another worker sends the head."""
        while (found := await self._database.read(lambda db: _find_head(db, lane))) is not None:
            head, sender = found
            if head.state == "sending":
                return head if sender in ("", self._own_name) else None
            if not ready(head):
                return head
            taken = await self._call("take", head.number, head.attempts, head.outbound.turn)
            if taken is not None:
                return taken  # else another worker changed it in between
        return None

    async def mark_sending(self, debt: Delivery) -> Delivery:
        return await self._call("take", debt.number, None, debt.outbound.turn) or debt

    async def mark_sent(self, debt: Delivery, *ids: str, rest: bool = False, uncertain: bool = False) -> Delivery:
        outbound, finished = debt.outbound, None if rest else self._clock()
        args = (to_json((*debt.paid, *ids)), int(uncertain), finished, outbound.lane, outbound.turn)
        return await self._call("sent", debt.number, *args) or debt

    async def _call(self, verb: str, *args: object) -> Delivery | None:
        found = await self._database.call(verb, "", args)
        if found is None:
            return None
        *row, drafts = found
        return structs.replace(delivery_from_row(row), drafts=tuple(drafts))


def _find_head(db: Connection, lane: str) -> tuple[Delivery, str] | None:
    platform = lane.partition(":")[0].replace("%3A", ":").replace("%25", "%")
    row: Any = db.execute(_HEAD, (platform, lane)).fetchone()
    return None if row is None else (delivery_from_row(row[:-1]), row[-1])
