"""The turns of a home in SQLite: accepted, claimed, recorded, finished. Nothing here runs a turn."""

import os
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct, structs

from alipes.kernel.conversations import AdmittedTurn, PendingTurn
from alipes.kernel.errors import SessionHeld
from alipes.kernel.messages import Message
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import (
    Address,
    BusyMode,
    Ending,
    Inbound,
    JournalEvent,
    Op,
    Said,
    ToolFinished,
    ToolStarted,
    Turn,
)
from alipes.store.ports.cluster import Liveness
from alipes.store.ports.turns import OpeningMessages
from alipes.store.sql import history, outbox
from alipes.store.sql.connection import Connection, Database
from alipes.store.sql.rows import Decoders, clean_text, to_json

ANSWER_BATCH = "answer"
"""In the inbox, instead of a batch: the message was the answer to a question and never becomes a turn."""
_RELEASE = "UPDATE leases SET holder = NULL WHERE key = ? AND holder = ?"
_READY_OPS = """
    WITH unfinished AS (SELECT number, id FROM turns WHERE key = :key AND ending IS NULL AND held = 0)
    SELECT number, op FROM pending_ops
    WHERE key = :key AND NOT (kind = 'stop' AND turn_id IN
        (SELECT id FROM unfinished WHERE number > (SELECT min(number) FROM unfinished)))
    ORDER BY number"""
HEAD = """
    SELECT turns.number, resume_at > :now AND turns.session_id = leases.session_id AND NOT EXISTS (
        SELECT 1 FROM pending_ops WHERE pending_ops.key = :key AND (
            kind = 'stop' AND turn_id IN ('', turns.id)
            OR kind = 'reset' AND pending_ops.session_id = turns.session_id))
    FROM turns JOIN leases ON leases.key = turns.key WHERE turns.key = :key AND ending IS NULL AND held = 0
    ORDER BY turns.number LIMIT 1"""
"""The oldest unfinished turn of a key, and whether it is parked: it waits for a limit, and nobody stopped it."""
_OTHER_WORK = """
    SELECT 1 FROM turns WHERE key = :key AND ending IS NULL AND held = 0 AND number != :number
    UNION ALL SELECT 1 FROM pending_ops WHERE key = :key LIMIT 1"""


class SqlTurns:
    def __init__(
        self,
        database: Database,
        processes: Liveness,
        *,
        clock: Callable[[], float] = time.time,
        before_claim: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._database, self._processes = database, processes
        self._clock, self._before_claim = clock, before_claim

    async def accept(self, inbound: Inbound) -> str | None:
        admitted = await self.admit(inbound)
        await self._database.wait_synced()
        return None if admitted is None else admitted.turn

    def admit(
        self,
        inbound: Inbound,
        *,
        busy: BusyMode | None = None,
        usual: BusyMode = "queue",
        owed: tuple[Outbound, ...] = (),
    ) -> Awaitable[AdmittedTurn | None]:
        row = make_turn_row(inbound, self._clock())
        outbox_rows = [outbox.make_outbox_row(outbound) for outbound in owed]

        def work(db: Connection) -> AdmittedTurn | None:
            admitted = admit_turn(db, row, busy, usual)
            if admitted is not None:
                outbox.insert_outbound(db, outbox_rows, row.now)
            return admitted

        return self._database.submit(work, sync=False)

    async def claim_next(
        self, key: str, opening: OpeningMessages = lambda _turn: (), *, release: bool = False
    ) -> Turn | None:
        if self._before_claim is not None:
            await self._before_claim()
        now = self._clock()
        # nothing depends on the claim before the next write; a crash here only burns an attempt number
        return await self._database.run(lambda db: self._claim(db, key, opening, now, release=release), sync=False)

    def _claim(self, db: Connection, key: str, opening: OpeningMessages, now: float, *, release: bool) -> Turn | None:
        number, parked = db.execute(HEAD, {"key": key, "now": now}).fetchone() or (None, False)
        if number is None or parked:
            if release:
                db.execute(_RELEASE, (key, self._processes.own_name))
            return None
        _require_free(db, key, self._processes)
        sql = "UPDATE leases SET holder = ?, epoch = epoch + 1 WHERE key = ? RETURNING epoch"
        (epoch,) = db.execute(sql, (self._processes.own_name, key)).fetchone()
        sql = """UPDATE turns SET epoch = ?, attempts = attempts + 1, resume_at = 0, detail = '',
            started = coalesce(started, ?) WHERE number = ?"""
        db.execute(sql, (epoch, now, number))
        turn = load_turn(db, number)
        if not (messages := opening(turn)):
            return turn
        for message in messages:
            history.insert_message(db, number, turn.session, history.make_message_row(Said(message)), now)
        return structs.replace(turn, said=(*turn.said, *messages), unpublished=messages)

    async def record(self, turn: Turn, event: JournalEvent, *owed: Outbound) -> None:
        match event:
            case Said():
                await self._record_message(turn, event, owed)
            case ToolStarted(call):
                await self._record_call(turn, call.id, None)
            case ToolFinished(call, result):
                await self._record_call(turn, call.id, to_json(result))

    async def _record_message(self, turn: Turn, said: Said, outbounds: tuple[Outbound, ...]) -> None:
        row, now = history.make_message_row(said), self._clock()
        outbox_rows = [outbox.make_outbox_row(outbound) for outbound in outbounds]
        call_ids = [clean_text(call.id) for call in said.message.calls]

        def work(db: Connection) -> None:
            number, session = history.find_claimed_turn(db, turn)
            history.insert_message(db, number, session, row, now)
            outbox.insert_outbound(db, outbox_rows, now)
            if call_ids:  # some models reuse their call ids in each step: a new call has not been run yet
                sql = "DELETE FROM tool_calls WHERE turn_number = ? AND call_id = ?"
                db.executemany(sql, [(number, id) for id in call_ids])

        # calls are followed by the intent to run them or by their results, and a user message by the answer:
        # nothing happens before that write
        no_sync = bool(call_ids) or (said.message.role == "user" and not outbox_rows)
        await self._database.run(work, sync=not no_sync)

    async def _record_call(self, turn: Turn, call_id: str, result: str | None) -> None:
        call_id = clean_text(call_id)

        def work(db: Connection) -> None:
            number, _ = history.find_claimed_turn(db, turn)
            sql = """INSERT INTO tool_calls (turn_number, call_id, result) VALUES (?, ?, ?)
                ON CONFLICT (turn_number, call_id) DO UPDATE SET result = excluded.result"""
            db.execute(sql, (number, call_id, result))

        await self._database.run(work)

    async def finish(
        self, turn: Turn, ending: Ending, detail: str, *closing: Message, owed: tuple[Outbound, ...] = ()
    ) -> None:
        rows = [history.make_message_row(Said(message)) for message in closing]
        outbox_rows = [outbox.make_outbox_row(outbound) for outbound in owed]
        detail, now = clean_text(detail), self._clock()

        def work(db: Connection) -> None:
            number, session = history.find_claimed_turn(db, turn)
            for row in rows:
                history.insert_message(db, number, session, row, now)
            outbox.insert_outbound(db, outbox_rows, now)
            sql = "UPDATE turns SET ending = ?, detail = ?, ended = ? WHERE number = ?"
            db.execute(sql, (ending, detail, now, number))
            db.execute("DELETE FROM tool_calls WHERE turn_number = ?", (number,))
            db.execute("UPDATE sessions SET updated = ? WHERE id = ?", (now, session))

        # if this is lost, the resumed turn finds its complete answer and ends in the same way
        await self._database.run(work, sync=not (ending == "answered" and not rows and not outbox_rows))

    async def park(self, turn: Turn, until: float, reason: str, *, owed: tuple[Outbound, ...] = ()) -> None:
        outbox_rows, now = [outbox.make_outbox_row(outbound) for outbound in owed], self._clock()
        reason = clean_text(reason)

        def work(db: Connection) -> None:
            number, _ = history.find_claimed_turn(db, turn)
            # the attempts so far succeeded: they do not count towards those after which a turn is given up
            sql = "UPDATE turns SET resume_at = ?, detail = ?, attempts = 1 WHERE number = ?"
            db.execute(sql, (until, reason, number))
            outbox.insert_outbound(db, outbox_rows, now)

        await self._database.run(work, key=turn.key)

    async def list_parked(self, workdir: str = "") -> tuple[tuple[str, float], ...]:
        sql = """SELECT turns.key, min(resume_at) FROM turns JOIN sessions ON sessions.id = turns.session_id
            WHERE resume_at > 0 AND ending IS NULL AND (?1 = '' OR workdir IN ('', ?1))
            GROUP BY turns.key ORDER BY 2"""
        return tuple((key, until) for key, until in await self._database.fetch_all(sql, clean_text(workdir)))

    async def release(self, key: str) -> None:
        # after a power cut this process is gone, and its lease with it
        await self._database.execute(_RELEASE, key, self._processes.own_name, sync=False)

    async def put_op(self, key: str, op: Op) -> None:
        await self._database.execute(INSERT_OP, *make_op_row(key, op))

    async def take_ops(self, key: str) -> tuple[Op, ...]:
        def work(db: Connection) -> list[str]:
            _require_free(db, key, self._processes)
            found = db.execute(_READY_OPS, {"key": key}).fetchall()
            db.executemany("DELETE FROM pending_ops WHERE number = ?", [(number,) for number, _ in found])
            return [op for _, op in found]

        return tuple(Decoders.op.decode(op) for op in await self._database.run(work))

    async def list_orphans(self, begun: int = 0, workdir: str = "") -> tuple[str, ...]:
        sql = """SELECT turns.key, holder FROM turns LEFT JOIN leases USING (key)
            JOIN sessions ON sessions.id = turns.session_id
            WHERE ending IS NULL AND held = 0 AND (?1 = '' OR workdir IN ('', ?1))
            GROUP BY turns.key, holder HAVING max(attempts) >= ?2 AND max(resume_at) <= ?3 ORDER BY min(number)"""
        unfinished = await self._database.fetch_all(sql, clean_text(workdir), begun, self._clock())
        alive = {host: self._processes.is_alive(host) for host in {holder for _, holder in unfinished}}
        return tuple(key for key, holder in unfinished if not alive[holder])

    async def list_running(self, platform: str) -> tuple[str, ...]:
        sql = """SELECT DISTINCT key FROM turns WHERE platform = ? AND ending IS NULL AND attempts > 0
            AND resume_at = 0"""
        return tuple(key for (key,) in await self._database.fetch_all(sql, platform))

    async def holder(self, key: str) -> str | None:
        sql = "SELECT holder FROM leases WHERE key = ?"
        (host,) = await self._database.fetch_one(sql, key) or (None,)
        return str(host) if self._processes.is_alive(host) else None

    async def has_pending(self, key: str) -> bool:
        sql = "SELECT 1 FROM turns WHERE key = ? AND ending IS NULL AND held = 0 LIMIT 1"
        return await self._database.fetch_one(sql, key) is not None

    async def is_abandoned(self, key: str) -> bool:
        if not await self.has_pending(key) or await self.holder(key) is not None:
            return False
        sql = "SELECT 1 FROM turns WHERE key = ? AND ending IS NULL AND held = 0 AND resume_at > ?"
        return await self._database.fetch_one(sql, key, self._clock()) is None


def _require_free(db: Connection, key: str, processes: Liveness) -> None:
    (holder,) = db.execute("SELECT holder FROM leases WHERE key = ?", (key,)).fetchone() or (None,)
    if holder is not None and holder != processes.own_name and processes.is_alive(holder):
        raise SessionHeld(key, holder)


_PROMPT_SECTIONS = "SELECT section, text FROM prompt_sections WHERE session_id = ?"


def load_turn(db: Connection, number: int) -> Turn:
    """A turn with the messages that the model sees in it."""
    sql = """SELECT turns.id, turns.key, session_id, inbound, sessions.created, sessions.model, effort, tools_off,
        permission_mode, epoch, attempts FROM turns JOIN sessions ON sessions.id = session_id WHERE number = ?"""
    row = db.execute(sql, (number,)).fetchone()
    id, key, session, inbound, created, model, effort, tools_off, mode, epoch, attempts = row
    before, own = history.load_transcript(db, session, number)
    rows = [*before, *own]
    compaction, newest = history.find_summary(db, session, [row[0] for row in rows])
    calls = "SELECT call_id, result FROM tool_calls WHERE turn_number = ?"
    results = db.execute(calls, (number,)) if attempts > 1 else ()
    return Turn(
        id=id,
        session=session,
        inbound=Decoders.inbound.decode(inbound),
        session_started=created,
        model=model,
        effort=effort,
        tools_off=tuple(tools_off.split()),
        claimed_mode=mode,
        prompt_sections=dict(db.execute(_PROMPT_SECTIONS, (session,)).fetchall()),
        history=history.decode_messages(before),
        said=history.decode_messages(own),
        tool_results={id: None if text is None else Decoders.result.decode(text) for id, text in results},
        epoch=epoch,
        attempt=attempts,
        queue_empty=db.execute(_OTHER_WORK, {"key": key, "number": number}).fetchone() is None,
        compaction=compaction,
        measured_tokens=history.last_counted_tokens(rows, newest),
    )


class TurnRow(Struct, frozen=True):
    """The columns of a new turn, made before the transaction because that may run more than once."""

    turn: str
    new_session: str
    """The id of a session that is created if the key has none."""
    inbound: Inbound
    inbound_id: str
    text: str
    now: float

    @property
    def key(self) -> str:
        return self.inbound.address.key


def make_turn_row(inbound: Inbound, now: float, turn: str = "") -> TurnRow:
    turn = turn or os.urandom(8).hex()
    return TurnRow(turn, new_session_id(), inbound, clean_text(inbound.id), to_json(inbound), now)


INSERT_OP = "INSERT INTO pending_ops (key, kind, op, turn_id, reason, session_id) VALUES (?, ?, ?, ?, ?, ?)"


def make_op_row(key: str, op: Op) -> tuple[str, ...]:
    """The values of `INSERT_OP`."""
    columns = (getattr(op, "turn", ""), getattr(op, "reason", ""), getattr(op, "session", ""))
    return key, str(op.__struct_config__.tag), to_json(op), *map(clean_text, columns)


def new_session_id() -> str:
    return os.urandom(6).hex()


def admit_turn(db: Connection, row: TurnRow, busy: BusyMode | None, usual: BusyMode) -> AdmittedTurn | None:
    """Queue the turn; None if its message is a second copy."""
    platform, key = row.inbound.address.platform, row.key
    copy = """SELECT 1 FROM turns WHERE platform = ?1 AND inbound_id = ?2
        UNION ALL SELECT 1 FROM inbox WHERE platform = ?1 AND id = ?2 AND batch = ?3"""
    if db.execute(copy, (platform, row.inbound_id, ANSWER_BATCH)).fetchone():
        return None
    session, mode = _touch_current_session(db, row)
    ahead = tuple(each for each in list_unfinished(db, key) if not each.held)
    if not ahead:
        discard_stops(db, key)
    effective: BusyMode = busy or mode or usual
    if effective == "steer" and busy is None and ahead and not _fits_into(db, row.inbound, ahead[0].id):
        effective = "queue"
    insert_turn(db, row, session, effective)
    return AdmittedTurn(row.turn, effective, ahead)


def _fits_into(db: Connection, inbound: Inbound, turn: str) -> bool:
    """False if the message has a model, tools, instructions or a recipient of its own, which steering would ignore."""
    if inbound.only is not None or inbound.instructions or inbound.offered or inbound.answer_to is not None:
        return False
    (model,) = db.execute("SELECT model FROM turns WHERE id = ?", (turn,)).fetchone()
    return inbound.model == (model or "")


def discard_stops(db: Connection, key: str) -> None:
    """Delete stops that found nothing to stop, so that they do not stop a later turn."""
    db.execute("DELETE FROM pending_ops WHERE key = ? AND kind = 'stop'", (key,))


def _touch_current_session(db: Connection, row: TurnRow) -> tuple[str, BusyMode | None]:
    """The active session of the key, created if necessary, and its busy mode."""
    sql = """UPDATE sessions SET updated = ?, workdir = coalesce(nullif(?, ''), workdir)
        WHERE id = (SELECT session_id FROM leases WHERE key = ?) RETURNING id, busy_mode"""
    workdir = clean_text(row.inbound.workdir)
    found = db.execute(sql, (row.now, workdir, row.key)).fetchone()
    if found is None:
        return insert_session(db, row.new_session, row.inbound.address, row.now, workdir), None
    return found[0], found[1] or None


def insert_session(db: Connection, id: str, address: Address, now: float, workdir: str = "") -> str:
    """Create a session and make it the active one of its key. Without `workdir` it is in the same folder as the
    one before."""
    sql = """INSERT INTO sessions (id, key, platform, address, chat, user_id, created, updated, workdir)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, coalesce(nullif(?, ''), (SELECT workdir FROM sessions
            WHERE id = (SELECT session_id FROM leases WHERE key = ?)), ''))"""
    place = (id, address.key, *address_columns(address))
    db.execute(sql, (*place, now, now, workdir, address.key))
    set_current_session(db, address.key, id)
    return id


def address_columns(address: Address) -> tuple[str, str, str, str]:
    """Platform, JSON, chat and user, as `sessions` has them."""
    return address.platform, to_json(address), clean_text(address.chat), clean_text(address.user)


def set_current_session(db: Connection, key: str, session: str) -> None:
    sql = """INSERT INTO leases (key, session_id) VALUES (?, ?)
        ON CONFLICT (key) DO UPDATE SET session_id = excluded.session_id"""
    db.execute(sql, (key, session))


INBOUND_COLUMNS = "text, notice, via, model, user_id, origin_session, parent_id"


def inbound_columns(inbound: Inbound) -> tuple[str | None, ...]:
    """The values of `INBOUND_COLUMNS`."""
    origin = "" if inbound.origin is None else inbound.origin.session
    texts = (inbound.text, inbound.notice, inbound.via, inbound.model, inbound.address.user, origin)
    return *map(clean_text, texts), inbound.parent or None


def insert_turn(db: Connection, row: TurnRow, session: str, busy: BusyMode) -> None:
    sql = f"""INSERT INTO turns (id, key, session_id, platform, inbound_id, inbound, busy_mode, created,
        {INBOUND_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
    ids = (row.turn, row.key, session, row.inbound.address.platform, row.inbound_id)
    db.execute(sql, (*ids, row.text, busy, row.now, *inbound_columns(row.inbound)))
    if label := row.inbound.untrusted:
        sql = "INSERT OR IGNORE INTO untrusted_sources VALUES (?, ?, ?, ?)"
        db.execute(sql, (session, clean_text(label), clean_text(label), row.now))


def list_unfinished(db: Connection, key: str) -> tuple[PendingTurn, ...]:
    """The running turn, the queued ones, and the held ones, each in order."""
    sql = """SELECT held, resume_at, id, session_id, text, busy_mode, created, started FROM turns
        WHERE key = ? AND ending IS NULL ORDER BY held, number"""
    found = db.execute(sql, (key,)).fetchall()
    return tuple(structs.replace(PendingTurn(*row), held=bool(held), resumes_at=at) for held, at, *row in found)
