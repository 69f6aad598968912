"""Links that show one conversation to people who have them, until they expire: rows with hashed tokens."""

import hashlib
import secrets

from msgspec import Struct

from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import SqlRows, clean_text

MAX_DAYS = 365
DAY_S = 86_400.0


class Share(Struct, frozen=True):
    """A link, without its token, which is shown only once when it is made."""

    id: str
    session: str
    created: float
    expires: float


_COLUMNS = "id, session_id, created, expires"


class ShareStore(SqlRows):
    async def add(self, session: str, days: float) -> tuple[Share, str]:
        """A link and its token. It shows the conversation as it is now."""
        id, token, now = secrets.token_hex(6), secrets.token_urlsafe(32), self._clock()
        share = Share(id, clean_text(session), now, now + min(days, MAX_DAYS) * DAY_S)

        def work(db: Connection) -> None:
            db.execute("DELETE FROM shared_conversations WHERE expires <= ?", (now,))
            sql = f"INSERT INTO shared_conversations ({_COLUMNS}, token_hash) VALUES (?, ?, ?, ?, ?)"
            db.execute(sql, (id, share.session, share.created, share.expires, _hash(token)))

        await self._database.run(work)
        return share, token

    async def find(self, token: str) -> Share | None:
        """The link with this token, unless it was ended or has expired."""
        sql = f"SELECT {_COLUMNS} FROM shared_conversations WHERE token_hash = ? AND expires > ?"
        row = await self._database.fetch_one(sql, _hash(token), self._clock())
        return None if row is None else Share(*row)

    async def all(self, session: str = "") -> tuple[Share, ...]:
        """Those that have not expired, the newest first; of one conversation, or of all."""
        sql = f"""SELECT {_COLUMNS} FROM shared_conversations
            WHERE expires > ? AND (? = '' OR session_id = ?) ORDER BY created DESC, id"""
        name = clean_text(session)
        return tuple(Share(*row) for row in await self._database.fetch_all(sql, self._clock(), name, name))

    async def end(self, id: str) -> bool:
        """False if there is no such link."""
        return bool(await self._database.execute("DELETE FROM shared_conversations WHERE id = ?", clean_text(id)))


def _hash(token: str) -> bytes:
    """A token is long and random, so a plain hash is enough."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
