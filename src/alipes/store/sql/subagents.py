"""Turns of subagents: turns that work for another turn. Nothing here starts or ends one."""

from msgspec import Struct

from alipes.kernel.turns import Inbound
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, SqlRows, clean_text

PLATFORM = "subagent"
"""The platform of their addresses; it has no chat and no screen."""


KEY_PREFIX = f"agent:main:{PLATFORM}:"
"""The start of their session keys."""


class Subagent(Struct, frozen=True):
    """A subagent's turn that is running or queued."""

    id: str
    key: str
    session: str
    inbound: Inbound
    created: float
    started: float | None


_UNFINISHED = """SELECT id, key, session_id, inbound, created, started FROM turns
    WHERE ending IS NULL AND key >= ? AND key < ? ORDER BY number"""


class SubagentStore(SqlRows):
    async def find(self, inbound_id: str) -> str | None:
        """The turn that was accepted for this message, even if the caller of `accept` was cancelled."""
        sql = "SELECT id FROM turns WHERE platform = ? AND inbound_id = ?"
        row = (PLATFORM, clean_text(inbound_id))
        # in the queue of writes, so that writes submitted before are done
        found = await self._database.run(lambda db: db.execute(sql, row).fetchone(), sync=False)
        return None if found is None else str(found[0])

    async def unfinished(self, *, parent: str = "", place: str = "") -> tuple[Subagent, ...]:
        """Those of the turn `parent`, including those being accepted now, or those of the conversation with
        the session key `place`; oldest first."""
        bounds = (KEY_PREFIX, KEY_PREFIX[:-1] + ";")  # the character after the colon

        def work(db: Connection) -> list[tuple[str, str, str, str, float, float | None]]:
            return db.execute(_UNFINISHED, bounds).fetchall()

        # of a turn: in the queue of writes, so that writes submitted before are done
        rows = await (self._database.run(work, sync=False) if parent else self._database.read(work))
        found = [
            Subagent(id, key, session, Decoders.inbound.decode(inbound), created, started)
            for id, key, session, inbound, created, started in rows
        ]
        return tuple(each for each in found if _belongs_to(each.inbound, parent, place))

    async def is_over(self, turn: str) -> bool:
        """True if the turn has ended, or was deleted with its conversation."""
        sql = "SELECT 1 FROM turns WHERE id = ? AND ending IS NULL"
        return await self._database.fetch_one(sql, turn) is None


def _belongs_to(inbound: Inbound, parent: str, place: str) -> bool:
    if parent and inbound.parent != parent:
        return False
    return not place or (inbound.origin is not None and inbound.origin.address.key == place)
