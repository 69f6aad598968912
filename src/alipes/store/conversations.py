"""Which conversation goes on under a key, and what of it is told to the model. Nothing here runs a turn."""

import os
import sqlite3
import time
from collections.abc import Callable
from itertools import islice
from typing import Literal

from msgspec import structs

from alipes.kernel.conversations import Absorbed, Left, Retried, Standing, Undone, Waiting
from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address, Busy, Inbound, Said, Stop, Turn
from alipes.store import export, history, turn_rows
from alipes.store.database import codec
from alipes.store.database.database import Database
from alipes.store.peers.peers import Hosts


async def entitle(database: Database, session: str, title: str) -> bool:
    """False where it has a name already, or is not there."""
    sql = "UPDATE sessions SET title = ? WHERE id = ? AND title = ''"
    row = (codec.whole(title), session)
    return bool(await database.run(lambda db: db.execute(sql, row).rowcount))


Alive = Callable[[str | None], bool]


def reset(db: sqlite3.Connection, key: str, new: str, now: float, alive: Alive) -> Left | None:
    sql = "SELECT address FROM sessions WHERE id = (SELECT session FROM seats WHERE key = ?)"
    row = db.execute(sql, (key,)).fetchone()
    if row is None:
        return None
    left = _leave(db, key, new, now, alive)
    turn_rows.open_session(db, new, codec.addresses.decode(row[0]), now)
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
        (key, address.platform, codec.dump(address), now, session),
    )
    turn_rows.seat(db, key, session)
    _discard(db, left.old)
    return left


def branch(db: sqlite3.Connection, key: str, new: str, title: str, *, now: float, alive: Alive) -> Left:
    sql = "SELECT id, address FROM sessions WHERE id = (SELECT session FROM seats WHERE key = ?)"
    old, address = db.execute(sql, (key,)).fetchone() or ("", "")
    share(db, old, new, title, address=codec.addresses.decode(address) if address else None, now=now)
    left = _leave(db, key, new, now, alive)
    turn_rows.seat(db, key, new)
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
            codec.dump(address),
            codec.whole(title) or _branch_title(db, old),
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
    return title or export.first_words(text)


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


def undo(db: sqlite3.Connection, key: str, count: int) -> tuple[Undone, ...]:
    session, _ = _session_and_address(db, key)
    turns = list(islice(history.begun(db, session), max(count, 0)))
    _hide(db, session, [number for number, *_ in turns])
    _stop(db, key, [id for _, id, _, unfinished in turns if unfinished])
    return tuple(_undone(id, inbound, unfinished) for _, id, inbound, unfinished in turns)


def retry(db: sqlite3.Connection, key: str, fresh: str, now: float) -> Retried | None:
    """`fresh`: what the ids of the messages accepted anew begin with, as none may come twice."""
    session, address = _session_and_address(db, key)
    last = next(history.begun(db, session, silent=True), None)
    if last is None or address is None:
        return None
    number, id, inbound, unfinished = last
    steered = (
        "SELECT inbound FROM turns WHERE session = (SELECT session FROM turns WHERE number = ?) "
        "AND ending = 'steered' AND detail = ? ORDER BY number"
    )
    texts = [inbound, *(text for (text,) in db.execute(steered, (number, id)))]
    _hide(db, session, [number])
    _stop(db, key, [id] if unfinished else [])
    again = [_again(text, address, f"{fresh}:{n}", now) for n, text in enumerate(texts)]
    for entry in again:
        turn_rows.insert(db, entry, session, "queue" if entry is again[0] else "steer")
    ids = [entry.turn for entry in again]
    return Retried(_undone(id, inbound, unfinished), ids[0], tuple(ids[1:]))


def _session_and_address(db: sqlite3.Connection, key: str) -> tuple[str, Address | None]:
    sql = "SELECT id, address FROM sessions WHERE id = (SELECT session FROM seats WHERE key = ?)"
    row = db.execute(sql, (key,)).fetchone()
    return ("", None) if row is None else (row[0], codec.addresses.decode(row[1]))


def _hide(db: sqlite3.Connection, session: str, numbers: list[int]) -> None:
    db.executemany("INSERT INTO hidden VALUES (?, ?)", [(session, number) for number in numbers])


def _stop(db: sqlite3.Connection, key: str, living: list[str]) -> None:
    """What lives of it is told as well; this is for who takes it up if that one dies before."""
    stops = [(key, codec.dump(Stop("user_stop", "session_interrupt", id))) for id in living]
    db.executemany("INSERT INTO controls (key, kind, op) VALUES (?, 'stop', ?)", stops)


def _undone(id: str, inbound: str, unfinished: bool) -> Undone:
    return Undone(id, codec.inbounds.decode(inbound).text, unfinished)


def _again(text: str, address: Address, id: str, now: float) -> turn_rows.Entry:
    inbound: Inbound = codec.inbounds.decode(text)
    return turn_rows.entry(structs.replace(inbound, id=id, address=address), now)


_STEERED = """
    SELECT number, id, inbound FROM turns
    WHERE key = :key AND session = :session AND ending IS NULL AND busy = 'steer' AND attempts = 0
        AND NOT EXISTS (SELECT 1 FROM controls
                        WHERE key = :key AND kind = 'stop' AND json_extract(op, '$.turn') = turns.id
                        AND coalesce(json_extract(op, '$.reason'), '') <> 'superseded')
    ORDER BY number"""
"""Without those that a person took back. One that was superseded is still to be heard, and in its place."""


class SqliteSessions:
    """`SessionStore` on one file; who is alive is asked of `hosts`, what time it is of `clock`."""

    def __init__(self, database: Database, hosts: Hosts, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._hosts, self._clock = database, hosts, clock

    async def standing(self, key: str) -> Standing | None:
        return await self._database.read(lambda db: _standing(db, key))

    async def open(self, address: Address) -> Standing:
        fresh, now = turn_rows.new_session(), self._clock()

        def work(db: sqlite3.Connection) -> Standing:
            if (found := _standing(db, address.key)) is not None:
                return found
            turn_rows.open_session(db, fresh, address, now)
            return Standing(fresh, address, "", "", "", now, "")

        return await self._database.run(work)

    async def configure(
        self,
        session: str,
        *,
        title: str | None = None,
        model: str | None = None,
        busy: Busy | Literal[""] | None = None,
    ) -> None:
        sql = (
            "UPDATE sessions SET title = coalesce(?, title), model = coalesce(?, model), "
            "busy = coalesce(?, busy) WHERE id = ?"
        )
        words = [None if text is None else codec.whole(text.strip()) for text in (title, model)]

        def work(db: sqlite3.Connection) -> None:
            if not db.execute(sql, (*words, busy, session)).rowcount:
                raise SessionError(f"there is no session {session} any more")

        await self._database.run(work)

    async def unfinished(self, key: str) -> tuple[Waiting, ...]:
        return await self._database.read(lambda db: turn_rows.unfinished(db, key))

    async def absorb(self, turn: Turn) -> tuple[Absorbed, ...]:
        names = {"key": turn.key, "session": turn.session}
        if not await self._database.read(lambda db: db.execute(_STEERED, names).fetchone()):
            return ()  # the usual case takes no lock
        now = self._clock()
        return await self._database.run(lambda db: _absorb(db, turn, now))

    async def reset(self, key: str) -> Left | None:
        new, now = turn_rows.new_session(), self._clock()
        return await self._database.run(lambda db: reset(db, key, new, now, self._hosts.alive))

    async def switch(self, address: Address, session: str) -> Left:
        now, alive = self._clock(), self._hosts.alive
        return await self._database.run(lambda db: switch(db, address, session, now, alive))

    async def branch(self, key: str, title: str = "") -> Left:
        new, now, alive = turn_rows.new_session(), self._clock(), self._hosts.alive
        title = title.strip()
        return await self._database.run(lambda db: branch(db, key, new, title, now=now, alive=alive))

    async def undo(self, key: str, count: int = 1) -> tuple[Undone, ...]:
        return await self._database.run(lambda db: undo(db, key, count))

    async def retry(self, key: str) -> Retried | None:
        fresh, now = f"retry:{os.urandom(8).hex()}", self._clock()
        return await self._database.run(lambda db: retry(db, key, fresh, now))


class SqliteGrants:
    """`Grants` on one file."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def allow(self, rule: str) -> None:
        row = _exactly(rule), self._clock()
        await self._database.run(
            lambda db: db.execute("INSERT INTO grants VALUES (?, ?) ON CONFLICT DO NOTHING", row).rowcount
        )

    async def allowed(self, rule: str) -> bool:
        sql = "SELECT 1 FROM grants WHERE rule = ?"
        found = await self._database.read(lambda db: db.execute(sql, (_exactly(rule),)).fetchone())
        return found is not None

    async def rules(self) -> tuple[str, ...]:
        sql = "SELECT rule FROM grants ORDER BY created, rule"
        found = await self._database.read(lambda db: db.execute(sql).fetchall())
        return tuple(rule.decode("utf-8", "surrogatepass") for (rule,) in found)

    async def withdraw(self, rule: str) -> bool:
        sql = "DELETE FROM grants WHERE rule = ?"
        row = (_exactly(rule),)
        return bool(await self._database.run(lambda db: db.execute(sql, row).rowcount))


def _exactly(rule: str) -> bytes:
    """Different for different rules, also where they hold half characters, as file names may."""
    return rule.encode("utf-8", "surrogatepass")


def _standing(db: sqlite3.Connection, key: str) -> Standing | None:
    sql = (
        "SELECT id, address, title, model, busy, created, coalesce(parent, '') "
        "FROM sessions WHERE id = (SELECT session FROM seats WHERE key = ?)"
    )
    row = db.execute(sql, (key,)).fetchone()
    return None if row is None else Standing(row[0], codec.addresses.decode(row[1]), *row[2:])


def _absorb(db: sqlite3.Connection, turn: Turn, now: float) -> tuple[Absorbed, ...]:
    number, session = turn_rows.mine(db, turn)
    waiting = db.execute(_STEERED, {"key": turn.key, "session": session}).fetchall()
    taken = []
    for steered, id, inbound in waiting:
        message = codec.inbounds.decode(inbound).message
        turn_rows.say(db, number, session, turn_rows.utterance(Said(message)), now)
        db.execute(
            "UPDATE turns SET ending = 'steered', detail = ?, begun = ?, ended = ? WHERE number = ?",
            (turn.id, now, now, steered),
        )
        taken.append(Absorbed(id, message))
    return tuple(taken)
