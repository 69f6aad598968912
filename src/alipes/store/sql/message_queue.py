"""The queued messages of a session key: held by a stop, released, dropped or taken back for editing."""

from typing import Literal

from msgspec import structs

from alipes.kernel.conversations import PendingTurn, StoppedQueue
from alipes.kernel.turns import Address
from alipes.store.sql import turns
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, clean_text, to_json

_QUEUED = "key = :key AND ending IS NULL AND attempts = 0"
"""Not started. A message that alipes only records is not held: it starts no work."""
_RECORDED_ONLY = "notice = 'kept'"
_RENUMBERED = ("undone_turns", "history_hashes", "responses")
"""Tables that may refer to a turn before it starts."""
Removal = Literal["dropped", "taken_back"]


def hold(db: Connection, key: str, turn: str = "") -> StoppedQueue:
    """Hold the messages behind the running turn, and return the turn to stop.

    With `turn`: only that one is to be stopped; if it is not the running one, nothing is held or returned.
    """
    unfinished = turns.list_unfinished(db, key)
    live = [each.id for each in unfinished if not each.held]
    held = tuple(each for each in unfinished if each.held)
    current = live[0] if live else ""
    if turn and turn != current:
        return StoppedQueue(held=held)
    sql = f"UPDATE turns SET held = 1 WHERE {_QUEUED} AND id <> :current AND NOT {_RECORDED_ONLY}"
    db.execute(sql, {"key": key, "current": current})
    return StoppedQueue(current, _held(db, key))


def release(db: Connection, key: str) -> tuple[PendingTurn, ...]:
    """Queue the held messages again, in order and behind the turns that were accepted meanwhile.

    The number of a turn says when it started, so each gets a new one.
    """
    released = _held(db, key)
    if released:
        db.execute("PRAGMA defer_foreign_keys = ON")
    for each in released:
        (number,) = db.execute("SELECT number FROM turns WHERE id = ?", (each.id,)).fetchone()
        (new,) = db.execute("SELECT max(number) + 1 FROM turns").fetchone()
        db.execute("UPDATE turns SET held = 0, number = ? WHERE number = ?", (new, number))
        for table in _RENUMBERED:
            db.execute(f"UPDATE {table} SET turn_number = ? WHERE turn_number = ?", (new, number))
    return released


def drop(db: Connection, key: str, turn: str, now: float) -> tuple[PendingTurn, ...]:
    """End the queued and held messages, or only `turn`; the running turn stays."""
    found = [each for each in _not_started(db, key) if turn in ("", each.id)]
    for each in found:
        _remove(db, each.id, "dropped", now)
    return tuple(found)


def take_back(db: Connection, key: str, now: float) -> PendingTurn | None:
    """End the newest message of a person that has not started."""
    sql = f"""SELECT id, inbound FROM turns WHERE {_QUEUED} AND notice = ''
        ORDER BY number DESC LIMIT 1"""
    row = db.execute(sql, {"key": key}).fetchone()
    if row is None:
        return None
    id, inbound = row
    found = next(each for each in turns.list_unfinished(db, key) if each.id == id)
    _remove(db, id, "taken_back", now)
    return structs.replace(found, attachments=Decoders.inbound.decode(inbound).attachments)


def move_held(db: Connection, session: str, address: Address) -> None:
    """Held messages stay with their conversation when it moves to another address."""
    found = "SELECT number, inbound FROM turns WHERE session_id = ? AND ending IS NULL AND held = 1"
    sql = "UPDATE turns SET key = ?, inbound = ?, user_id = ? WHERE number = ?"
    for number, text in db.execute(found, (session,)).fetchall():
        inbound = structs.replace(Decoders.inbound.decode(text), address=address)
        db.execute(sql, (address.key, to_json(inbound), clean_text(address.user), number))


def _held(db: Connection, key: str) -> tuple[PendingTurn, ...]:
    return tuple(each for each in turns.list_unfinished(db, key) if each.held)


def _not_started(db: Connection, key: str) -> list[PendingTurn]:
    sql = f"SELECT id FROM turns WHERE {_QUEUED} AND NOT {_RECORDED_ONLY}"
    ids = {id for (id,) in db.execute(sql, {"key": key})}
    return [each for each in turns.list_unfinished(db, key) if each.id in ids]


def _remove(db: Connection, turn: str, why: Removal, now: float) -> None:
    sql = "UPDATE turns SET ending = 'stopped', detail = ?, held = 0, ended = ? WHERE id = ?"
    db.execute(sql, (why, now, turn))
