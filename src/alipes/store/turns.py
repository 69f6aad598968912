"""The turns of a home as rows of SQLite: accepted, claimed, recorded, finished. Nothing here runs a turn."""

import sqlite3
import time
from collections.abc import Awaitable, Callable

from msgspec import structs

from alipes.kernel.conversations import Admitted
from alipes.kernel.errors import Held
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.outbox import Outbound
from alipes.kernel.ports import Opening
from alipes.kernel.turns import Busy, Ending, Inbound, Op, Recorded, Said, ToolFinished, ToolStarted, Turn
from alipes.store import history, outbox, turn_rows
from alipes.store.database import codec
from alipes.store.database.database import Database
from alipes.store.peers.peers import Hosts

_DRAIN = """
    WITH unfinished AS (SELECT number, id FROM turns WHERE key = :key AND ending IS NULL)
    SELECT number, op FROM controls
    WHERE key = :key AND NOT (kind = 'stop' AND coalesce(json_extract(op, '$.turn'), '') IN
        (SELECT id FROM unfinished WHERE number > (SELECT min(number) FROM unfinished)))
    ORDER BY number"""
_COMPANY = """
    SELECT 1 FROM turns WHERE key = :key AND ending IS NULL AND number != :number
    UNION ALL SELECT 1 FROM controls WHERE key = :key LIMIT 1"""


class SqliteTurns:
    """`TurnStore` on one file; who is alive is asked of `hosts`, what time it is of `clock`.

    `before_claim` is awaited before each claim, so that whoever listens for us can be found first.
    """

    def __init__(
        self,
        database: Database,
        hosts: Hosts,
        *,
        clock: Callable[[], float] = time.time,
        before_claim: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._database, self._hosts = database, hosts
        self._clock, self._before_claim = clock, before_claim

    async def accept(self, inbound: Inbound) -> str | None:
        admitted = await self.admit(inbound)
        await self._database.kept()
        return None if admitted is None else admitted.turn

    def admit(
        self, inbound: Inbound, *, busy: Busy | None = None, usual: Busy = "queue"
    ) -> Awaitable[Admitted | None]:
        entry = turn_rows.entry(inbound, self._clock())
        return self._database.ask(lambda db: turn_rows.admit(db, entry, busy, usual), soon=True)

    async def next_turn(self, key: str, opening: Opening = lambda _turn: ()) -> Turn | None:
        if self._before_claim is not None:
            await self._before_claim()
        now = self._clock()

        def work(db: sqlite3.Connection) -> Turn | None:
            number = _one(db, "SELECT min(number) FROM turns WHERE key = ? AND ending IS NULL", key)
            if number is None:
                return None
            _refuse_if_held(db, key, self._hosts)
            (epoch,) = db.execute(
                "UPDATE seats SET holder = ?, epoch = epoch + 1 WHERE key = ? RETURNING epoch",
                (self._hosts.me, key),
            ).fetchone()
            db.execute(
                "UPDATE turns SET epoch = ?, attempts = attempts + 1, begun = coalesce(begun, ?) "
                "WHERE number = ?",
                (epoch, now, number),
            )
            turn = load(db, int(number))
            if not (fresh := opening(turn)):
                return turn
            for message in fresh:
                turn_rows.say(db, int(number), turn.session, turn_rows.utterance(Said(message)), now)
            return structs.replace(turn, said=(*turn.said, *fresh), fresh=fresh)

        # nothing is done before the turn writes again; and who dies here loses nothing but a number
        return await self._database.run(work, soon=True)

    async def record(self, turn: Turn, event: Recorded, *owed: Outbound) -> None:
        match event:
            case Said():
                await self._say(turn, event, owed)
            case ToolStarted(call):
                await self._act(turn, call.id, None)
            case ToolFinished(call, result):
                await self._act(turn, call.id, codec.dump(result))

    async def _say(self, turn: Turn, said: Said, owed: tuple[Outbound, ...]) -> None:
        told, now, debts = turn_rows.utterance(said), self._clock(), [outbox.entry(each) for each in owed]
        anew = [codec.whole(call.id) for call in said.message.calls]

        def work(db: sqlite3.Connection) -> None:
            number, session = turn_rows.mine(db, turn)
            turn_rows.say(db, number, session, told, now)
            outbox.owe(db, debts, now)
            if anew:  # some models number their calls anew at each step: a call just said has not begun
                db.executemany(
                    "DELETE FROM acts WHERE turn = ? AND call_id = ?", [(number, id) for id in anew]
                )

        # calls are followed by the intent to run them, or by their results, and a person's words by an
        # answer: nothing is done before that write
        await self._database.run(work, soon=bool(anew) or (said.message.role == "user" and not debts))

    async def _act(self, turn: Turn, call_id: str, result: str | None) -> None:
        call_id = codec.whole(call_id)

        def work(db: sqlite3.Connection) -> None:
            number, _ = turn_rows.mine(db, turn)
            db.execute(
                "INSERT INTO acts (turn, call_id, result) VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET result = excluded.result",
                (number, call_id, result),
            )

        await self._database.run(work)

    async def finish(
        self, turn: Turn, ending: Ending, detail: str, *closing: Message, owed: tuple[Outbound, ...] = ()
    ) -> None:
        last = [turn_rows.utterance(Said(message)) for message in closing]
        debts = [outbox.entry(each) for each in owed]
        detail, now = codec.whole(detail), self._clock()

        def work(db: sqlite3.Connection) -> None:
            number, session = turn_rows.mine(db, turn)
            for told in last:
                turn_rows.say(db, number, session, told, now)
            outbox.owe(db, debts, now)
            db.execute(
                "UPDATE turns SET ending = ?, detail = ?, ended = ? WHERE number = ?",
                (ending, detail, now, number),
            )
            db.execute("DELETE FROM acts WHERE turn = ?", (number,))
            db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (now, session))

        # who finds a whole answer without its end has nothing to add to it, and ends it the same
        await self._database.run(work, soon=ending == "answered" and not last and not debts)

    async def release(self, key: str) -> None:
        sql, row = "UPDATE seats SET holder = NULL WHERE key = ? AND holder = ?", (key, self._hosts.me)
        # after a power cut we are gone, and so is our hold
        await self._database.run(lambda db: db.execute(sql, row).rowcount, soon=True)

    async def put_control(self, key: str, op: Op) -> None:
        kind, text = str(op.__struct_config__.tag), codec.dump(op)
        sql = "INSERT INTO controls (key, kind, op) VALUES (?, ?, ?)"
        await self._database.run(lambda db: db.execute(sql, (key, kind, text)).rowcount)

    async def drain_control(self, key: str) -> tuple[Op, ...]:
        """As the port says; what names a turn that waits behind another stays until that one is first.

        Raises `Held` while another living process holds the session.
        """

        def work(db: sqlite3.Connection) -> list[str]:
            _refuse_if_held(db, key, self._hosts)
            taken = db.execute(_DRAIN, {"key": key}).fetchall()
            db.executemany("DELETE FROM controls WHERE number = ?", [(number,) for number, _ in taken])
            return [op for _, op in taken]

        return tuple(codec.ops.decode(op) for op in await self._database.run(work))

    async def orphans(self, begun: int = 0) -> tuple[str, ...]:
        sql = (
            "SELECT key, holder FROM turns LEFT JOIN seats USING (key) "
            "WHERE ending IS NULL GROUP BY key HAVING max(attempts) >= ? ORDER BY min(number)"
        )
        waiting = await self._database.read(lambda db: db.execute(sql, (begun,)).fetchall())
        living = {host: self._hosts.alive(host) for host in {holder for _, holder in waiting}}
        return tuple(key for key, holder in waiting if not living[holder])

    async def holder(self, key: str) -> str | None:
        host = await self._database.read(lambda db: _one(db, "SELECT holder FROM seats WHERE key = ?", key))
        return str(host) if self._hosts.alive(host) else None

    async def waits(self, key: str) -> bool:
        """Is there an unfinished turn of `key`, claimed or not?"""
        return await self._database.read(lambda db: _unfinished(db, key))

    async def abandoned(self, key: str) -> bool:
        """Is there work that no living process holds?"""
        return await self.waits(key) and await self.holder(key) is None


def _refuse_if_held(db: sqlite3.Connection, key: str, hosts: Hosts) -> None:
    holder = _one(db, "SELECT holder FROM seats WHERE key = ?", key)
    if holder is not None and holder != hosts.me and hosts.alive(holder):
        raise Held(key, holder)


def load(db: sqlite3.Connection, number: int) -> Turn:
    """A turn as it stands, with all that a model is told in it."""
    sql = (
        "SELECT turns.id, turns.key, session, inbound, sessions.created, sessions.model, epoch, attempts "
        "FROM turns JOIN sessions ON sessions.id = session WHERE number = ?"
    )
    id, key, session, inbound, began, model, epoch, attempts = db.execute(sql, (number,)).fetchone()
    before, own = transcript(db, session, number)
    every = [*before, *own]
    digest, last = history.digest(db, session, [row[0] for row in every])
    acts = db.execute("SELECT call_id, result FROM acts WHERE turn = ?", (number,)) if attempts > 1 else ()
    read = codec.messages.decode
    return Turn(
        id=id,
        session=session,
        inbound=codec.inbounds.decode(inbound),
        began=began,
        model=model,
        history=tuple(read(message) for _, _, message, _ in before),
        said=tuple(read(message) for _, _, message, _ in own),
        acts={call_id: _result(text) for call_id, text in acts},
        epoch=epoch,
        attempt=attempts,
        alone=db.execute(_COMPANY, {"key": key, "number": number}).fetchone() is None,
        digest=digest,
        counted=history.counted(every, last),
    )


def transcript(
    db: sqlite3.Connection, session: str, turn: int
) -> tuple[list[history.Row], list[history.Row]]:
    """What was said before a turn, and what was said in it, also if that was taken back meanwhile."""
    before = [row for row in history.told(db, session) if row[1] != turn]
    own = "SELECT number, turn, message, input + output FROM said WHERE turn = ? ORDER BY number"
    return before, db.execute(own, (turn,)).fetchall()


def _result(text: str | None) -> ToolResult | None:
    return None if text is None else codec.results.decode(text)


def _unfinished(db: sqlite3.Connection, key: str) -> bool:
    return _one(db, "SELECT 1 FROM turns WHERE key = ? AND ending IS NULL LIMIT 1", key) is not None


def _one(db: sqlite3.Connection, sql: str, key: str) -> str | None:
    """The only column of the first row, or None."""
    row = db.execute(sql, (key,)).fetchone()
    return None if row is None else row[0]
