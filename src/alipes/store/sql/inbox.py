"""The inbox in SQLite: incoming messages that are not a turn yet, and the ids of messages already handled."""

from typing import Literal, TypeAlias

from msgspec import Struct, structs

from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Inbound
from alipes.store.sql import outbox
from alipes.store.sql.connection import Connection
from alipes.store.sql.damage import RowDecoder
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, to_json
from alipes.store.sql.turns import ANSWER_BATCH

EditResult: TypeAlias = Literal["replaced", "same", "late", "unknown"]
"""`replaced`: the queued message has the new text; `same`: it had it already; `late`: its turn has started;
`unknown`: there is no such message."""


class WaitingMessage(Struct, frozen=True):
    message: IncomingMessage
    batch: str
    """The id of the batch it belongs to, or empty."""


KEEP_S = 7 * 86400.0
"""How long a second copy of a handled message is recognised."""
_message_decoder: RowDecoder[IncomingMessage] = RowDecoder(IncomingMessage)


class InboxStore(SqlRows):
    async def add(self, message: IncomingMessage) -> bool:
        """Keep the message until `mark_handled`; False for a second copy."""
        row = (message.address.platform, clean_text(message.id), to_json(message), self._clock())
        sql = "INSERT OR IGNORE INTO inbox (platform, id, message, created) VALUES (?, ?, ?, ?)"
        return bool(await self._database.execute(sql, *row))

    async def replace(self, message: IncomingMessage) -> None:
        """Replace the waiting message with the same id."""
        sql = "UPDATE inbox SET message = ? WHERE platform = ? AND id = ? AND handled IS NULL"
        await self._database.execute(sql, to_json(message), message.address.platform, clean_text(message.id))

    async def contains(self, platform: str, id: str) -> bool:
        """True if the message is waiting or was handled."""
        sql = "SELECT 1 FROM inbox WHERE platform = ? AND id = ?"
        return await self._database.fetch_one(sql, platform, clean_text(id)) is not None

    async def is_waiting(self, platform: str, id: str) -> bool:
        sql = "SELECT 1 FROM inbox WHERE platform = ? AND id = ? AND handled IS NULL"
        return await self._database.fetch_one(sql, platform, clean_text(id)) is not None

    async def add_answer(self, platform: str, id: str) -> bool:
        """The message was the answer to a question: neither it nor a second copy becomes a turn. False if it
        was known before, as a message or as a turn."""
        sql = """INSERT OR IGNORE INTO inbox (platform, id, batch, created, handled) SELECT ?1, ?2, ?3, ?4, ?4
            WHERE NOT EXISTS (SELECT 1 FROM turns WHERE platform = ?1 AND inbound_id = ?2)"""
        return bool(await self._database.execute(sql, platform, clean_text(id), ANSWER_BATCH, self._clock()))

    async def mark_handled(self, platform: str, *ids: str, owed: tuple[Outbound, ...] = ()) -> None:
        """The messages are handled; `owed`: replies that are queued in the same transaction."""
        now, outbox_rows = self._clock(), [outbox.make_outbox_row(outbound) for outbound in owed]
        rows = [(platform, clean_text(id), now, now) for id in ids]

        def work(db: Connection) -> None:
            db.executemany(
                "INSERT INTO inbox (platform, id, created, handled) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (platform, id) DO UPDATE SET handled = excluded.handled, message = ''",
                rows,
            )
            outbox.insert_outbound(db, outbox_rows, now)

        await self._database.run(work)

    async def set_batch(self, platform: str, name: str, ids: tuple[str, ...]) -> None:
        """Make these messages one batch, which no later message joins."""
        sql = "UPDATE inbox SET batch = ? WHERE platform = ? AND id = ?"
        rows = [(clean_text(name), platform, clean_text(id)) for id in ids]
        await self._database.run(lambda db: db.executemany(sql, rows).rowcount)

    async def list_waiting(self, platform: str) -> tuple[WaitingMessage, ...]:
        """The messages that are not handled yet, oldest first."""
        sql = "SELECT message, batch FROM inbox WHERE platform = ? AND handled IS NULL ORDER BY number"
        found = await self._database.fetch_all(sql, platform)
        return tuple(WaitingMessage(_message_decoder.decode(message), batch) for message, batch in found)

    async def apply_edit(self, edit: str, original: str, inbound: Inbound) -> EditResult:
        """Give the message `original` the text of `inbound`, if its turn has not started.

        The edit itself, with the id `edit`, is marked as handled unless the result is `late` or `unknown`.
        """
        platform, now = inbound.address.platform, self._clock()

        def work(db: Connection) -> EditResult:
            sql = "SELECT inbound, started, ending FROM turns WHERE platform = ? AND inbound_id = ?"
            row = db.execute(sql, (platform, clean_text(original))).fetchone()
            if row is None:
                return "unknown"
            before = Decoders.inbound.decode(row[0])
            same = before.text == inbound.text
            if not same and (row[1] is not None or row[2] is not None):
                return "late"
            if not same:
                changed = structs.replace(before, text=inbound.text, attachments=inbound.attachments)
                update = "UPDATE turns SET inbound = ?, text = ? WHERE platform = ? AND inbound_id = ?"
                row = (to_json(changed), clean_text(changed.text), platform, clean_text(original))
                db.execute(update, row)
            handled = "INSERT OR IGNORE INTO inbox (platform, id, created, handled) VALUES (?, ?, ?, ?)"
            db.execute(handled, (platform, clean_text(edit), now, now))
            return "same" if same else "replaced"

        return await self._database.run(work, key=inbound.address.key)

    async def delete_old(self) -> int:
        """Delete messages that were handled long ago; returns how many."""
        return await self._database.execute("DELETE FROM inbox WHERE handled < ?", self._clock() - KEEP_S)
