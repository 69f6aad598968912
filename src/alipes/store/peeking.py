"""One look at a conversation from any thread, for who cannot wait on the loop. It changes nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from alipes.kernel.errors import StoreError

PATIENCE = 1.0


class Peeked(Struct, frozen=True):
    id: str
    key: str
    """Where it goes on now, else where it did last."""
    platform: str
    title: str
    created: float
    updated: float


def peek_session(database: Path, session: str) -> Peeked | None:
    """None when there is no such conversation, or no store. It blocks the calling thread for a moment.

    Raises StoreError.
    """
    sql = (
        "SELECT id, coalesce((SELECT key FROM seats WHERE session = sessions.id), key), platform, title, "
        "created, updated FROM sessions WHERE id = ?"
    )
    if not database.is_file():
        return None
    try:
        address = f"file:{quote(str(database.absolute()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=PATIENCE)) as db:
            row = db.execute(sql, (session,)).fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{database} cannot be read: {error}.") from error
    return None if row is None else Peeked(*row)
