"""Browsers that are logged in to the page, and one-time codes for others to log in: rows of SQLite, all hashed."""

import hashlib
import hmac
import secrets
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import SqlRows, clean_text

BrowserScope: TypeAlias = Literal["read", "admin"]


IDLE_DAYS = 30


IDLE_S = IDLE_DAYS * 86_400.0
"""A browser that was not used for this long has to log in again."""


class Browser(Struct, frozen=True):
    """A browser that is logged in."""

    id: str
    name: str
    scope: BrowserScope
    created: float
    last_seen: float

    @property
    def expires(self) -> float:
        """When it has to log in again, if it is not used before."""
        return self.last_seen + IDLE_S


class BrowserLogin(Struct, frozen=True):
    """A new browser and the two halves that it has to show, of which only hashes are stored."""

    browser: Browser
    cookie: str
    secret: str


class LoginCode(Struct, frozen=True):
    code: str
    expires: float

    def link(self, address: str) -> str:
        """The link that logs in, for the page at `address`. The code is in the fragment, which is sent to no server."""
        return f"{address.rstrip('/')}/#login={self.code}"


CODE_VALID_S = 300.0
"""How long a one-time code can be used."""
SEEN_INTERVAL_S = 60.0
"""How often the time of the last use is written at most."""
MAX_CODES = 100
"""Unused codes that are kept; the oldest are dropped first."""
_MAX_NAME_CHARS = 60
_COLUMNS = "id, name, scope, created, last_seen"


class BrowserStore(SqlRows):
    async def add_code(self, scope: BrowserScope, name: str = "") -> LoginCode:
        """A code that one browser may log in with, once. `name`: what the browser will be called."""
        code, now = secrets.token_urlsafe(24), self._clock()
        row = (_hash(code), scope, _clean_name(name), now + CODE_VALID_S)

        def work(db: Connection) -> None:
            db.execute("DELETE FROM login_codes WHERE expires <= ?", (now,))
            # A code per second for an hour must not fill the disk.
            db.execute(
                """DELETE FROM login_codes WHERE code_hash NOT IN
                (SELECT code_hash FROM login_codes ORDER BY expires DESC LIMIT ?)""",
                (MAX_CODES - 1,),
            )
            db.execute("INSERT INTO login_codes VALUES (?, ?, ?, ?)", row)

        await self._database.run(work)
        return LoginCode(code, now + CODE_VALID_S)

    async def log_in(self, code: str, name: str) -> BrowserLogin | None:
        """Use the code: it is deleted, and the browser is added, called `name` unless the code says otherwise.

        None if the code is unknown, used or expired.
        """
        id, cookie, secret = secrets.token_hex(6), secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        now, default = self._clock(), _clean_name(name)

        def work(db: Connection) -> BrowserLogin | None:
            sql = "DELETE FROM login_codes WHERE code_hash = ? AND expires > ? RETURNING scope, name"
            found = db.execute(sql, (_hash(code), now)).fetchall()
            if not found:
                return None
            ((scope, chosen),) = found
            db.execute("DELETE FROM browsers WHERE last_seen <= ?", (now - IDLE_S,))
            browser = Browser(id, chosen or default, scope, now, now)
            row = (id, browser.name, scope, _hash(cookie), _hash(f"{id}.{secret}"), now, now)
            db.execute("INSERT INTO browsers VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            return BrowserLogin(browser, cookie, f"{id}.{secret}")

        return await self._database.run(work)

    async def find(self, cookie: str, secret: str) -> Browser | None:
        """The browser that holds both halves, unless it was revoked or has expired. Its use is recorded."""
        id, now = secret.partition(".")[0], self._clock()
        sql = f"SELECT {_COLUMNS}, cookie_hash, secret_hash FROM browsers WHERE id = ? AND last_seen > ?"
        row = await self._database.fetch_one(sql, id, now - IDLE_S)
        if row is None:
            return None
        *columns, cookie_hash, secret_hash = row
        # Both are compared in any case, in constant time.
        same = hmac.compare_digest(_hash(cookie), cookie_hash), hmac.compare_digest(_hash(secret), secret_hash)
        if not all(same):
            return None
        browser = Browser(*columns)
        if now - browser.last_seen >= SEEN_INTERVAL_S:
            await self._database.execute("UPDATE browsers SET last_seen = ? WHERE id = ?", now, id)
        return browser

    async def exists(self, id: str) -> bool:
        """True unless the browser was revoked or has expired."""
        sql = "SELECT 1 FROM browsers WHERE id = ? AND last_seen > ?"
        return await self._database.fetch_one(sql, id, self._clock() - IDLE_S) is not None

    async def all(self) -> tuple[Browser, ...]:
        """All that are logged in, the last used first."""
        sql = f"SELECT {_COLUMNS} FROM browsers WHERE last_seen > ? ORDER BY last_seen DESC, id"
        return tuple(Browser(*row) for row in await self._database.fetch_all(sql, self._clock() - IDLE_S))

    async def revoke(self, id: str) -> bool:
        """False if there is no such browser."""
        return bool(await self._database.execute("DELETE FROM browsers WHERE id = ?", id))


def _hash(text: str) -> bytes:
    """Codes and halves are long and random, so a plain hash is enough."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _clean_name(name: str) -> str:
    return " ".join(clean_text(name).split())[:_MAX_NAME_CHARS]
