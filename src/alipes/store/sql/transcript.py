"""Pages of the messages of a conversation, by their numbers: before, after or around one of them.

These are the recorded messages, also those that a summary replaces for the model; undone turns are left out. A page
reads its own rows only.
"""

from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from alipes.kernel.errors import SessionError
from alipes.kernel.messages import Message
from alipes.kernel.turns import Ending, Inbound, Usage
from alipes.store.sql import history
from alipes.store.sql.archive import sum_usage
from alipes.store.sql.connection import Connection
from alipes.store.sql.rows import Decoders, SqlRows, clean_text, usage_from_row


class PageQuery(Struct, frozen=True):
    """Which messages: the newest ones, or those before, after or around a number."""

    limit: int
    before: int = 0
    after: int = 0
    around: int = 0


class TranscriptMessage(Struct, frozen=True):
    number: int
    turn: str
    message: Message
    model: str
    created: float
    usage: Usage | None
    place: int = 0
    """Its place among the messages of its turn, from 1."""


class TranscriptTurn(Struct, frozen=True):
    """The turn that a message belongs to."""

    id: str
    inbound: Inbound
    ending: Ending | None
    detail: str
    attempts: int
    created: float
    ended: float | None
    held: bool
    usage: Usage | None
    steered: tuple[Inbound, ...] = ()
    """The messages that were steered into it, in order."""
    versions: tuple[str, ...] = ()
    """All turns that were in its place, itself included, in order; empty if there is only this one."""


class TranscriptPage(Struct, frozen=True):
    messages: tuple[TranscriptMessage, ...]
    turns: dict[str, TranscriptTurn]
    """By id."""
    calls: TranscriptMessage | None
    """The message before a page that starts with results: it has their calls."""
    total: int
    more_before: bool
    more_after: bool


_NOT_UNDONE = "turn_number NOT IN (SELECT turn_number FROM undone_turns WHERE session_id = :session)"
_COLUMNS = "number, turn_number, message, model, created, input, output, cached, cache_write, reasoning, cost"
_TURN_COLUMNS = "number, id, inbound, ending, detail, attempts, created, ended, held"
Side: TypeAlias = Literal["before", "after"]


class TranscriptStore(SqlRows):
    async def page(self, session: str, query: PageQuery) -> TranscriptPage:
        """The messages in order. A number that is not in the conversation is a position in it like any other."""
        return await self._database.read_long(lambda db: _Reader(db, session).page(query))

    async def message(self, session: str, number: int) -> Message:
        """One message. Raises `SessionError` if the conversation does not have it, or it was undone."""

        def work(db: Connection) -> Message:
            found = _Reader(db, session).rows("before", number + 1, 1)
            if not found or found[0][0] != number:
                raise SessionError(f"This conversation has no message {number}.")
            return history.decode_message(number, found[0][2])

        return await self._database.read_long(work)

    async def last_inbound(self, session: str) -> Inbound | None:
        """The last message of the conversation that its own place sent; None if there is none."""
        sql = """SELECT inbound FROM turns WHERE session_id = ? AND notice = ''
            AND via = '' ORDER BY number DESC LIMIT 1"""
        row = await self._database.fetch_one(sql, clean_text(session))
        return None if row is None else Decoders.inbound.decode(row[0])

    async def turn_of(self, session: str, number: int) -> int:
        """The number of the turn of a message. Raises `SessionError`."""

        def work(db: Connection) -> int:
            found = _Reader(db, session).rows("before", number + 1, 1)
            if not found or found[0][0] != number:
                raise SessionError(f"This conversation has no message {number}.")
            return int(found[0][1])

        return await self._database.read_long(work)


class _Reader:
    """Reads the messages that a conversation consists of: its own, and those that it shares as a branch."""

    def __init__(self, db: Connection, session: str) -> None:
        self._db, self._session = db, clean_text(session)
        self._parts = history.list_ancestors(db, self._session)

    def page(self, query: PageQuery) -> TranscriptPage:
        limit = query.limit
        if query.after:
            rows = self.rows("after", query.after, limit + 1)
            more_after, rows = len(rows) > limit, rows[:limit]
            more_before = bool(self.rows("before", query.after + 1, 1))
        elif query.around:
            earlier = self.rows("before", query.around, limit // 2 + 1)
            later = self.rows("after", query.around - 1, limit - limit // 2 + 1)
            more_before, more_after = len(earlier) > limit // 2, len(later) > limit - limit // 2
            rows = [*earlier[len(earlier) - min(len(earlier), limit // 2) :], *later[: limit - limit // 2]]
        else:
            rows = self.rows("before", query.before or history.NO_LIMIT, limit + 1)
            more_before, rows = len(rows) > limit, rows[-limit:]
            more_after = bool(query.before and self.rows("after", query.before - 1, 1))
        return self._describe(rows, more_before=more_before, more_after=more_after)

    def rows(self, side: Side, number: int, limit: int) -> list[tuple[Any, ...]]:
        """At most `limit` rows next to a number, which is not one of them; in order."""
        compare, order = ("<", "DESC") if side == "before" else (">", "ASC")
        sql = f"""SELECT {_COLUMNS} FROM messages WHERE session_id = :part AND number {compare} :number
            AND turn_number <= :last_turn AND {_NOT_UNDONE} ORDER BY number {order} LIMIT :limit"""
        found: list[tuple[Any, ...]] = []
        for part, last_turn in self._parts if side == "after" else reversed(self._parts):
            names = {"part": part, "number": number, "last_turn": last_turn, "session": self._session}
            found += self._db.execute(sql, {**names, "limit": limit - len(found)}).fetchall()
            if len(found) == limit:
                break
        return found if side == "after" else found[::-1]

    def _describe(self, rows: list[tuple[Any, ...]], *, more_before: bool, more_after: bool) -> TranscriptPage:
        turns = {number: self._turn(number) for number in {row[1] for row in rows}}
        places = {number: self._count_before(number, rows) for number in turns}
        messages: tuple[TranscriptMessage, ...] = ()
        for row in rows:
            places[row[1]] += 1
            messages += (_to_message(row, turns[row[1]].id, places[row[1]]),)
        for row, each in zip(rows, messages, strict=True):
            turn = turns[row[1]]
            if each.message.role == "user" and not turn.steered and each.message != turn.inbound.message:
                turns[row[1]] = structs.replace(turn, steered=self._steered(row[1], turn.id))
        calls: TranscriptMessage | None = None
        if messages and messages[0].message.role == "tool":
            sql = f"SELECT {_COLUMNS} FROM messages WHERE turn_number = ? AND number < ? ORDER BY number DESC LIMIT 1"
            before = self._db.execute(sql, (rows[0][1], rows[0][0])).fetchone()
            calls = None if before is None else _to_message(before, messages[0].turn)
        for number, versions in self._versions().items():
            if number in turns:
                turns[number] = structs.replace(turns[number], versions=versions)
        by_id = {turn.id: turn for turn in turns.values()}
        return TranscriptPage(messages, by_id, calls, self._count(), more_before, more_after)

    def _versions(self) -> dict[int, tuple[str, ...]]:
        """By number, the turns that others were in the place of, with the ids of all that were."""
        sql = """SELECT after_turn, min(turn_number) FROM undone_turns
            WHERE session_id = :session AND step > 0 AND after_turn IS NOT NULL
            AND after_turn NOT IN (SELECT turn_number FROM undone_turns WHERE session_id = :session)
            GROUP BY after_turn, step"""
        undone = dict[int, list[int]]()
        for after, first in self._db.execute(sql, {"session": self._session}).fetchall():
            undone.setdefault(after, []).append(first)
        found = dict[int, tuple[str, ...]]()
        shown = (
            f"""SELECT min(number) FROM turns WHERE session_id = ? AND number > ?
            AND number {history.NOT_UNDONE} AND {history.HAS_STARTED}"""
            if undone
            else ""
        )
        for after, numbers in undone.items():
            (number,) = self._db.execute(shown, (self._session, after, self._session)).fetchone()
            if number is not None:
                ids = [
                    self._db.execute("SELECT id FROM turns WHERE number = ?", (each,)).fetchone()[0]
                    for each in sorted([*numbers, number])
                ]
                found[number] = tuple(ids)
        return found

    def _count_before(self, turn: int, rows: list[tuple[Any, ...]]) -> int:
        """How many messages of the turn come before those in the page."""
        first = next(row[0] for row in rows if row[1] == turn)
        sql = "SELECT count(*) FROM messages WHERE turn_number = ? AND number < ?"
        return int(self._db.execute(sql, (turn, first)).fetchone()[0])

    def _turn(self, number: int) -> TranscriptTurn:
        sql = f"SELECT {_TURN_COLUMNS} FROM turns WHERE number = ?"
        _, id, text, ending, detail, attempts, created, ended, held = self._db.execute(sql, (number,)).fetchone()
        (spent,) = sum_usage(self._db, "''", turn=id)
        return TranscriptTurn(
            id,
            Decoders.inbound.decode(text),
            ending,
            detail,
            attempts,
            created,
            ended,
            bool(held),
            spent.usage if spent.calls else None,
        )

    def _steered(self, number: int, id: str) -> tuple[Inbound, ...]:
        sql = """SELECT inbound FROM turns WHERE session_id = (SELECT session_id FROM turns WHERE number = :number)
            AND number > :number AND ending = 'steered' AND detail = :id ORDER BY number"""
        found = self._db.execute(sql, {"number": number, "id": id})
        return tuple(Decoders.inbound.decode(inbound) for (inbound,) in found)

    def _count(self) -> int:
        """How many messages the conversation has; from the index alone, unless it is a branch."""
        *shared, (own, _) = self._parts
        (count,) = self._db.execute("SELECT count(*) FROM messages WHERE session_id = ?", (own,)).fetchone()
        undone = """SELECT count(*) FROM undone_turns CROSS JOIN messages
            WHERE messages.turn_number = undone_turns.turn_number
            AND undone_turns.session_id = ? AND messages.session_id = ?"""
        count -= self._db.execute(undone, (own, own)).fetchone()[0]
        sql = f"""SELECT count(*) FROM messages WHERE session_id = :part AND turn_number <= :last_turn
            AND {_NOT_UNDONE}"""
        for part, last_turn in shared:
            names = {"part": part, "last_turn": last_turn, "session": self._session}
            count += self._db.execute(sql, names).fetchone()[0]
        return int(count)


def _to_message(row: tuple[Any, ...], turn: str, place: int = 0) -> TranscriptMessage:
    number, _, text, model, created, *counts = row
    usage = None if counts[0] is None else usage_from_row(tuple(counts))
    return TranscriptMessage(number, turn, history.decode_message(number, text), model, created, usage, place)
