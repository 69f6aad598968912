"""The turns of a home in SQLite: accepted, claimed, recorded, finished. Nothing here runs a turn."""

import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import structs

from alipes.kernel.conversations import AdmittedTurn
from alipes.kernel.errors import SessionHeld
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import BusyMode, Ending, Inbound, JournalEvent, Op, Said, ToolFinished, ToolStarted, Turn
from alipes.store import history, outbox, turn_rows
from alipes.store.database import codec
from alipes.store.database.database import Database
from alipes.store.peers.peers import Processes

_READY_OPS = """
    WITH unfinished AS (SELECT number, id FROM turns WHERE key = :key AND ending IS NULL)
    SELECT number, op FROM pending_ops
    WHERE key = :key AND NOT (kind = 'stop' AND coalesce(json_extract(op, '$.turn'), '') IN
        (SELECT id FROM unfinished WHERE number > (SELECT min(number) FROM unfinished)))
    ORDER BY number"""
_OTHER_WORK = """
    SELECT 1 FROM turns WHERE key = :key AND ending IS NULL AND number != :number
    UNION ALL SELECT 1 FROM pending_ops WHERE key = :key LIMIT 1"""
OpeningMessages: TypeAlias = Callable[[Turn], tuple[Message, ...]]
"""The messages a turn starts with. May be called more than once, on any thread."""


class SqliteTurns:
    """Every method returns after its rows are on disk, except for rows that nothing depends on before the next
    write, which reach the disk with it: a claim, the first message of a turn, an answer that makes calls
    (before any of them runs) or is sent to a chat (before it is sent), the end of an answered turn, and the
    release of a session. For `admit` see there.

    `before_claim` is awaited before each claim, so that the subscriptions of other processes are registered.
    """

    def __init__(
        self,
        database: Database,
        processes: Processes,
        *,
        clock: Callable[[], float] = time.time,
        before_claim: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._database, self._processes = database, processes
        self._clock, self._before_claim = clock, before_claim

    async def accept(self, inbound: Inbound) -> str | None:
        """The id of the new queued turn, or None if this inbound was accepted before."""
        admitted = await self.admit(inbound)
        await self._database.wait_synced()
        return None if admitted is None else admitted.turn

    def admit(
        self, inbound: Inbound, *, busy: BusyMode | None = None, usual: BusyMode = "queue"
    ) -> Awaitable[AdmittedTurn | None]:
        """Queue the message and return what is ahead of it; None if it was accepted before. `busy` was chosen
        for the message; otherwise the session's own mode applies, else `usual`.

        The turn is visible to other reads as soon as the call is made, so it may start at once. The sender
        may forget the message only after the database has synced it.
        """
        row = turn_rows.make_turn_row(inbound, self._clock())
        return self._database.submit(lambda db: turn_rows.admit_turn(db, row, busy, usual), sync=False)

    async def claim_next(self, key: str, opening: OpeningMessages = lambda _turn: ()) -> Turn | None:
        """Claim the oldest unfinished turn of the session `key`; None if there is none.

        Each claim raises the epoch and counts an attempt. The messages of `opening` are recorded in the same
        transaction and are `unpublished` in the turn. Raises `SessionHeld` while another live process holds
        the session.
        """
        if self._before_claim is not None:
            await self._before_claim()
        now = self._clock()
        # nothing depends on the claim before the next write; a crash here only burns an attempt number
        return await self._database.run(lambda db: self._claim(db, key, opening, now), sync=False)

    def _claim(self, db: sqlite3.Connection, key: str, opening: OpeningMessages, now: float) -> Turn | None:
        number = _first_value(db, "SELECT min(number) FROM turns WHERE key = ? AND ending IS NULL", key)
        if number is None:
            return None
        _require_free(db, key, self._processes)
        (epoch,) = db.execute(
            "UPDATE leases SET holder = ?, epoch = epoch + 1 WHERE key = ? RETURNING epoch",
            (self._processes.own_name, key),
        ).fetchone()
        db.execute(
            "UPDATE turns SET epoch = ?, attempts = attempts + 1, started = coalesce(started, ?) WHERE number = ?",
            (epoch, now, number),
        )
        turn = load_turn(db, int(number))
        if not (messages := opening(turn)):
            return turn
        for message in messages:
            row = turn_rows.make_message_row(Said(message))
            turn_rows.insert_message(db, int(number), turn.session, row, now)
        return structs.replace(turn, said=(*turn.said, *messages), unpublished=messages)

    async def record(self, turn: Turn, event: JournalEvent, *owed: Outbound) -> None:
        """Record what the turn did and, in the same transaction, the messages to send for it.

        Raises `Fenced` if a later claim exists.
        """
        match event:
            case Said():
                await self._record_message(turn, event, owed)
            case ToolStarted(call):
                await self._record_call(turn, call.id, None)
            case ToolFinished(call, result):
                await self._record_call(turn, call.id, codec.to_json(result))

    async def _record_message(self, turn: Turn, said: Said, outbounds: tuple[Outbound, ...]) -> None:
        row, now = turn_rows.make_message_row(said), self._clock()
        outbox_rows = [outbox.make_outbox_row(outbound) for outbound in outbounds]
        call_ids = [codec.clean_text(call.id) for call in said.message.calls]

        def work(db: sqlite3.Connection) -> None:
            number, session = turn_rows.find_claimed_turn(db, turn)
            turn_rows.insert_message(db, number, session, row, now)
            outbox.insert_outbound(db, outbox_rows, now)
            if call_ids:  # some models reuse their call ids in each step: a new call has not been run yet
                sql = "DELETE FROM tool_calls WHERE turn_number = ? AND call_id = ?"
                db.executemany(sql, [(number, id) for id in call_ids])

        # calls are followed by the intent to run them or by their results, and a user message by the answer:
        # nothing happens before that write
        no_sync = bool(call_ids) or (said.message.role == "user" and not outbox_rows)
        await self._database.run(work, sync=not no_sync)

    async def _record_call(self, turn: Turn, call_id: str, result: str | None) -> None:
        call_id = codec.clean_text(call_id)

        def work(db: sqlite3.Connection) -> None:
            number, _ = turn_rows.find_claimed_turn(db, turn)
            db.execute(
                "INSERT INTO tool_calls (turn_number, call_id, result) VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET result = excluded.result",
                (number, call_id, result),
            )

        await self._database.run(work)

    async def finish(
        self, turn: Turn, ending: Ending, detail: str, *closing: Message, owed: tuple[Outbound, ...] = ()
    ) -> None:
        """Write the ending and, in the same transaction, the messages that close the transcript and the
        messages to send."""
        rows = [turn_rows.make_message_row(Said(message)) for message in closing]
        outbox_rows = [outbox.make_outbox_row(outbound) for outbound in owed]
        detail, now = codec.clean_text(detail), self._clock()

        def work(db: sqlite3.Connection) -> None:
            number, session = turn_rows.find_claimed_turn(db, turn)
            for row in rows:
                turn_rows.insert_message(db, number, session, row, now)
            outbox.insert_outbound(db, outbox_rows, now)
            db.execute(
                "UPDATE turns SET ending = ?, detail = ?, ended = ? WHERE number = ?", (ending, detail, now, number)
            )
            db.execute("DELETE FROM tool_calls WHERE turn_number = ?", (number,))
            db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (now, session))

        # if this is lost, the resumed turn finds its complete answer and ends in the same way
        await self._database.run(work, sync=not (ending == "answered" and not rows and not outbox_rows))

    async def release(self, key: str) -> None:
        """Release the session so that another process can claim it."""
        sql = "UPDATE leases SET holder = NULL WHERE key = ? AND holder = ?"
        row = (key, self._processes.own_name)
        # after a power cut this process is gone, and its lease with it
        await self._database.run(lambda db: db.execute(sql, row).rowcount, sync=False)

    async def put_op(self, key: str, op: Op) -> None:
        """Store `op` for the current or next holder of the session."""
        kind, text = str(op.__struct_config__.tag), codec.to_json(op)
        sql = "INSERT INTO pending_ops (key, kind, op) VALUES (?, ?, ?)"
        await self._database.run(lambda db: db.execute(sql, (key, kind, text)).rowcount)

    async def take_ops(self, key: str) -> tuple[Op, ...]:
        """Take the stored ops, oldest first; each is returned once, and a stop of a turn that is queued behind
        another stays until that turn is first.

        Raises `SessionHeld` while another running process holds the session.
        """

        def work(db: sqlite3.Connection) -> list[str]:
            _require_free(db, key, self._processes)
            found = db.execute(_READY_OPS, {"key": key}).fetchall()
            db.executemany("DELETE FROM pending_ops WHERE number = ?", [(number,) for number, _ in found])
            return [op for _, op in found]

        return tuple(codec.op_decoder.decode(op) for op in await self._database.run(work))

    async def list_orphans(self, begun: int = 0) -> tuple[str, ...]:
        """Keys of sessions with unfinished turns that no live process holds, oldest first; only those with a
        turn that was claimed at least `begun` times."""
        sql = (
            "SELECT key, holder FROM turns LEFT JOIN leases USING (key) "
            "WHERE ending IS NULL GROUP BY key HAVING max(attempts) >= ? ORDER BY min(number)"
        )
        unfinished = await self._database.read(lambda db: db.execute(sql, (begun,)).fetchall())
        alive = {host: self._processes.is_alive(host) for host in {holder for _, holder in unfinished}}
        return tuple(key for key, holder in unfinished if not alive[holder])

    async def holder(self, key: str) -> str | None:
        """The live process that holds the session, or None."""
        sql = "SELECT holder FROM leases WHERE key = ?"
        host = await self._database.read(lambda db: _first_value(db, sql, key))
        return str(host) if self._processes.is_alive(host) else None

    async def has_pending(self, key: str) -> bool:
        """True if `key` has an unfinished turn, claimed or not."""
        sql = "SELECT 1 FROM turns WHERE key = ? AND ending IS NULL LIMIT 1"
        return await self._database.read(lambda db: _first_value(db, sql, key)) is not None

    async def is_abandoned(self, key: str) -> bool:
        """True if `key` has unfinished work that no running process holds."""
        return await self.has_pending(key) and await self.holder(key) is None


def _require_free(db: sqlite3.Connection, key: str, processes: Processes) -> None:
    holder = _first_value(db, "SELECT holder FROM leases WHERE key = ?", key)
    if holder is not None and holder != processes.own_name and processes.is_alive(holder):
        raise SessionHeld(key, holder)


def load_turn(db: sqlite3.Connection, number: int) -> Turn:
    """A turn with the messages that the model sees in it."""
    sql = (
        "SELECT turns.id, turns.key, session_id, inbound, sessions.created, sessions.model, epoch, attempts "
        "FROM turns JOIN sessions ON sessions.id = session_id WHERE number = ?"
    )
    id, key, session, inbound, created, model, epoch, attempts = db.execute(sql, (number,)).fetchone()
    before, own = load_transcript(db, session, number)
    rows = [*before, *own]
    compaction, newest = history.find_summary(db, session, [row[0] for row in rows])
    calls = "SELECT call_id, result FROM tool_calls WHERE turn_number = ?"
    results = db.execute(calls, (number,)) if attempts > 1 else ()
    read = codec.message_decoder.decode
    return Turn(
        id=id,
        session=session,
        inbound=codec.inbound_decoder.decode(inbound),
        session_started=created,
        model=model,
        history=tuple(read(message) for _, _, message, _ in before),
        said=tuple(read(message) for _, _, message, _ in own),
        tool_results={call_id: _decode_result(text) for call_id, text in results},
        epoch=epoch,
        attempt=attempts,
        queue_empty=db.execute(_OTHER_WORK, {"key": key, "number": number}).fetchone() is None,
        compaction=compaction,
        measured_tokens=history.last_counted_tokens(rows, newest),
    )


def load_transcript(
    db: sqlite3.Connection, session: str, turn: int
) -> tuple[list[history.HistoryRow], list[history.HistoryRow]]:
    """The messages before a turn, and its own, even if it was undone meanwhile."""
    before = [row for row in history.visible_messages(db, session) if row[1] != turn]
    own = "SELECT number, turn_number, message, input + output FROM messages WHERE turn_number = ? ORDER BY number"
    return before, db.execute(own, (turn,)).fetchall()


def _decode_result(text: str | None) -> ToolResult | None:
    return None if text is None else codec.result_decoder.decode(text)


def _first_value(db: sqlite3.Connection, sql: str, key: str) -> str | None:
    """The only column of the first row, or None."""
    row = db.execute(sql, (key,)).fetchone()
    return None if row is None else row[0]
