"""Writes imported conversations into the tables of the store, each in one transaction, and takes them back."""

import hashlib
from collections.abc import Iterable

from msgspec import Struct, structs

from alipes.features.importer.records import PastUsage
from alipes.features.importer.store.ledger import LedgerEntry, insert_entry, remove_entry
from alipes.kernel.messages import Json
from alipes.kernel.turns import Address, Inbound
from alipes.store.search import cleanup, index
from alipes.store.sql import history, turns
from alipes.store.sql.api_history import IMPORTED
from alipes.store.sql.connection import Connection
from alipes.store.sql.history import MessageRow
from alipes.store.sql.rows import SqlRows, clean_text, to_json, usage_columns

_TURN = f"""INSERT INTO turns (id, key, session_id, platform, inbound_id, inbound, ending, detail,
    created, started, ended, {turns.INBOUND_COLUMNS})
    VALUES (?, ?, ?, ?, ?, ?, 'answered', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""
_SUMMARY = """INSERT INTO summaries
    (session_id, last_message, message_count, last_trimmed, max_chars, newest_message, text, created)
    VALUES (?, ?, ?, 0, 0, ?, ?, ?)"""
_USAGE = """INSERT INTO auxiliary_calls
    (turn_id, session_id, task, tool, model, input, output, cached, cache_write, reasoning, cost, created)
    VALUES ('', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_STATE = """SELECT title, model, archived, pinned, folder, parent_id,
    (SELECT count(*) FROM turns WHERE session_id = sessions.id), (SELECT count(*) FROM undone_turns
        WHERE session_id = sessions.id), (SELECT count(*) FROM messages WHERE session_id = sessions.id)
    FROM sessions WHERE id = ?"""


class TurnRows(Struct, frozen=True):
    """A turn that ran there."""

    id: str
    inbound: Inbound
    messages: tuple[tuple[MessageRow, float], ...]
    """With their times."""
    created: float
    undone: bool = False
    compacted: bool = False


class ConversationRows(Struct, frozen=True, kw_only=True):
    """What is written for one conversation."""

    id: str
    address: Address
    turns: tuple[TurnRows, ...]
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    model: str = ""
    workdir: str = ""
    archived: bool = False
    parent: str = ""
    summary: str = ""
    usage: tuple[PastUsage, ...] = ()
    takes_seat: bool = True
    """It becomes the active conversation of its address, instead of another one too."""


class ConversationState(Struct, frozen=True):
    """A conversation as it is here now."""

    title: str
    model: str
    archived: int
    pinned: int
    folder: str
    parent: str | None
    turns: int
    undone: int
    messages: int


class ConversationStore(SqlRows):
    async def active(self, key: str) -> str:
        """The active conversation of an address; empty if there is none."""
        row = await self._database.fetch_one("SELECT session_id FROM leases WHERE key = ?", key)
        return str(row[0] or "") if row else ""

    async def state(self, id: str) -> ConversationState | None:
        row = await self._database.fetch_one(_STATE, id)
        return None if row is None else ConversationState(*row)

    async def updated(self, id: str) -> float:
        row = await self._database.fetch_one("SELECT updated FROM sessions WHERE id = ?", id)
        return float(row[0]) if row else 0.0

    async def has_branches(self, id: str) -> bool:
        """True if another conversation shares its turns."""
        sql = "SELECT 1 FROM session_ancestors WHERE ancestor_id = ? LIMIT 1"
        return await self._database.fetch_one(sql, id) is not None

    async def hash_content(self, id: str, first_turn: int, count: int) -> str:
        """Of the messages from a turn on, `count` at most."""
        sql = "SELECT message FROM messages WHERE session_id = ? AND turn_number >= ? ORDER BY number LIMIT ?"
        return hash_texts(text for (text,) in await self._database.fetch_all(sql, id, first_turn, count))

    async def insert(self, rows: ConversationRows, entry: LedgerEntry) -> None:
        """Add the conversation and its entry, which gets the details that undo needs."""

        def work(db: Connection) -> None:
            details = _insert_session(db, rows)
            details["first_turn"] = _insert_turns(db, rows)
            for usage in rows.usage:
                _insert_usage(db, rows.id, usage)
            insert_entry(db, _with_details(db, entry, rows, details))

        await self._database.run(work, sync=False)

    async def append(self, rows: ConversationRows, entry: LedgerEntry) -> None:
        """Add turns to a conversation that was imported before. `rows.usage`: instead of what was added before."""

        def work(db: Connection) -> None:
            first = _insert_turns(db, rows)
            db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (rows.updated, rows.id))
            insert_entry(db, _with_details(db, entry, rows, {"first_turn": first}))

        await self._database.run(work, sync=False)

    async def remove(self, entry: LedgerEntry) -> None:
        """Take back what `insert` or `append` did."""

        def work(db: Connection) -> None:
            if entry.action == "continued":
                _remove_turns(db, entry.target, entry.details.get("first_turn"))
                db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (entry.details["updated"], entry.target))
            else:
                _restore_seat(db, entry)
                _remove_turns(db, entry.target, 0)
                db.execute("DELETE FROM auxiliary_calls WHERE session_id = ?", (entry.target,))
                db.execute("DELETE FROM sessions WHERE id = ?", (entry.target,))
            for table in ("usage_sums", "session_usage_sums"):
                db.execute(f"DELETE FROM {table} WHERE calls = 0 AND input = 0 AND output = 0")
            cleanup.request_cleanup(db)
            remove_entry(db, entry)

        await self._database.run(work, sync=False)


def _insert_session(db: Connection, rows: ConversationRows) -> dict[str, Json]:
    """Returns what was active at its address before."""
    sql = """INSERT INTO sessions (id, key, platform, address, chat, user_id, title, created, updated, parent_id, model,
        workdir, archived) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, (SELECT id FROM sessions WHERE id = ?), ?, ?, ?)"""
    key = rows.address.key
    place = (rows.id, key, *turns.address_columns(rows.address), clean_text(rows.title), rows.created, rows.updated)
    db.execute(sql, (*place, rows.parent, clean_text(rows.model), clean_text(rows.workdir), int(rows.archived)))
    before = db.execute("SELECT session_id FROM leases WHERE key = ?", (key,)).fetchone()
    if not rows.takes_seat:
        return {}
    turns.set_current_session(db, key, rows.id)
    return {"key": key, "had_seat": before is not None, "seat": before[0] if before else None}


def _restore_seat(db: Connection, entry: LedgerEntry) -> None:
    key, seat = entry.details.get("key"), entry.details.get("seat")
    if not key:
        return
    if entry.details.get("had_seat"):
        sql = """UPDATE leases SET session_id = (SELECT id FROM sessions WHERE id = ?)
            WHERE key = ? AND session_id = ?"""
        db.execute(sql, (seat, key, entry.target))
    else:
        db.execute("DELETE FROM leases WHERE key = ? AND session_id = ?", (key, entry.target))


def _insert_turns(db: Connection, rows: ConversationRows) -> int:
    """Returns the number of the first one."""
    first, visible, last_compacted, newest = 0, 0, 0, 0
    for turn in rows.turns:
        inbound, key = turn.inbound, rows.address.key
        ids = (turn.id, key, rows.id, rows.address.platform, clean_text(inbound.id))
        times = (turn.created, turn.created, turn.created)
        values = (*ids, to_json(inbound), IMPORTED, *times, *turns.inbound_columns(inbound))
        (number,) = db.execute(_TURN, values).fetchone()
        first = first or number
        for message, at in turn.messages:
            history.insert_message(db, number, rows.id, message, at)
        if turn.undone:
            db.execute("INSERT INTO undone_turns (session_id, turn_number) VALUES (?, ?)", (rows.id, number))
        elif turn.compacted:
            visible += len(turn.messages)
            last_compacted = number
    if rows.summary and last_compacted:
        (last,) = db.execute("SELECT max(number) FROM messages WHERE turn_number = ?", (last_compacted,)).fetchone()
        (newest,) = db.execute("SELECT max(number) FROM messages WHERE session_id = ?", (rows.id,)).fetchone()
        db.execute(_SUMMARY, (rows.id, last, visible, newest, clean_text(rows.summary), rows.updated))
    return int(first)


def _insert_usage(db: Connection, session: str, used: PastUsage) -> None:
    """A call of the task `imported`: it is in reports, and counts against no limit."""
    place = (session, IMPORTED, clean_text(used.task), clean_text(used.model))
    db.execute(_USAGE, (*place, *usage_columns(used.usage), used.at))


def _remove_turns(db: Connection, session: str, first: Json) -> None:
    found = "SELECT number FROM messages WHERE session_id = ? AND turn_number >= ?"
    numbers = [number for (number,) in db.execute(found, (session, first)).fetchall()]
    index.remove_parts(db, numbers)
    db.executemany("DELETE FROM messages WHERE number = ?", [(number,) for number in numbers])
    db.execute("DELETE FROM turns WHERE session_id = ? AND number >= ?", (session, first))


def _with_details(db: Connection, entry: LedgerEntry, rows: ConversationRows, details: dict[str, Json]) -> LedgerEntry:
    state = ConversationState(*db.execute(_STATE, (rows.id,)).fetchone())
    texts = [str(message[0][1]) for turn in rows.turns for message, _ in turn.messages]
    content: dict[str, Json] = {"content": hash_texts(texts), "count": len(texts)}
    return structs.replace(entry, details={**entry.details, **details, **content}, target_hash=hash_state(state))


def hash_state(state: ConversationState) -> str:
    return to_json(state)


def hash_texts(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]
