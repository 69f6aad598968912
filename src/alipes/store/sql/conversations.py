"""The conversations of a session key: active one, switching, branching, undoing."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import structs

from alipes.kernel.conversations import (
    ActiveSession,
    PendingTurn,
    RetriedTurn,
    SessionSwitch,
    SteeredMessage,
    StoppedQueue,
    UndoneTurn,
)
from alipes.kernel.errors import SessionError
from alipes.kernel.turns import Address, BusyMode, Effort, PermissionMode, Said, Stop, Turn
from alipes.store import export
from alipes.store.ports.cluster import Liveness
from alipes.store.sql import history, message_queue, turns
from alipes.store.sql.connection import Connection, Database
from alipes.store.sql.rows import Decoders, SqlRows, clean_text

StartedTurn: TypeAlias = tuple[int, str, str, bool]
"""A row of `history.started_turns`."""
_NO_FINISHED_TURN = "no turn has finished here yet, so there is nothing to branch from"
_STEERED = """
    SELECT number, id, inbound FROM turns
    WHERE key = :key AND session_id = :session AND ending IS NULL AND held = 0 AND busy_mode = 'steer'
        AND attempts = 0
        AND NOT EXISTS (SELECT 1 FROM pending_ops
                        WHERE key = :key AND kind = 'stop' AND turn_id = turns.id
                        AND reason <> 'superseded')
    ORDER BY number"""
"""Without messages that a person stopped. One that was only superseded still counts, in its place."""


class SessionStore:
    """The conversations of a key: which one is active, and what of it the model sees.

    Nothing is deleted: undone and left turns stay in the archive. Every method is one transaction. Raises
    `SessionError` with a message for the person if something cannot be done.
    """

    def __init__(self, database: Database, processes: Liveness, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock, self._is_alive = database, clock, processes.is_alive

    async def active(self, key: str) -> ActiveSession | None:
        """The active conversation of `key`, or None."""
        return await self._database.read_statement(lambda db: _find_active(db, key))

    async def open(self, address: Address) -> ActiveSession:
        """The active conversation, created if needed."""
        new, now = turns.new_session_id(), self._clock()

        def work(db: Connection) -> ActiveSession:
            if (found := _find_active(db, address.key)) is not None:
                return found
            turns.insert_session(db, new, address, now)
            return ActiveSession(new, address, "", "", "", now, "")

        return await self._database.run(work, key=address.key)

    async def configure(
        self,
        session: str,
        *,
        title: str | None = None,
        model: str | None = None,
        busy: BusyMode | Literal[""] | None = None,
        permission_mode: PermissionMode | Literal[""] | None = None,
        effort: Effort | None = None,
    ) -> None:
        """Set what is not None; an empty value restores the default (for the title: the first words)."""
        sql = """UPDATE sessions SET title = coalesce(?, title), model = coalesce(?, model),
            busy_mode = coalesce(?, busy_mode), permission_mode = coalesce(?, permission_mode),
            effort = coalesce(?, effort) WHERE id = ?"""
        values = [None if text is None else clean_text(text.strip()) for text in (title, model)]

        def work(db: Connection) -> None:
            if not db.execute(sql, (*values, busy, permission_mode, effort, session)).rowcount:
                raise SessionError(f"conversation {session} no longer exists")

        await self._database.run(work)

    async def organize(
        self, session: str, *, pinned: bool | None = None, archived: bool | None = None, folder: str | None = None
    ) -> None:
        """Set what is not None; an empty folder: in none."""
        sql = """UPDATE sessions SET pinned = coalesce(?, pinned), archived = coalesce(?, archived),
            folder = coalesce(?, folder) WHERE id = ?"""
        flags = [None if flag is None else int(flag) for flag in (pinned, archived)]
        name = None if folder is None else " ".join(clean_text(folder).split())
        if not await self._database.execute(sql, *flags, name, session):
            raise SessionError(f"conversation {session} no longer exists")

    async def permission_mode(self, session: str) -> PermissionMode | Literal[""]:
        """The mode that was chosen for the conversation; empty if none was."""
        sql = "SELECT permission_mode FROM sessions WHERE id = ?"
        row = await self._database.fetch_one(sql, session)
        mode: PermissionMode | Literal[""] = row[0] if row else ""
        return mode

    async def unfinished(self, key: str) -> tuple[PendingTurn, ...]:
        """The running turn of `key`, then the queued ones, then the held ones, each in order."""
        return await self._database.read_statement(lambda db: turns.list_unfinished(db, key))

    async def hold(self, key: str, turn: str = "") -> StoppedQueue:
        """A person stops the running turn, or `turn`: hold the messages queued behind it. The caller sends
        `Stop` to the turn that is returned."""
        return await self._database.run(lambda db: message_queue.hold(db, key, turn), key=key)

    async def release_held(self, key: str) -> tuple[PendingTurn, ...]:
        """Queue the held messages again, in order; the caller wakes the session."""
        return await self._database.run(lambda db: message_queue.release(db, key), key=key)

    async def drop_queued(self, key: str, turn: str = "") -> tuple[PendingTurn, ...]:
        """End the queued and held messages, or only `turn`, as `stopped` with the detail `dropped`."""
        now = self._clock()
        return await self._database.run(lambda db: message_queue.drop(db, key, turn, now), key=key)

    async def take_back(self, key: str) -> PendingTurn | None:
        """Remove the newest queued or held message of a person; None if all have started or were steered in."""
        now = self._clock()
        return await self._database.run(lambda db: message_queue.take_back(db, key, now), key=key)

    async def take_steered(self, turn: Turn) -> tuple[SteeredMessage, ...]:
        """Move the messages queued for steering into `turn`, oldest first: each is recorded there and its own
        turn ends as `steered`. Raises `Fenced` like `record`."""
        names = {"key": turn.key, "session": turn.session}
        if not await self._database.read_statement(lambda db: db.execute(_STEERED, names).fetchone()):
            return ()  # the usual case, without a write lock
        now, sql = (
            self._clock(),
            "UPDATE turns SET ending = 'steered', detail = ?, started = ?, ended = ? WHERE number = ?",
        )

        def work(db: Connection) -> tuple[SteeredMessage, ...]:
            number, session = history.find_claimed_turn(db, turn)
            taken = []
            for steered, id, inbound in db.execute(_STEERED, {"key": turn.key, "session": session}).fetchall():
                message = Decoders.inbound.decode(inbound).message
                history.insert_message(db, number, session, history.make_message_row(Said(message)), now)
                db.execute(sql, (turn.id, now, now, steered))
                taken.append(SteeredMessage(id, message))
            return tuple(taken)

        return await self._database.run(work, key=turn.key)

    async def reset(self, key: str) -> SessionSwitch | None:
        """Start a new conversation under `key`; None if there is nothing to leave.

        Queued turns are ended. A turn that is still running is named in `SessionSwitch.running_turn`: send
        `Reset` to the session that runs it.
        """
        new, now = turns.new_session_id(), self._clock()

        def work(db: Connection) -> SessionSwitch | None:
            active = _find_active(db, key)
            if active is None:
                return None
            switch = self._leave(db, key, new, now)
            turns.insert_session(db, new, active.address, now)
            _delete_if_empty(db, switch.old)
            return switch

        return await self._database.run(work, key=key)

    async def switch(self, address: Address, session: str) -> SessionSwitch:
        """Switch to another conversation; it is no longer active where it was before."""
        now = self._clock()
        return await self._database.run(lambda db: self._switch(db, address, session, now), key=address.key)

    def _switch(self, db: Connection, address: Address, session: str, now: float) -> SessionSwitch:
        key = address.key
        if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is None:
            raise SessionError(f'No conversation matches "{session}". /sessions lists them.')
        if db.execute("SELECT 1 FROM leases WHERE key = ? AND session_id = ?", (key, session)).fetchone():
            return SessionSwitch(session, session)
        busy = "SELECT 1 FROM turns WHERE session_id = ? AND key <> ? AND ending IS NULL AND held = 0"
        if db.execute(busy, (session, key)).fetchone():
            raise SessionError("that conversation has a running turn in another place; stop it there first")
        taken = "UPDATE leases SET session_id = NULL WHERE session_id = ? AND key <> ? RETURNING key"
        keys = [name for (name,) in db.execute(taken, (session, key)).fetchall()]
        switch = self._leave(db, key, session, now, moved_from=keys[0] if keys else "")
        # a `Reset` not delivered yet, from when it was left, must not end it now
        db.execute("DELETE FROM pending_ops WHERE kind = 'reset' AND session_id = ?", (session,))
        sql = """UPDATE sessions SET key = ?, platform = ?, address = ?, chat = ?, user_id = ?, updated = ?
            WHERE id = ?"""
        db.execute(sql, (key, *turns.address_columns(address), now, session))
        message_queue.move_held(db, session, address)
        turns.set_current_session(db, key, session)
        _delete_if_empty(db, switch.old)
        return switch

    async def branch(self, key: str, title: str = "") -> SessionSwitch:
        """Switch to a branch that shares all finished turns without copying messages."""
        new, now, title = turns.new_session_id(), self._clock(), title.strip()

        def work(db: Connection) -> SessionSwitch:
            active = _find_active(db, key)
            if active is None:
                raise SessionError(_NO_FINISHED_TURN)
            branch_from_end(db, active.session, new, title, address=active.address, now=now)
            switch = self._leave(db, key, new, now)
            turns.set_current_session(db, key, new)
            return switch

        return await self._database.run(work, key=key)

    def _leave(self, db: Connection, key: str, new: str, now: float, *, moved_from: str = "") -> SessionSwitch:
        """End the queued turns of the key; a turn that a running process executes is ended by that process."""
        lease = db.execute("SELECT session_id, holder FROM leases WHERE key = ?", (key,)).fetchone()
        old, holder = lease or (None, None)
        sql = "SELECT number, id, attempts FROM turns WHERE key = ? AND ending IS NULL ORDER BY held, number"
        queued = db.execute(sql, (key,)).fetchall()
        running = ""
        if queued and queued[0][2] and self._is_alive(holder):
            number, running, _ = queued.pop(0)
            if _is_answered(db, number):
                running = ""  # only its ending is missing
        sql = "UPDATE turns SET ending = 'stopped', detail = 'reset', ended = ? WHERE number = ?"
        for number, _, _ in queued:
            db.execute(sql, (now, number))
            db.execute("DELETE FROM tool_calls WHERE turn_number = ?", (number,))
        return SessionSwitch(old or "", new, tuple(id for _, id, _ in queued), running, moved_from)

    async def undo(self, key: str, count: int = 1, *, all_or_none: bool = False) -> tuple[UndoneTurn, ...]:
        """Hide the last started turns from the model, latest first, with the notices after them.

        `all_or_none`: raise `SessionError` if there are fewer than `count`, unless there is none.
        """

        def work(db: Connection) -> tuple[UndoneTurn, ...]:
            active = _find_active(db, key)
            if active is None:
                return ()
            found, messages, after = list[StartedTurn](), 0, 0
            for turn in history.started_turns(db, active.session):
                if messages >= max(count, 0):
                    after = turn[0]
                    break
                found.append(turn)
                messages += not _is_kept(turn)
            if all_or_none and 0 < messages < count:
                raise SessionError(f"Only {messages} turn{'' if messages == 1 else 's'} can be undone.")
            step = (_next_undo_step(db, active.session), after)
            undone = [(turn, _undo_turn(db, key, active.session, turn, step)) for turn in found if messages]
            return tuple(each for turn, each in undone if not _is_kept(turn))

        return await self._database.run(work, key=key)

    async def list_turns(self, key: str) -> tuple[UndoneTurn, ...]:
        """The turns that `undo` can undo, latest first."""

        def work(db: Connection) -> tuple[UndoneTurn, ...]:
            active = _find_active(db, key)
            started = history.started_turns(db, active.session) if active is not None else ()
            return tuple(_to_undone(turn) for turn in started if not _is_kept(turn))

        return await self._database.read(work)

    async def count_turns_since(self, key: str, turn: str) -> int:
        """How many turns `undo` undoes if this one is the last of them; 0 if it is not part of the conversation."""

        def work(db: Connection) -> int:
            active, messages = _find_active(db, key), 0
            for started in history.started_turns(db, active.session) if active is not None else ():
                messages += not _is_kept(started)
                if started[1] == turn:
                    return messages
            return 0

        return await self._database.read(work)

    async def redo(self, key: str) -> tuple[str, ...]:
        """Bring back the turns of the last undo; their messages, oldest first. None if one was started since."""

        def work(db: Connection) -> tuple[str, ...]:
            active = _find_active(db, key)
            if active is None:
                return ()
            started = history.started_turns(db, active.session)
            last = next((turn[0] for turn in started if not _is_kept(turn)), 0)
            sql = """SELECT turn_number, inbound, ending FROM undone_turns JOIN turns ON number = turn_number
                WHERE undone_turns.session_id = :session AND step > 0 AND step =
                (SELECT max(step) FROM undone_turns WHERE session_id = :session) ORDER BY turn_number"""
            rows = db.execute(sql, {"session": active.session}).fetchall()
            if any(number < last or ending is None for number, _, ending in rows):
                return ()
            for number, _, _ in rows:
                sql = "DELETE FROM undone_turns WHERE session_id = ? AND turn_number = ?"
                db.execute(sql, (active.session, number))
            messages = (Decoders.inbound.decode(inbound) for _, inbound, _ in rows)
            return tuple(each.text for each in messages if each.notice != "kept")

        return await self._database.run(work, key=key)

    async def last_ending(self, key: str) -> str:
        """How the last visible turn ended; empty if there is none or it has not ended."""

        def work(db: Connection) -> str:
            active = _find_active(db, key)
            started = () if active is None else history.started_turns(db, active.session, silent=True)
            number = next((turn[0] for turn in started if not _is_kept(turn)), 0)
            row = db.execute("SELECT coalesce(ending, '') FROM turns WHERE number = ?", (number,)).fetchone()
            return "" if row is None else str(row[0])

        return await self._database.read(work)

    async def retry(self, key: str) -> RetriedTurn | None:
        # for the ids of the messages that are accepted again, since an id is accepted only once
        """Hide the last turn and accept its message again, with those that were steered into it."""
        prefix, now = f"retry:{os.urandom(8).hex()}", self._clock()

        def work(db: Connection) -> RetriedTurn | None:
            active = _find_active(db, key)
            started = iter(()) if active is None else history.started_turns(db, active.session, silent=True)
            last, before = next(started, None), next(started, None)
            if last is None or active is None:
                return None
            number, id, inbound, _ = last
            steered = """SELECT inbound FROM turns WHERE session_id = (SELECT session_id FROM turns WHERE number = ?)
                AND ending = 'steered' AND detail = ? ORDER BY number"""
            texts = [inbound, *(text for (text,) in db.execute(steered, (number, id)))]
            step = (_next_undo_step(db, active.session), 0 if before is None else before[0])
            undone = _undo_turn(db, key, active.session, last, step)
            ids = []
            for n, text in enumerate(texts):
                copy = structs.replace(Decoders.inbound.decode(text), id=f"{prefix}:{n}", address=active.address)
                row = turns.make_turn_row(copy, now)
                turns.insert_turn(db, row, active.session, "steer" if n else "queue")
                ids.append(row.turn)
            return RetriedTurn(undone, ids[0], tuple(ids[1:]))

        return await self._database.run(work, key=key)

    async def show_version(self, key: str, turn: str) -> None:
        """Bring back `turn`, which was undone, with those undone together with it, and undo what is in their place.

        Raises `SessionError` if it cannot be brought back, or while a turn is running or queued.
        """

        def work(db: Connection) -> None:
            active = _find_active(db, key)
            sql = """SELECT step, after_turn FROM undone_turns JOIN turns ON number = turn_number
                WHERE undone_turns.session_id = ? AND turns.id = ? AND step > 0 AND after_turn IS NOT NULL"""
            found = None if active is None else db.execute(sql, (active.session, turn)).fetchone()
            if found is None or active is None:
                raise SessionError("There is no such version of this message.")
            if turns.list_unfinished(db, key):
                raise SessionError("Wait until the running turn ends, or stop it.")
            step, after = found
            place = (_next_undo_step(db, active.session), after)
            for each in [each for each in history.started_turns(db, active.session, silent=True) if each[0] > after]:
                _undo_turn(db, key, active.session, each, place)
            db.execute("DELETE FROM undone_turns WHERE session_id = ? AND step = ?", (active.session, step))

        await self._database.run(work, key=key)

    async def set_title_if_empty(self, session: str, title: str) -> bool:
        """False if the session has a title already, or does not exist."""
        sql = "UPDATE sessions SET title = ? WHERE id = ? AND title = ''"
        return bool(await self._database.execute(sql, clean_text(title), session))


def session_title(db: Connection, session: str) -> str:
    """The title that was set; else the first words of the first message."""
    sql = """SELECT title, (SELECT substr(text, 1, 200) FROM turns
        WHERE session_id = sessions.id ORDER BY number LIMIT 1) FROM sessions WHERE id = ?"""
    title, text = db.execute(sql, (session,)).fetchone()
    return title or export.title_from_text(text)


def _find_active(db: Connection, key: str) -> ActiveSession | None:
    sql = """SELECT id, address, title, model, busy_mode, created, coalesce(parent_id, ''), permission_mode, effort
        FROM sessions WHERE id = (SELECT session_id FROM leases WHERE key = ?)"""
    row = db.execute(sql, (key,)).fetchone()
    return None if row is None else ActiveSession(row[0], Decoders.address.decode(row[1]), *row[2:])


def _is_answered(db: Connection, turn: int) -> bool:
    """True if the last message of the turn is an answer that calls no tool."""
    sql = "SELECT number, message FROM messages WHERE turn_number = ? ORDER BY number DESC LIMIT 1"
    row = db.execute(sql, (turn,)).fetchone()
    last = None if row is None else history.decode_message(*row)
    return last is not None and last.role == "assistant" and not last.calls


def branch_from_end(db: Connection, old: str, new: str, title: str, *, address: Address, now: float) -> None:
    """Create the session `new` at `address` with all finished turns of `old`; it is not active yet."""
    sql = """SELECT (SELECT max(number) FROM turns WHERE session_id = sessions.id AND ending IS NOT NULL),
        EXISTS (SELECT 1 FROM session_ancestors WHERE session_id = sessions.id) FROM sessions WHERE id = ?"""
    last_turn, inherits = db.execute(sql, (old,)).fetchone() or (None, 0)
    if last_turn is None and not inherits:
        raise SessionError(_NO_FINISHED_TURN)
    insert_branch(db, (old, last_turn), new, title, address=address, now=now)


def branch_at_turn(
    db: Connection, source: tuple[str, int], new: str, title: str, *, address: Address, now: float
) -> None:
    """Create the session `new` at `address` with the history of another one up to a turn, which may be one that it
    shares with its own ancestors. Raises `SessionError` if that turn has not ended."""
    old, turn = source
    owner, ending = db.execute("SELECT session_id, ending FROM turns WHERE number = ?", (turn,)).fetchone()
    if ending is None:
        raise SessionError("this run has not ended yet; fork from a message before it, or stop it first")
    insert_branch(db, (old, turn if owner == old else None), new, title, address=address, now=now)
    if owner != old:  # cut off what the ancestors added after that turn
        sql = "DELETE FROM session_ancestors WHERE session_id = ? AND last_turn > ? AND ancestor_id <> ?"
        db.execute(sql, (new, turn, owner))
        db.execute(
            "UPDATE session_ancestors SET last_turn = ? WHERE session_id = ? AND ancestor_id = ?", (turn, new, owner)
        )


def insert_branch(
    db: Connection, source: tuple[str, int | None], new: str, title: str, *, address: Address, now: float
) -> None:
    """Create the session `new` with the history of another one up to a turn; None: only what that one shares.

    No message is copied. Unfinished turns are not shared.
    """
    old, last_turn = source
    if not title:
        (count,) = db.execute("SELECT count(*) FROM sessions WHERE parent_id = ?", (old,)).fetchone()
        title = f"{session_title(db, old)} (branch {count + 1})".strip()
    sql = """INSERT INTO sessions
        (id, key, platform, address, chat, user_id, title, created, updated, parent_id, model, busy_mode,
            permission_mode, workdir, tools_off)
        SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, id, model, busy_mode, permission_mode, workdir, tools_off
            FROM sessions WHERE id = ?"""
    db.execute(sql, (new, address.key, *turns.address_columns(address), clean_text(title), now, now, old))
    sql = "INSERT INTO session_ancestors SELECT ?, ancestor_id, last_turn FROM session_ancestors WHERE session_id = ?"
    db.execute(sql, (new, old))
    if last_turn is not None:
        db.execute("INSERT INTO session_ancestors VALUES (?, ?, ?)", (new, old, last_turn))
    sql = """INSERT INTO undone_turns (session_id, turn_number)
        SELECT ?, turn_number FROM undone_turns WHERE session_id = ?
        UNION SELECT ?, number FROM turns WHERE session_id = ? AND ending IS NULL AND number <= ?"""
    db.execute(sql, (new, old, new, old, last_turn or 0))


def _delete_if_empty(db: Connection, session: str) -> None:
    """Delete a conversation without a title, a turn or a branch."""
    sql = """DELETE FROM sessions WHERE id = :id AND title = ''
        AND NOT EXISTS (SELECT 1 FROM turns WHERE session_id = :id)
        AND NOT EXISTS (SELECT 1 FROM session_ancestors WHERE :id IN (session_id, ancestor_id))"""
    db.execute(sql, {"id": session})


def _is_kept(turn: StartedTurn) -> bool:
    """True for a notice that is recorded and not answered."""
    return Decoders.inbound.decode(turn[2]).notice == "kept"


def _next_undo_step(db: Connection, session: str) -> int:
    sql = "SELECT 1 + coalesce(max(step), 0) FROM undone_turns WHERE session_id = ?"
    return int(db.execute(sql, (session,)).fetchone()[0])


def _undo_turn(db: Connection, key: str, session: str, turn: StartedTurn, step: tuple[int, int]) -> UndoneTurn:
    """Hide a turn of `history.started_turns`; the caller also sends `Stop` if it is running. `step`: the number that
    those undone together share, and the turn before them."""
    number, id, _, unfinished = turn
    sql = "INSERT INTO undone_turns (session_id, turn_number, step, after_turn) VALUES (?, ?, ?, ?)"
    db.execute(sql, (session, number, *step))
    if unfinished:  # for a process that resumes it after a crash
        stop = Stop("user_stop", "session_interrupt", id)
        db.execute(turns.INSERT_OP, turns.make_op_row(key, stop))
    return _to_undone(turn)


def _to_undone(turn: StartedTurn) -> UndoneTurn:
    _, id, inbound, unfinished = turn
    return UndoneTurn(id, Decoders.inbound.decode(inbound).text, unfinished)


class TodoStore(SqlRows):
    async def read(self, session: str) -> str:
        """The list as it was written, for a branch without one that of its parent; empty if there is none."""
        sql = """SELECT items FROM todos WHERE session_id = ?1 UNION ALL SELECT items FROM todos
            WHERE session_id = (SELECT parent_id FROM sessions WHERE id = ?1) LIMIT 1"""
        row = await self._database.fetch_one(sql, session)
        return "" if row is None else str(row[0])

    async def write(self, session: str, items: str) -> None:
        """Replace the list."""
        await self._database.execute("INSERT OR REPLACE INTO todos VALUES (?, ?, ?)", session, items, self._clock())


class ToolChoiceStore(SqlRows):
    """The tools and groups that a person switched off in a conversation."""

    async def read(self, session: str) -> tuple[str, ...]:
        row = await self._database.fetch_one("SELECT tools_off FROM sessions WHERE id = ?", session)
        return tuple(row[0].split()) if row else ()

    async def write(self, session: str, off: Iterable[str]) -> None:
        """Replace them."""
        sql = "UPDATE sessions SET tools_off = ? WHERE id = ?"
        await self._database.execute(sql, clean_text(" ".join(off)), session)


class SkillChoiceStore(SqlRows):
    """The skills that a person switched off in a conversation."""

    async def read(self, session: str) -> tuple[str, ...]:
        row = await self._database.fetch_one("SELECT skills_off FROM sessions WHERE id = ?", session)
        return tuple(row[0].split()) if row else ()

    async def write(self, session: str, off: Iterable[str]) -> None:
        """Replace them."""
        sql = "UPDATE sessions SET skills_off = ? WHERE id = ?"
        await self._database.execute(sql, clean_text(" ".join(off)), session)


_SECTION = "SELECT text FROM prompt_sections WHERE session_id = ? AND section = ?"


class PromptSectionStore(SqlRows):
    """Sections of the system prompt of a conversation, which keep their first text."""

    async def read(self, session: str, section: str) -> str | None:
        row = await self._database.fetch_one(_SECTION, session, section)
        return row[0] if row else None

    async def keep(self, session: str, section: str, text: str) -> str:
        """Store the text unless there is one already; returns the stored one."""
        sql = "INSERT OR IGNORE INTO prompt_sections (session_id, section, text, created) VALUES (?, ?, ?, ?)"
        values = (session, section, clean_text(text), self._clock())

        def work(db: Connection) -> str:
            db.execute(sql, values)
            row = db.execute(_SECTION, (session, section)).fetchone()
            return row[0] if row else ""

        # without a sync: the row is on disk before the first message that follows it
        return await self._database.run(work, sync=False)

    async def forget(self, session: str, section: str) -> None:
        """The next turn makes it again."""
        sql = "DELETE FROM prompt_sections WHERE session_id = ? AND section = ?"
        await self._database.execute(sql, session, section)
