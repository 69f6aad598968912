"""The turns of a cluster in PostgreSQL: what happens in every turn is one verb of `apply`, the rest is shared SQL."""

import time
from asyncio import Future
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from alipes.kernel.conversations import AdmittedTurn, PendingTurn
from alipes.kernel.errors import Fenced, SessionHeld
from alipes.kernel.messages import Message
from alipes.kernel.outbox import Outbound
from alipes.kernel.store.cluster import Liveness, WriteCounts
from alipes.kernel.store.turns import OpeningMessages
from alipes.kernel.turns import BusyMode, Ending, Inbound, Op, Said, Turn
from alipes.store import history, outbox
from alipes.store.database.connection import Connection, Database
from alipes.store.database.rows import Decoders, clean_text
from alipes.store.turns import SqlTurns, address_columns, inbound_columns, make_op_row, make_turn_row

_header_decoder = msgspec.json.Decoder(tuple[str, str, str, float, str, int, int, bool])
_summary_decoder: msgspec.json.Decoder[history.SummaryRow] = msgspec.json.Decoder(history.SummaryRow)
_call_decoder = msgspec.json.Decoder(tuple[str, str | None])


class VerbDatabase(Database, Protocol):
    """A database that runs the verbs of `apply`."""

    counts: WriteCounts

    def call(self, verb: str, key: str, args: tuple[object, ...], *, sync: bool = True) -> "Future[Any]":
        """Run a verb of the session `key` (empty: of none) and return its result. Once called it happens, in the
        order of the calls, even if the caller is cancelled. `sync` as in `submit`."""


class PostgresTurns(SqlTurns):
    """`SqlTurns` in PostgreSQL. The fence is the lock of the lease row, which `apply` takes before any verb."""

    _database: VerbDatabase

    def __init__(
        self,
        database: VerbDatabase,
        processes: Liveness,
        *,
        clock: Callable[[], float] = time.time,
        before_claim: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`processes` says who is alive if the database does not know."""
        super().__init__(database, processes, clock=clock, before_claim=before_claim)

    def admit(
        self,
        inbound: Inbound,
        *,
        busy: BusyMode | None = None,
        usual: BusyMode = "queue",
        owed: tuple[Outbound, ...] = (),
    ) -> Awaitable[AdmittedTurn | None]:
        args = admit_args(inbound, self._clock(), busy, usual, owed)
        return _admitted(args[0], self._database.call("admit", inbound.address.key, args, sync=False))

    async def claim_next(self, key: str, opening: OpeningMessages = lambda _turn: ()) -> Turn | None:
        if self._before_claim is not None:
            await self._before_claim()
        now = self._clock()
        claimed = await self._call_if_free("claim", key, (now,), sync=False)
        if claimed is None:
            return None
        number, epoch, attempts = claimed
        turn = await self._database.read_statement(lambda db: load_turn(db, number, epoch, attempts))
        if not (messages := opening(turn)):
            return turn
        args = (turn.id, epoch, now, [message_args(Said(message)) for message in messages], (), ())
        recorded = self._database.call("record", key, args, sync=False)
        recorded.add_done_callback(_ignore_result)  # if it is lost or fenced, so is every later write of the turn
        return msgspec.structs.replace(turn, said=(*turn.said, *messages), unpublished=messages)

    async def _call_if_free(self, verb: str, key: str, args: tuple[object, ...], *, sync: bool = True) -> Any:
        """Call a verb that needs the session. Raises `SessionHeld` while another live process holds it."""
        found = await self._database.call(verb, key, (*args, ()), sync=sync)
        if found and found[0] == "held" and not self._processes.is_alive(found[1]):
            found = await self._database.call(verb, key, (*args, (found[1],)), sync=sync)
        if found and found[0] == "held":
            raise SessionHeld(key, found[1])
        return found

    async def _call_fenced(self, verb: str, turn: Turn, args: tuple[object, ...], *, sync: bool = True) -> None:
        if not await self._database.call(verb, turn.key, (turn.id, turn.epoch, *args), sync=sync):
            self._database.counts.fenced += 1
            raise Fenced(f"turn {turn.id} of session {turn.key} has ended or was claimed by another process")

    async def _record_message(self, turn: Turn, said: Said, outbounds: tuple[Outbound, ...]) -> None:
        call_ids = [clean_text(call.id) for call in said.message.calls]
        args = (self._clock(), (message_args(said),), outbound_args(outbounds), call_ids)
        no_sync = bool(call_ids) or (said.message.role == "user" and not outbounds)  # as in `SqlTurns`
        await self._call_fenced("record", turn, args, sync=not no_sync)

    async def _record_call(self, turn: Turn, call_id: str, result: str | None) -> None:
        await self._call_fenced("call", turn, (clean_text(call_id), result))

    async def finish(
        self, turn: Turn, ending: Ending, detail: str, *closing: Message, owed: tuple[Outbound, ...] = ()
    ) -> None:
        messages = [message_args(Said(message)) for message in closing]
        args = (self._clock(), messages, outbound_args(owed), ending, clean_text(detail))
        sync = not (ending == "answered" and not closing and not owed)  # as in `SqlTurns`
        await self._call_fenced("finish", turn, args, sync=sync)

    async def release(self, key: str) -> None:
        await self._database.call("release", key, (), sync=False)

    async def take_ops(self, key: str) -> tuple[Op, ...]:
        (ops,) = await self._call_if_free("take_ops", key, ())
        return tuple(Decoders.op.decode(op) for op in ops)

    async def signal(self, key: str, op: Op) -> tuple[str | None, bool]:
        """`put_op`, and notify the session's holder if it is another worker. Returns the holder, and whether a turn
        waits."""
        _, *row = make_op_row(key, op)
        holder, waits = await self._database.call("signal", key, tuple(row))
        return holder, waits


async def _admitted(turn: str, call: "Future[Any]") -> AdmittedTurn | None:
    found = await call
    if found is None:
        return None
    mode, ahead = found
    return AdmittedTurn(turn, mode, tuple(PendingTurn(*row) for row in ahead))


def _ignore_result(future: "Future[Any]") -> None:
    if not future.cancelled():
        future.exception()


def admit_args(
    inbound: Inbound, now: float, busy: BusyMode | None, usual: BusyMode, owed: tuple[Outbound, ...]
) -> tuple[str, *tuple[object, ...]]:
    """A message as `admit_turn` takes it; first the id of its turn."""
    row = make_turn_row(inbound, now)
    fits = inbound.only is None and not inbound.instructions and not inbound.offered and inbound.answer_to is None
    return (
        *(row.turn, row.new_session, now, busy, usual, fits),
        (*address_columns(inbound.address), clean_text(inbound.workdir)),
        (row.inbound_id, row.text, *inbound_columns(inbound)),
        *(clean_text(inbound.untrusted), outbound_args(owed)),
    )


def message_args(said: Said) -> tuple[object, ...]:
    """A message as `insert_message` takes it."""
    columns, text = history.make_message_row(said)
    return (*columns, text)


def outbound_args(outbounds: tuple[Outbound, ...]) -> list[outbox.OutboxRow]:
    """Messages to send as `insert_outbound` takes them."""
    return [outbox.make_outbox_row(outbound) for outbound in outbounds]


def load_turn(db: Connection, number: int, epoch: int, attempts: int) -> Turn:
    """A turn with the messages that the model sees in it, as its claim with this epoch left it."""
    parts: tuple[list[Any], ...] = ([], [], [], [], [])
    for part, *row in db.execute("SELECT part, number, turn_number, body, tokens FROM load_turn(?)", (number,)):
        parts[part].append(tuple(row))
    ((_, _, header, _),), before, own, summaries, calls = parts
    id, session, inbound, created, model, _, _, queue_empty = _header_decoder.decode(header)
    rows: list[history.HistoryRow] = [*before, *own]
    texts = (_summary_decoder.decode(text) for _, _, text, _ in summaries)
    compaction, newest = history.choose_summary(texts, [row[0] for row in rows])
    results = (_call_decoder.decode(text) for _, _, text, _ in calls)
    return Turn(
        id=id,
        session=session,
        inbound=Decoders.inbound.decode(inbound),
        session_started=created,
        model=model,
        history=history.decode_messages(before),
        said=history.decode_messages(own),
        tool_results={id: None if text is None else Decoders.result.decode(text) for id, text in results},
        epoch=epoch,
        attempt=attempts,
        queue_empty=queue_empty,
        compaction=compaction,
        measured_tokens=history.last_counted_tokens(rows, newest),
    )
