"""Where a message goes whose sender brings the conversation along: on in ours, a branch of it, or a new one.

It takes the message in, in the same transaction, and runs nothing.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, structs

from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Message, Part, ToolResult
from alipes.kernel.turns import Address, Inbound, Said
from alipes.store import conversations, history, turn_rows
from alipes.store.database import codec
from alipes.store.database.database import Database

GIVEN = "as the caller told it"
"""The detail of turns that were never lived here."""
_SPOT = """
    SELECT turns.number, turns.id, turns.session, turns.ending, sessions.address, turns.inbound,
        NOT EXISTS (SELECT 1 FROM turns AS later WHERE later.session = turns.session
                    AND later.number > turns.number AND json_extract(later.inbound, '$.notice') IS NULL)
            AND EXISTS (SELECT 1 FROM seats WHERE seats.key = sessions.key AND seats.session = sessions.id)
    FROM turns JOIN sessions ON sessions.id = turns.session
    WHERE NOT EXISTS (SELECT 1 FROM hidden WHERE hidden.session = sessions.id AND turn = turns.number)"""


class Unfit(AlipesError):
    """What was sent does not follow on what it names; `code` is for programs."""

    def __init__(self, why: str, code: str) -> None:
        super().__init__(why)
        self.code = code


class Wish(Struct, frozen=True):
    """A message, and what it follows on."""

    inbound: Inbound
    """Its address is the one of a conversation that would have to be begun."""
    before: tuple[Message, ...] = ()
    """All that was said before, as its sender has it; every call in it is answered."""
    mark: bytes = b""
    """Of `before`, where an answer of ours may be its end."""
    after: str = ""
    """The turn it follows on, where its sender names it instead of telling what was said."""
    results: tuple[ToolResult, ...] = ()
    """What calls gave that were handed over in the turn before."""
    response: tuple[str, str] | None = None
    """The name under which the answer may be asked for, and what is told of the request then."""
    passing: bool = False
    """It is forgotten once it is answered."""


class Placed(Struct, frozen=True):
    turn: str
    session: str
    address: Address


class _Spot(Struct, frozen=True):
    """A turn that something may follow on."""

    number: int
    turn: str
    session: str
    unfinished: bool
    address: Address
    offered: frozenset[str]
    """The tools that its sender ran, if it was answered."""
    last: bool
    """Nobody said more since, and its conversation goes on where it was."""


class Seeding:
    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database, self._clock = database, clock

    async def place(self, wish: Wish) -> Placed:
        """Take it in; it waits until its session is woken. Raises `Unfit`."""
        fresh, turn, now = turn_rows.new_session(), os.urandom(8).hex(), self._clock()
        return await self._database.run(lambda db: _place(db, wish, fresh, turn, now))


def _place(db: sqlite3.Connection, wish: Wish, fresh: str, turn: str, now: float) -> Placed:
    spot = _named(db, wish.after) if wish.after else _marked(db, wish.mark)
    if spot is None:
        session, address = fresh, wish.inbound.address
        turn_rows.open_session(db, session, address, now)
        _tell(db, session, wish, _turns(wish.before, wish.results), now)
    elif spot.last and not wish.passing and _is_theirs(spot.address, wish.inbound.address):
        session, address = spot.session, spot.address
        _answer(db, spot, wish)
        db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (now, session))
    else:
        session, address = fresh, wish.inbound.address
        _branch(db, spot, session, address, now)
        if whole := _answered(db, spot, wish):
            db.execute("INSERT INTO hidden VALUES (?, ?)", (session, spot.number))
            _tell(db, session, wish, [whole], now)
    inbound = structs.replace(wish.inbound, address=address)
    entry = turn_rows.Entry(turn, fresh, inbound, codec.whole(inbound.id), codec.dump(inbound), now)
    if not turn_rows.unfinished(db, entry.key):  # a stop that found nothing to stop must not meet this one
        db.execute("DELETE FROM controls WHERE key = ? AND kind = 'stop'", (entry.key,))
    turn_rows.insert(db, entry, session, "queue")
    _promise(db, wish, turn, session)
    return Placed(turn, session, address)


def _named(db: sqlite3.Connection, turn: str) -> _Spot:
    row = db.execute(f"{_SPOT} AND turns.id = ?", (turn,)).fetchone()
    if row is None:
        raise Unfit("what it follows on is not there any more", "previous_response_not_found")
    spot = _spot(row)
    if spot.unfinished:
        raise Unfit("what it follows on is not answered yet; wait for it", "previous_response_unfinished")
    return spot


def _marked(db: sqlite3.Connection, mark: bytes) -> _Spot | None:
    sql = f"{_SPOT} AND turns.number IN (SELECT turn FROM answers WHERE mark = ?) ORDER BY 1 DESC LIMIT 1"
    row = db.execute(sql, (mark,)).fetchone() if mark else None
    return None if row is None else _spot(row)


def _spot(row: tuple[int, str, str, str | None, str, str, int]) -> _Spot:
    number, turn, session, ending, address, inbound, last = row
    offered = codec.inbounds.decode(inbound).offered if ending == "answered" else ()
    return _Spot(
        number=number,
        turn=turn,
        session=session,
        unfinished=ending is None,
        address=codec.addresses.decode(address),
        offered=frozenset(each.name for each in offered),
        last=bool(last),
    )


def _is_theirs(one: Address, other: Address) -> bool:
    return (one.platform, one.user) == (other.platform, other.user)


def _answer(db: sqlite3.Connection, spot: _Spot, wish: Wish) -> None:
    """Put the results where their calls were handed over."""
    if whole := _answered(db, spot, wish):
        last = "(SELECT max(number) FROM said WHERE turn = ?)"
        db.execute(f"UPDATE said SET message = ? WHERE number = {last}", (codec.dump(whole[-1]), spot.number))


def _answered(db: sqlite3.Connection, spot: _Spot, wish: Wish) -> tuple[Message, ...]:
    """What the turn said, with the results in it; nothing where it handed over no call. Raises `Unfit`."""
    sql = "SELECT message FROM said WHERE turn = ? ORDER BY number"
    said = tuple(codec.messages.decode(text) for (text,) in db.execute(sql, (spot.number,)))
    handed = _handed(said, spot.offered)
    results = {result.call_id: result for result in wish.results}
    if missing := [id for id in handed if id not in results]:
        raise Unfit(f"no tool output found for function call {', '.join(missing)}", "tool_output_missing")
    if stray := [id for id in results if id not in handed]:
        raise Unfit(f"no tool call found for function call output {', '.join(stray)}", "tool_call_missing")
    if not handed:
        return ()
    return (*said[:-1], Message("tool", tuple(_filled(said[-1].parts, results))))


def _handed(said: tuple[Message, ...], offered: frozenset[str]) -> list[str]:
    """The calls with which the turn ended: one that ends with results was not the model's to go on."""
    if not offered or not said or said[-1].role != "tool":
        return []
    calls = next((message.calls for message in reversed(said) if message.calls), ())
    return [call.id for call in calls if call.name in offered]


def _filled(parts: tuple[Part, ...], results: Mapping[str, ToolResult]) -> Iterator[Part]:
    for part in parts:
        yield results.get(part.call_id, part) if isinstance(part, ToolResult) else part


def _branch(db: sqlite3.Connection, spot: _Spot, session: str, address: Address, now: float) -> None:
    """A conversation that shares all up to the turn, without copying a message."""
    title = f"{conversations.title_of(db, spot.session)} (branch)"
    db.execute(
        "INSERT INTO sessions (id, key, platform, address, title, created, updated, parent, model, busy) "
        "SELECT ?, ?, ?, ?, ?, ?, ?, id, model, busy FROM sessions WHERE id = ?",
        (session, address.key, address.platform, codec.dump(address), title, now, now, spot.session),
    )
    shared = [(name, upto) for name, upto in history.line(db, spot.session) if name != spot.session]
    db.executemany(
        "INSERT INTO lineage VALUES (?, ?, ?)",
        [(session, name, upto) for name, upto in (*shared, (spot.session, spot.number))],
    )
    db.execute(
        "INSERT INTO hidden SELECT ?, turn FROM hidden WHERE session = ? "
        "UNION SELECT ?, number FROM turns WHERE session = ? AND ending IS NULL AND number <= ?",
        (session, spot.session, session, spot.session, spot.number),
    )
    turn_rows.seat(db, address.key, session)


def _turns(before: tuple[Message, ...], results: tuple[ToolResult, ...]) -> list[tuple[Message, ...]]:
    """What was said, apart by who began: each word of a person's begins a turn."""
    whole = (*before, Message("tool", results)) if results else before
    turns: list[list[Message]] = []
    for message in whole:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return [tuple(turn) for turn in turns]


def _tell(
    db: sqlite3.Connection, session: str, wish: Wish, turns: list[tuple[Message, ...]], now: float
) -> None:
    """Write down turns that were lived elsewhere."""
    sql = (
        "INSERT INTO turns (id, key, session, platform, inbound_id, inbound, ending, detail, "
        "created, begun, ended) VALUES (?, ?, ?, ?, ?, ?, 'answered', ?, ?, ?, ?)"
    )
    address = wish.inbound.address
    for place, messages in enumerate(turns):
        first = messages[0].text if messages[0].role == "user" else ""
        inbound = Inbound(f"{wish.inbound.id}:given:{place}", address, wish.inbound.sender, first)
        names = (os.urandom(8).hex(), address.key, session, address.platform, codec.whole(inbound.id))
        number = db.execute(sql, (*names, codec.dump(inbound), GIVEN, now, now, now)).lastrowid or 0
        for message in messages:
            turn_rows.say(db, number, session, turn_rows.utterance(Said(message)), now)


def _promise(db: sqlite3.Connection, wish: Wish, turn: str, session: str) -> None:
    if wish.passing:
        db.execute("INSERT OR IGNORE INTO passing VALUES (?)", (session,))
    if wish.response is not None:
        name, asked = wish.response
        db.execute(
            "INSERT INTO responses (id, turn, caller, asked) "
            "VALUES (?, (SELECT number FROM turns WHERE id = ?), ?, ?)",
            (name, turn, wish.inbound.sender, asked),
        )
