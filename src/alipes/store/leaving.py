"""One conversation left for another: a new one, an older one, a branch. Functions of one transaction each."""

import sqlite3
from collections.abc import Callable

from alipes.kernel.errors import SessionError
from alipes.kernel.places import Left
from alipes.kernel.turns import Address
from alipes.store import admitting, exporting, rows

Alive = Callable[[str | None], bool]


def reset(db: sqlite3.Connection, key: str, new: str, now: float, alive: Alive) -> Left | None:
    sql = "SELECT address FROM sessions WHERE id = (SELECT session FROM seats WHERE key = ?)"
    row = db.execute(sql, (key,)).fetchone()
    if row is None:
        return None
    left = _leave(db, key, new, now, alive)
    admitting.open_session(db, new, rows.addresses.decode(row[0]), now)
    _discard(db, left.old)
    return left


def switch(db: sqlite3.Connection, address: Address, session: str, now: float, alive: Alive) -> Left:
    key = address.key
    if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is None:
        raise SessionError(f"there is no session {session}; /sessions shows those there are")
    if db.execute("SELECT 1 FROM seats WHERE key = ? AND session = ?", (key, session)).fetchone():
        return Left(session, session)
    busy = "SELECT 1 FROM turns WHERE session = ? AND key <> ? AND ending IS NULL"
    if db.execute(busy, (session, key)).fetchone():
        raise SessionError("that conversation is at work elsewhere; stop it there first")
    taken = "UPDATE seats SET session = NULL WHERE session = ? AND key <> ? RETURNING key"
    elsewhere = [name for (name,) in db.execute(taken, (session, key)).fetchall()]
    left = _leave(db, key, session, now, alive, elsewhere[0] if elsewhere else "")
    db.execute(  # a word not yet heard that it was left must not end what is said in it now
        "DELETE FROM controls WHERE kind = 'reset' AND json_extract(op, '$.session') = ?", (session,)
    )
    db.execute(
        "UPDATE sessions SET key = ?, platform = ?, address = ?, updated = ? WHERE id = ?",
        (key, address.platform, rows.dump(address), now, session),
    )
    admitting.seat(db, key, session)
    _discard(db, left.old)
    return left


def branch(db: sqlite3.Connection, key: str, new: str, title: str, *, now: float, alive: Alive) -> Left:
    sql = "SELECT id, address FROM sessions WHERE id = (SELECT session FROM seats WHERE key = ?)"
    old, address = db.execute(sql, (key,)).fetchone() or ("", "")
    share(db, old, new, title, address=rows.addresses.decode(address) if address else None, now=now)
    left = _leave(db, key, new, now, alive)
    admitting.seat(db, key, new)
    return left


def share(
    db: sqlite3.Connection, old: str, new: str, title: str, *, address: Address | None, now: float
) -> None:
    """Begin a session at `address` that shares all that was finished in `old`. It is not seated yet."""
    sql = (
        "SELECT (SELECT max(number) FROM turns WHERE session = sessions.id AND ending IS NOT NULL), "
        "EXISTS (SELECT 1 FROM lineage WHERE session = sessions.id) FROM sessions WHERE id = ?"
    )
    upto, inherits = db.execute(sql, (old,)).fetchone() or (None, 0)
    if address is None or (upto is None and not inherits):
        raise SessionError("nothing was finished here yet, so there is nothing to branch from")
    db.execute(
        "INSERT INTO sessions (id, key, platform, address, title, created, updated, parent, model, busy) "
        "SELECT ?, ?, ?, ?, ?, ?, ?, id, model, busy FROM sessions WHERE id = ?",
        (
            new,
            address.key,
            address.platform,
            rows.dump(address),
            rows.whole(title) or _branch_title(db, old),
            now,
            now,
            old,
        ),
    )
    db.execute(
        "INSERT INTO lineage SELECT ?, ancestor, upto FROM lineage WHERE session = ?",
        (new, old),
    )
    if upto is not None:
        db.execute("INSERT INTO lineage VALUES (?, ?, ?)", (new, old, upto))
    db.execute(
        "INSERT INTO hidden SELECT ?, turn FROM hidden WHERE session = ? "
        "UNION SELECT ?, number FROM turns WHERE session = ? AND ending IS NULL",  # what lives is not shared
        (new, old, new, old),
    )


def _discard(db: sqlite3.Connection, session: str) -> None:
    """A conversation in which nothing was ever said leaves no trace."""
    db.execute(
        "DELETE FROM sessions WHERE id = :id AND title = '' "
        "AND NOT EXISTS (SELECT 1 FROM turns WHERE session = :id) "
        "AND NOT EXISTS (SELECT 1 FROM lineage WHERE :id IN (session, ancestor))",
        {"id": session},
    )


def _branch_title(db: sqlite3.Connection, parent: str) -> str:
    (count,) = db.execute("SELECT count(*) FROM sessions WHERE parent = ?", (parent,)).fetchone()
    return f"{title_of(db, parent)} (branch {count + 1})".strip()


def title_of(db: sqlite3.Connection, session: str) -> str:
    """As it was named; else the first words said in it."""
    sql = (
        "SELECT title, (SELECT substr(json_extract(inbound, '$.text'), 1, 200) FROM turns "
        "WHERE session = sessions.id ORDER BY number LIMIT 1) FROM sessions WHERE id = ?"
    )
    title, text = db.execute(sql, (session,)).fetchone()
    return title or exporting.first_words(text)


def _leave(db: sqlite3.Connection, key: str, new: str, now: float, alive: Alive, elsewhere: str = "") -> Left:
    """End what waits under the key; what a living process lives is its own to end."""
    seat = db.execute("SELECT session, holder FROM seats WHERE key = ?", (key,)).fetchone()
    old, holder = seat or (None, None)
    sql = "SELECT number, id, attempts FROM turns WHERE key = ? AND ending IS NULL ORDER BY number"
    waiting = db.execute(sql, (key,)).fetchall()
    living = ""
    if waiting and waiting[0][2] and alive(holder):
        living = waiting.pop(0)[1]
    for number, _, _ in waiting:
        db.execute(
            "UPDATE turns SET ending = 'stopped', detail = 'reset', ended = ? WHERE number = ?", (now, number)
        )
        db.execute("DELETE FROM acts WHERE turn = ?", (number,))
    return Left(old or "", new, tuple(id for _, id, _ in waiting), living, elsewhere)
