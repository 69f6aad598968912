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
from alipes.kernel.turns import BusyMode, Ending, Inbound, Op, Said, Turn
from alipes.store.ports.cluster import Liveness, WriteCounts
from alipes.store.ports.turns import OpeningMessages
from alipes.store.postgres.capacity import Capacity
from alipes.store.sql import history, outbox
from alipes.store.sql.connection import Database
from alipes.store.sql.rows import Decoders, clean_text
from alipes.store.sql.turns import SqlTurns, address_columns, inbound_columns, make_op_row, make_turn_row


class VerbDatabase(Database, Protocol):
    """A database that runs the verbs of `apply` and `look`."""

    counts: WriteCounts

    def call(self, verb: str, key: str, args: tuple[object, ...], *, sync: bool = True) -> "Future[Any]":
        """Run a verb of the session `key` (empty: of none) and return its result. Once called it happens, in the
        order of the calls, even if the caller is cancelled. `sync` as in `submit`. The result of a successful `claim`
        ends with the description of its turn."""

    def look(self, verb: str, *args: object) -> "Future[Any]":
        """Run a verb of `look`, after the writes before, and return its result."""


class PostgresTurns(SqlTurns):
    """`SqlTurns` in PostgreSQL. The fence is the lock of the lease row, which `apply` takes before any verb."""

    _database: VerbDatabase

    def __init__(
        self,
        database: VerbDatabase,
        processes: Liveness,
        capacity: Capacity | None = None,
        *,
        clock: Callable[[], float] = time.time,
        before_claim: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`processes` says who is alive if the database does not know. `capacity`: without it, a session is not taken
        when its message is admitted."""
        super().__init__(database, processes, clock=clock, before_claim=before_claim)
        self._capacity = capacity or Capacity()

    def admit(
        self,
        inbound: Inbound,
        *,
        busy: BusyMode | None = None,
        usual: BusyMode = "queue",
        owed: tuple[Outbound, ...] = (),
    ) -> Awaitable[AdmittedTurn | None]:
        key, args = inbound.address.key, admit_args(inbound, self._clock(), busy, usual, owed)
        limit = self._capacity.limit_to_take(key)
        return _admitted(args[0], self._database.call("admit", key, (*args, limit), sync=False))

    async def claim_next(
        self, key: str, opening: OpeningMessages = lambda _turn: (), *, release: bool = False
    ) -> Turn | None:
        if self._before_claim is not None:
            await self._before_claim()
        now = self._clock()
        claimed = await self._call_if_free("claim", key, (now,), (release,), sync=False)
        if claimed is None:
            return None
        _, epoch, attempts, described = claimed
        if described is None:  # its conversation was deleted meanwhile
            return None
        turn = make_turn(described, epoch, attempts)
        if not (messages := opening(turn)):
            return turn
        args = (turn.id, epoch, now, [message_args(Said(message)) for message in messages], (), ())
        recorded = self._database.call("record", key, args, sync=False)
        recorded.add_done_callback(_ignore_result)  # if it is lost or fenced, so is every later write of the turn
        return msgspec.structs.replace(turn, said=(*turn.said, *messages), unpublished=messages)

    async def holder(self, key: str) -> str | None:
        host = await self._database.look("holder", key)
        return str(host) if self._processes.is_alive(host) else None

    async def has_pending(self, key: str) -> bool:
        return bool(await self._database.look("pending", key))

    async def _call_if_free(
        self, verb: str, key: str, args: tuple[object, ...], more: tuple[object, ...] = (), *, sync: bool = True
    ) -> Any:
        """Call a verb that needs the session, and takes the workers known to be dead between `args` and `more`. Raises
        `SessionHeld` while another live process holds it."""
        found = await self._database.call(verb, key, (*args, (), *more), sync=sync)
        if found and found[0] == "held" and not self._processes.is_alive(found[1]):
            found = await self._database.call(verb, key, (*args, (found[1],), *more), sync=sync)
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
    mode, ahead, holder = found
    return AdmittedTurn(turn, mode, tuple(PendingTurn(*row) for row in ahead), holder)


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


def make_turn(described: list[Any], epoch: int, attempts: int) -> Turn:
    """A turn as `describe_turn` returns it: with the messages that the model sees in it, as its claim left it."""
    id, session, inbound, created, model, effort, tools_off, sections, *rest = described
    queue_empty, before, own, summaries, calls = rest
    rows: list[history.HistoryRow] = [*before, *own]
    compaction, newest = history.choose_summary(summaries, [row[0] for row in rows])
    return Turn(
        id=id,
        session=session,
        inbound=Decoders.inbound.decode(inbound),
        session_started=created,
        model=model,
        effort=effort,
        tools_off=tuple(tools_off.split()),
        prompt_sections=sections,
        history=history.decode_messages(before),
        said=history.decode_messages(own),
        tool_results={id: None if text is None else Decoders.result.decode(text) for id, text in calls},
        epoch=epoch,
        attempt=attempts,
        queue_empty=queue_empty,
        compaction=compaction,
        measured_tokens=history.last_counted_tokens(rows, newest),
    )
