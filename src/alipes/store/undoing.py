"""Taking back: turns hidden from the model, messages accepted anew. Nothing is deleted."""

import sqlite3
from itertools import islice

from msgspec import structs

from alipes.kernel.places import Retried, Undone
from alipes.kernel.turns import Address, Inbound, Stop
from alipes.store import admitting, lineage, rows


def undo(db: sqlite3.Connection, key: str, count: int) -> tuple[Undone, ...]:
    session, _ = _standing(db, key)
    turns = list(islice(lineage.begun(db, session), max(count, 0)))
    _hide(db, session, [number for number, *_ in turns])
    _stop(db, key, [id for _, id, _, unfinished in turns if unfinished])
    return tuple(_undone(id, inbound, unfinished) for _, id, inbound, unfinished in turns)


def retry(db: sqlite3.Connection, key: str, fresh: str, now: float) -> Retried | None:
    """`fresh`: what the ids of the messages accepted anew begin with, as none may come twice."""
    session, address = _standing(db, key)
    last = next(lineage.begun(db, session, silent=True), None)
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
        admitting.insert(db, entry, session, "queue" if entry is again[0] else "steer")
    ids = [entry.turn for entry in again]
    return Retried(_undone(id, inbound, unfinished), ids[0], tuple(ids[1:]))


def _standing(db: sqlite3.Connection, key: str) -> tuple[str, Address | None]:
    sql = "SELECT id, address FROM sessions WHERE id = (SELECT session FROM seats WHERE key = ?)"
    row = db.execute(sql, (key,)).fetchone()
    return ("", None) if row is None else (row[0], rows.addresses.decode(row[1]))


def _hide(db: sqlite3.Connection, session: str, numbers: list[int]) -> None:
    db.executemany("INSERT INTO hidden VALUES (?, ?)", [(session, number) for number in numbers])


def _stop(db: sqlite3.Connection, key: str, living: list[str]) -> None:
    """What lives of it is told as well; this is for who takes it up if that one dies before."""
    stops = [(key, rows.dump(Stop("user_stop", "session_interrupt", id))) for id in living]
    db.executemany("INSERT INTO controls (key, kind, op) VALUES (?, 'stop', ?)", stops)


def _undone(id: str, inbound: str, unfinished: bool) -> Undone:
    return Undone(id, rows.inbounds.decode(inbound).text, unfinished)


def _again(text: str, address: Address, id: str, now: float) -> admitting.Entry:
    inbound: Inbound = rows.inbounds.decode(text)
    return admitting.entry(structs.replace(inbound, id=id, address=address), now)
