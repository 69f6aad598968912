"""The conversations of a session key: active one, switching, branching, undoing; and approval grants."""

import os
import sqlite3
import time
from collections.abc import Callable
from itertools import islice
from typing import Literal

from msgspec import structs

from alipes.kernel.conversations import (
    ActiveSession,
    PendingTurn,
    RetriedTurn,
    SessionSwitch,
    SteeredMessage,
    UndoneTurn,
)
from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address, BusyMode, Inbound, Said, Stop, Turn
from alipes.store import export, history, turn_rows
from alipes.store.database import codec
from alipes.store.database.database import Database
from alipes.store.peers.peers import Processes

IsAlive = Callable[[str | None], bool]
_STEERED = """
    SELECT number, id, inbound FROM turns
    WHERE key = :key AND session_id = :session AND ending IS NULL AND busy_mode = 'steer' AND attempts = 0
        AND NOT EXISTS (SELECT 1 FROM pending_ops
                        WHERE key = :key AND kind = 'stop' AND json_extract(op, '$.turn') = turns.id
                        AND coalesce(json_extract(op, '$.reason'), '') <> 'superseded')
    ORDER BY number"""
"""Without messages that a person stopped. One that was only superseded still counts, in its place."""


class SqliteSessions:
    """The conversations of a key: which one is active, and what of it the model sees.

    Nothing is deleted: undone and left turns stay in the archive. Every method is one transaction. Raises
    `SessionError` with a message for the person if something cannot be done.
    """

    def __init__(self, database: Database, processes: Processes, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock, self._is_alive = database, clock, processes.is_alive

    async def active(self, key: str) -> ActiveSession | None:
        """The active conversation of `key`, or None."""
        return await self._database.read(lambda db: _find_active(db, key))

    async def open(self, address: Address) -> ActiveSession:
        """The active conversation, created if needed."""
        new, now = turn_rows.new_session_id(), self._clock()

        def work(db: sqlite3.Connection) -> ActiveSession:
            if (found := _find_active(db, address.key)) is not None:
                return found
            turn_rows.insert_session(db, new, address, now)
            return ActiveSession(new, address, "", "", "", now, "")

        return await self._database.run(work)

    async def configure(
        self,
        session: str,
        *,
        title: str | None = None,
        model: str | None = None,
        busy: BusyMode | Literal[""] | None = None,
    ) -> None:
        """Set what is not None; an empty value restores the default (for the title: the first words)."""
        sql = (
            "UPDATE sessions SET title = coalesce(?, title), model = coalesce(?, model), "
            "busy_mode = coalesce(?, busy_mode) WHERE id = ?"
        )
        values = [None if text is None else codec.clean_text(text.strip()) for text in (title, model)]

        def work(db: sqlite3.Connection) -> None:
            if not db.execute(sql, (*values, busy, session)).rowcount:
                raise SessionError(f"conversation {session} no longer exists")

        await self._database.run(work)

    async def unfinished(self, key: str) -> tuple[PendingTurn, ...]:
        """The running and queued turns of `key`, in order."""
        return await self._database.read(lambda db: turn_rows.list_unfinished(db, key))

    async def take_steered(self, turn: Turn) -> tuple[SteeredMessage, ...]:
        """Move the messages queued for steering into `turn`, oldest first: each is recorded there and its own
        turn ends as `steered`. Raises `Fenced` like `record`."""
        names = {"key": turn.key, "session": turn.session}
        if not await self._database.read(lambda db: db.execute(_STEERED, names).fetchone()):
            return ()  # the usual case, without a write lock
        now = self._clock()
        return await self._database.run(lambda db: _take_steered(db, turn, now))

    async def reset(self, key: str) -> SessionSwitch | None:
        """Start a new conversation under `key`; None if there is nothing to leave.

        Queued turns are ended. A turn that is still running is named in `SessionSwitch.running_turn`: send
        `Reset` to the session that runs it.
        """
        new, now = turn_rows.new_session_id(), self._clock()
        return await self._database.run(lambda db: reset_session(db, key, new, now, self._is_alive))

    async def switch(self, address: Address, session: str) -> SessionSwitch:
        """Switch to another conversation; it is no longer active where it was before."""
        now = self._clock()
        return await self._database.run(lambda db: switch_session(db, address, session, now, self._is_alive))

    async def branch(self, key: str, title: str = "") -> SessionSwitch:
        """Switch to a branch that shares all finished turns without copying messages."""
        new, now, title = turn_rows.new_session_id(), self._clock(), title.strip()
        return await self._database.run(
            lambda db: branch_session(db, key, new, title, now=now, is_alive=self._is_alive)
        )

    async def undo(self, key: str, count: int = 1) -> tuple[UndoneTurn, ...]:
        """Hide the last started turns from the model, latest first."""
        return await self._database.run(lambda db: undo_turns(db, key, count))

    async def retry(self, key: str) -> RetriedTurn | None:
        """Hide the last turn and accept its message again, with those that were steered into it."""
        prefix, now = f"retry:{os.urandom(8).hex()}", self._clock()
        return await self._database.run(lambda db: retry_turn(db, key, prefix, now))


class SqliteGrants:
    """Calls that were always allowed: exact rules, compared as a whole."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def allow(self, rule: str) -> None:
        row = _rule_bytes(rule), self._clock()
        await self._database.run(
            lambda db: db.execute("INSERT INTO grants VALUES (?, ?) ON CONFLICT DO NOTHING", row).rowcount
        )

    async def is_allowed(self, rule: str) -> bool:
        sql = "SELECT 1 FROM grants WHERE rule = ?"
        found = await self._database.read(lambda db: db.execute(sql, (_rule_bytes(rule),)).fetchone())
        return found is not None

    async def rules(self) -> tuple[str, ...]:
        """Oldest first."""
        sql = "SELECT rule FROM grants ORDER BY created, rule"
        found = await self._database.read(lambda db: db.execute(sql).fetchall())
        return tuple(rule.decode("utf-8", "surrogatepass") for (rule,) in found)

    async def revoke(self, rule: str) -> bool:
        """False if it was not allowed."""
        sql = "DELETE FROM grants WHERE rule = ?"
        row = (_rule_bytes(rule),)
        return bool(await self._database.run(lambda db: db.execute(sql, row).rowcount))


def _rule_bytes(rule: str) -> bytes:
    """Different for different rules, even if they contain lone surrogates, as file names may."""
    return rule.encode("utf-8", "surrogatepass")


async def set_title_if_empty(database: Database, session: str, title: str) -> bool:
    """False if the session has a title already, or does not exist."""
    sql = "UPDATE sessions SET title = ? WHERE id = ? AND title = ''"
    row = (codec.clean_text(title), session)
    return bool(await database.run(lambda db: db.execute(sql, row).rowcount))


def session_title(db: sqlite3.Connection, session: str) -> str:
    """The title that was set; else the first words of the first message."""
    sql = (
        "SELECT title, (SELECT substr(json_extract(inbound, '$.text'), 1, 200) FROM turns "
        "WHERE session_id = sessions.id ORDER BY number LIMIT 1) FROM sessions WHERE id = ?"
    )
    title, text = db.execute(sql, (session,)).fetchone()
    return title or export.title_from_text(text)


def _find_active(db: sqlite3.Connection, key: str) -> ActiveSession | None:
    sql = (
        "SELECT id, address, title, model, busy_mode, created, coalesce(parent_id, '') "
        "FROM sessions WHERE id = (SELECT session_id FROM leases WHERE key = ?)"
    )
    row = db.execute(sql, (key,)).fetchone()
    return None if row is None else ActiveSession(row[0], codec.address_decoder.decode(row[1]), *row[2:])


def _take_steered(db: sqlite3.Connection, turn: Turn, now: float) -> tuple[SteeredMessage, ...]:
    number, session = turn_rows.find_claimed_turn(db, turn)
    found = db.execute(_STEERED, {"key": turn.key, "session": session}).fetchall()
    taken = []
    for steered, id, inbound in found:
        message = codec.inbound_decoder.decode(inbound).message
        turn_rows.insert_message(db, number, session, turn_rows.make_message_row(Said(message)), now)
        db.execute(
            "UPDATE turns SET ending = 'steered', detail = ?, started = ?, ended = ? WHERE number = ?",
            (turn.id, now, now, steered),
        )
        taken.append(SteeredMessage(id, message))
    return tuple(taken)


def reset_session(db: sqlite3.Connection, key: str, new: str, now: float, is_alive: IsAlive) -> SessionSwitch | None:
    active = _find_active(db, key)
    if active is None:
        return None
    switch = _leave_session(db, key, new, now, is_alive)
    turn_rows.insert_session(db, new, active.address, now)
    _delete_if_empty(db, switch.old)
    return switch


def switch_session(
    db: sqlite3.Connection, address: Address, session: str, now: float, is_alive: IsAlive
) -> SessionSwitch:
    key = address.key
    if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is None:
        raise SessionError(f'No conversation matches "{session}". /sessions lists them.')
    if db.execute("SELECT 1 FROM leases WHERE key = ? AND session_id = ?", (key, session)).fetchone():
        return SessionSwitch(session, session)
    busy = "SELECT 1 FROM turns WHERE session_id = ? AND key <> ? AND ending IS NULL"
    if db.execute(busy, (session, key)).fetchone():
        raise SessionError("that conversation has a running turn in another place; stop it there first")
    taken = "UPDATE leases SET session_id = NULL WHERE session_id = ? AND key <> ? RETURNING key"
    keys = [name for (name,) in db.execute(taken, (session, key)).fetchall()]
    switch = _leave_session(db, key, session, now, is_alive, moved_from=keys[0] if keys else "")
    db.execute(  # a `Reset` not delivered yet, from when it was left, must not end it now
        "DELETE FROM pending_ops WHERE kind = 'reset' AND json_extract(op, '$.session') = ?", (session,)
    )
    db.execute(
        "UPDATE sessions SET key = ?, platform = ?, address = ?, updated = ? WHERE id = ?",
        (key, address.platform, codec.to_json(address), now, session),
    )
    turn_rows.set_current_session(db, key, session)
    _delete_if_empty(db, switch.old)
    return switch


def branch_session(
    db: sqlite3.Connection, key: str, new: str, title: str, *, now: float, is_alive: IsAlive
) -> SessionSwitch:
    active = _find_active(db, key)
    if active is None:
        raise SessionError("no turn has finished here yet, so there is nothing to branch from")
    branch_from_end(db, active.session, new, title, address=active.address, now=now)
    switch = _leave_session(db, key, new, now, is_alive)
    turn_rows.set_current_session(db, key, new)
    return switch


def branch_from_end(db: sqlite3.Connection, old: str, new: str, title: str, *, address: Address, now: float) -> None:
    """Create the session `new` at `address` with all finished turns of `old`; it is not active yet."""
    sql = (
        "SELECT (SELECT max(number) FROM turns WHERE session_id = sessions.id AND ending IS NOT NULL), "
        "EXISTS (SELECT 1 FROM session_ancestors WHERE session_id = sessions.id) FROM sessions WHERE id = ?"
    )
    last_turn, inherits = db.execute(sql, (old,)).fetchone() or (None, 0)
    if last_turn is None and not inherits:
        raise SessionError("no turn has finished here yet, so there is nothing to branch from")
    insert_branch(db, (old, last_turn), new, title, address=address, now=now)


def insert_branch(
    db: sqlite3.Connection, source: tuple[str, int | None], new: str, title: str, *, address: Address, now: float
) -> None:
    """Create the session `new` with the history of another one up to a turn; None: only what that one shares.

    No message is copied. Unfinished turns are not shared.
    """
    old, last_turn = source
    title = codec.clean_text(title) or _branch_title(db, old)
    db.execute(
        "INSERT INTO sessions "
        "(id, key, platform, address, title, created, updated, parent_id, model, busy_mode) "
        "SELECT ?, ?, ?, ?, ?, ?, ?, id, model, busy_mode FROM sessions WHERE id = ?",
        (new, address.key, address.platform, codec.to_json(address), title, now, now, old),
    )
    db.execute(
        "INSERT INTO session_ancestors SELECT ?, ancestor_id, last_turn FROM session_ancestors WHERE session_id = ?",
        (new, old),
    )
    if last_turn is not None:
        db.execute("INSERT INTO session_ancestors VALUES (?, ?, ?)", (new, old, last_turn))
    db.execute(
        "INSERT INTO undone_turns SELECT ?, turn_number FROM undone_turns WHERE session_id = ? "
        "UNION SELECT ?, number FROM turns WHERE session_id = ? AND ending IS NULL AND number <= ?",
        (new, old, new, old, last_turn or 0),
    )


def _branch_title(db: sqlite3.Connection, parent: str) -> str:
    (count,) = db.execute("SELECT count(*) FROM sessions WHERE parent_id = ?", (parent,)).fetchone()
    return f"{session_title(db, parent)} (branch {count + 1})".strip()


def _leave_session(
    db: sqlite3.Connection, key: str, new: str, now: float, is_alive: IsAlive, *, moved_from: str = ""
) -> SessionSwitch:
    """End the queued turns of the key; a turn that a running process executes is ended by that process."""
    lease = db.execute("SELECT session_id, holder FROM leases WHERE key = ?", (key,)).fetchone()
    old, holder = lease or (None, None)
    sql = "SELECT number, id, attempts FROM turns WHERE key = ? AND ending IS NULL ORDER BY number"
    queued = db.execute(sql, (key,)).fetchall()
    running = ""
    if queued and queued[0][2] and is_alive(holder):
        running = queued.pop(0)[1]
    for number, _, _ in queued:
        db.execute("UPDATE turns SET ending = 'stopped', detail = 'reset', ended = ? WHERE number = ?", (now, number))
        db.execute("DELETE FROM tool_calls WHERE turn_number = ?", (number,))
    return SessionSwitch(old or "", new, tuple(id for _, id, _ in queued), running, moved_from)


def _delete_if_empty(db: sqlite3.Connection, session: str) -> None:
    """Delete a conversation without a title, a turn or a branch."""
    db.execute(
        "DELETE FROM sessions WHERE id = :id AND title = '' "
        "AND NOT EXISTS (SELECT 1 FROM turns WHERE session_id = :id) "
        "AND NOT EXISTS (SELECT 1 FROM session_ancestors WHERE :id IN (session_id, ancestor_id))",
        {"id": session},
    )


def undo_turns(db: sqlite3.Connection, key: str, count: int) -> tuple[UndoneTurn, ...]:
    active = _find_active(db, key)
    if active is None:
        return ()
    turns = list(islice(history.started_turns(db, active.session), max(count, 0)))
    _hide_turns(db, active.session, [number for number, *_ in turns])
    _put_stops(db, key, [id for _, id, _, unfinished in turns if unfinished])
    return tuple(_make_undone(id, inbound, unfinished) for _, id, inbound, unfinished in turns)


def retry_turn(db: sqlite3.Connection, key: str, id_prefix: str, now: float) -> RetriedTurn | None:
    """`id_prefix`: for the ids of the messages that are accepted again, since an id is accepted only once."""
    active = _find_active(db, key)
    last = None if active is None else next(history.started_turns(db, active.session, silent=True), None)
    if last is None or active is None:
        return None
    number, id, inbound, unfinished = last
    steered = (
        "SELECT inbound FROM turns WHERE session_id = (SELECT session_id FROM turns WHERE number = ?) "
        "AND ending = 'steered' AND detail = ? ORDER BY number"
    )
    texts = [inbound, *(text for (text,) in db.execute(steered, (number, id)))]
    _hide_turns(db, active.session, [number])
    _put_stops(db, key, [id] if unfinished else [])
    rows = [_copy_inbound(text, active.address, f"{id_prefix}:{n}", now) for n, text in enumerate(texts)]
    for row in rows:
        turn_rows.insert_turn(db, row, active.session, "queue" if row is rows[0] else "steer")
    first, *more = (row.turn for row in rows)
    return RetriedTurn(_make_undone(id, inbound, unfinished), first, tuple(more))


def _hide_turns(db: sqlite3.Connection, session: str, numbers: list[int]) -> None:
    db.executemany("INSERT INTO undone_turns VALUES (?, ?)", [(session, number) for number in numbers])


def _put_stops(db: sqlite3.Connection, key: str, turns: list[str]) -> None:
    """The caller also sends `Stop` to running turns; this is for a process that resumes one after a crash."""
    stops = [(key, codec.to_json(Stop("user_stop", "session_interrupt", id))) for id in turns]
    db.executemany("INSERT INTO pending_ops (key, kind, op) VALUES (?, 'stop', ?)", stops)


def _make_undone(id: str, inbound: str, unfinished: bool) -> UndoneTurn:
    return UndoneTurn(id, codec.inbound_decoder.decode(inbound).text, unfinished)


def _copy_inbound(text: str, address: Address, id: str, now: float) -> turn_rows.TurnRow:
    inbound: Inbound = codec.inbound_decoder.decode(text)
    return turn_rows.make_turn_row(structs.replace(inbound, id=id, address=address), now)


_FIND = """
    SELECT items FROM todos WHERE session_id = :session
    UNION ALL
    SELECT items FROM todos WHERE session_id = (SELECT parent_id FROM sessions WHERE id = :session)
    LIMIT 1"""
"""Its own list; a branch without one uses that of its parent."""


class SqliteTodos:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def read(self, session: str) -> str:
        """The list as it was written; empty if there is none."""

        def work(db: sqlite3.Connection) -> str:
            row = db.execute(_FIND, {"session": session}).fetchone()
            return "" if row is None else str(row[0])

        return await self._database.read(work)

    async def write(self, session: str, items: str) -> None:
        """Replace the list."""
        row, sql = (session, items, self._clock()), "INSERT OR REPLACE INTO todos VALUES (?, ?, ?)"
        await self._database.run(lambda db: db.execute(sql, row).rowcount)
