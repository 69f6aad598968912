"""Spending limits: every model call is checked first, and a person is asked when a limit is reached.

A limit is reached when usage is at or above it. One call may exceed it, but no second one is made: calls run
in parallel only while even their worst case fits, otherwise one after the other. A person's turn is counted
together with all turns that work for it, and that person is asked.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct, structs

from alipes.agent.model_call import ModelCallContext, call_model
from alipes.agent.tool_calls import AskApproval
from alipes.config.loader import parse_amount
from alipes.config.settings import Amount, SpendConfig
from alipes.kernel.conversations import DeniedBecause, denial_reason
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_money
from alipes.kernel.messages import ToolCall, count_chars
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Emit, Request
from alipes.kernel.turns import Ending, ModelReply, Notice, Turn, Usage
from alipes.providers.registry import Backend, compute_cost
from alipes.store.sql.usage import UsageLedger, UsageRecord, UsageTotal

APPROVAL_NAME = "spend"
ESTIMATED_TASK = "stopped answer (estimated)"
"""The task under which the usage of a call that was cut off is recorded."""
Scope: TypeAlias = Literal["budget", "per_turn", "per_session", "per_day"]
_WHERE = {
    "budget": "in this run",
    "per_turn": "in this turn",
    "per_session": "in this conversation",
    "per_day": "today",
}


class BudgetExceeded(ToolError):
    """A limit is reached and nobody allowed more. Inside a tool the model reads it; the turn ends at its next
    request."""

    def __init__(self, limit: "SpendingLimit", used: UsageTotal, by_person: bool) -> None:
        why = "; stopped by the user" if by_person else ", and nobody can approve more: raise the limit, or use --yes"
        super().__init__(limit.describe(used) + why)
        self.ending: Ending = "stopped" if by_person else "failed"


class SpendingLimit(Struct, frozen=True):
    scope: Scope
    amount: Amount
    place: str
    """What it is counted over: a turn, a session, a day."""

    def covers(self, root: Turn) -> bool:
        return self.scope == "per_day" or self.place in (root.id, root.session)

    def describe(self, used: UsageTotal) -> str:
        name = "the budget of this message" if self.scope == "budget" else f"spend.{self.scope}"
        return f"{self._used(used)} used {_WHERE[self.scope]}; the limit is {name} = {self.amount.text}"

    def approval_reason(self, used: UsageTotal) -> str:
        """Continues a sentence that starts with "It"."""
        unpriced = used.unpriced and self.amount.dollars
        without = f", not counting {used.unpriced:,} calls of unknown price" if unpriced else ""
        return (
            f"has used {self._used(used)} {_WHERE[self.scope]}{without}; the limit is {self.amount.text}. Once: "
            "allow the same amount again. This session: do not ask about this limit again. No: stop here"
        )

    def approval_call(self, root: Turn) -> ToolCall:
        """The question as a call; equal only for the same limit of the same conversation."""
        where = f", {self.place}" if self.scope == "per_day" else ""
        what = f"continue beyond {self.scope} = {self.amount.text} in conversation {root.session}{where}"
        return ToolCall(f"{APPROVAL_NAME}-{os.urandom(4).hex()}", APPROVAL_NAME, {"command": what})

    def _used(self, used: UsageTotal) -> str:
        return format_money(used.dollars) if self.amount.dollars is not None else f"{used.tokens:,} tokens"


def worst_case(request: Request, facts: ModelFacts) -> Usage:
    """An upper bound: one token per two characters, and the longest possible answer."""
    usage = Usage(input=(request.fixed_chars + count_chars(request.messages)) // 2, output=request.max_tokens)
    return Usage(input=usage.input, output=usage.output, cost=compute_cost(usage, facts))


CHARS_PER_TOKEN = 4


def estimate_usage(request: Request, received_chars: int, facts: ModelFacts) -> Usage:
    """The likely usage of a call that was cut off before its server reported it."""
    sent_chars = request.fixed_chars + count_chars(request.messages)
    usage = Usage(input=sent_chars // CHARS_PER_TOKEN + 1, output=received_chars // CHARS_PER_TOKEN)
    return structs.replace(usage, cost=compute_cost(usage, facts))


def with_cost(reply: ModelReply, facts: ModelFacts) -> ModelReply:
    """The reply with its cost, if the provider did not report it and the price is known."""
    if reply.usage.cost is not None:
        return reply
    return structs.replace(reply, usage=structs.replace(reply.usage, cost=compute_cost(reply.usage, facts)))


REMEMBERED = 100
"""How many refused turns are remembered."""


class Reservation(Struct, eq=False):
    """An allowed call: its worst case, later its actual usage, until that is recorded."""

    root: Turn
    usage: Usage
    idle: bool = False
    """Calls made inside it are counted instead."""
    unrecorded: bool = False
    """Not recorded yet when the call ends: the caller that set this calls `release` once it is."""


_HELD: ContextVar[Reservation | None] = ContextVar("reservation", default=None)


class SpendingLimits:
    """One per process: knows all calls in progress."""

    def __init__(
        self,
        ledger: UsageLedger,
        limits: SpendConfig | None = None,
        ask_approval: AskApproval | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.bill = ledger
        self._limits, self._consent, self._clock = limits or SpendConfig(), ask_approval, clock
        self._flight: set[Reservation] = set()
        self._news = asyncio.Event()
        self._version = 0
        self._helpings: dict[SpendingLimit, int] = {}
        """How often the same amount was allowed again."""
        self._lifted: set[tuple[SpendingLimit, str]] = set()
        """Limits that are no longer asked about, by session or turn."""
        self._refused: dict[str, tuple[SpendingLimit, UsageTotal, bool]] = {}
        """By turn, the refusal that ended it; applies to later calls for that turn too."""
        self._noted: set[str] = set()
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def limits(self, turn: Turn) -> bool:
        """True if calls of the turn may be refused. A turn that works for another has the budget of that one."""
        return self._limits != SpendConfig() or bool(turn.inbound.budget or turn.inbound.parent)

    @asynccontextmanager
    async def reserve(self, turn: Turn, worst: Usage, emit: Emit | None = None) -> AsyncIterator[Reservation]:
        """Around one model call and the recording of its usage. Raises `BudgetExceeded`."""
        reservation = await self._admitted(turn, worst, emit) if self.limits(turn) else Reservation(turn, worst)
        token = _HELD.set(reservation)
        try:
            yield reservation
        finally:
            _HELD.reset(token)
            if not reservation.unrecorded:
                self.release(reservation)

    async def is_reached(self, turn: Turn) -> bool:
        """True if the next call would need approval."""
        root = await self.bill.root_turn(turn)
        return any(self._left(limit, used) <= 0 for limit, used in await self._sums(root))

    async def record(self, entry: UsageRecord) -> None:
        """Record usage that is not part of a transcript."""
        await self.bill.add(entry)
        self._tell()

    def release(self, *reservations: Reservation) -> None:
        """Their usage is recorded now."""
        self._flight.difference_update(reservations)
        self._tell()

    def _tell(self) -> None:
        self._version += 1
        self._news.set()
        self._news = asyncio.Event()

    async def _admitted(self, turn: Turn, worst: Usage, emit: Emit | None) -> Reservation:
        root = await self.bill.root_turn(turn)
        if (outer := _HELD.get()) is not None and not outer.idle:
            outer.idle = True
            self._tell()
        reservation = Reservation(root, worst)
        await self._doubt(root, worst, emit)
        while True:
            if (refused := self._refused.get(root.id)) is not None:
                raise BudgetExceeded(*refused)
            news, version = self._news, self._version
            sums = await self._sums(root)
            if version != self._version:
                continue
            for limit, used in sums:
                if self._left(limit, used) <= 0:
                    await self._pause(limit, root, emit)
                    break
            else:
                if all(self._fits(limit, used, reservation) for limit, used in sums):
                    self._flight.add(reservation)
                    return reservation
                await news.wait()

    def _limits_of(self, root: Turn) -> list[SpendingLimit]:
        day = time.strftime("%Y-%m-%d", time.localtime(self._clock()))
        places: dict[Scope, str] = {"per_turn": root.id, "per_session": root.session, "per_day": day}
        amounts = ((scope, getattr(self._limits, scope), place) for scope, place in places.items())
        known = [SpendingLimit(scope, amount, place) for scope, amount, place in amounts if amount is not None]
        if (budget := parse_amount(root.inbound.budget)) is not None:
            known.append(SpendingLimit("budget", budget, root.id))
        return [each for each in known if not {(each, root.session), (each, root.id)} & self._lifted]

    async def _sums(self, root: Turn) -> list[tuple[SpendingLimit, UsageTotal]]:
        now = self._clock()
        return [(limit, await _sum(self.bill, limit, root, now)) for limit in self._limits_of(root)]

    def _left(self, limit: SpendingLimit, used: UsageTotal, more: tuple[Reservation, ...] = ()) -> float:
        times = 1 + self._helpings.get(limit, 0)
        if limit.amount.tokens is not None:
            tokens = sum(each.usage.input + each.usage.output for each in more)
            return limit.amount.tokens * times - used.tokens - tokens
        dollars = sum(each.usage.cost or 0.0 for each in more)
        return (limit.amount.dollars or 0.0) * times - used.dollars - dollars

    def _fits(self, limit: SpendingLimit, used: UsageTotal, reservation: Reservation) -> bool:
        """May it start now? Alone it may; in parallel only if all together stay within the limit."""
        crowd = tuple(each for each in self._flight if not each.idle and limit.covers(each.root))
        return not crowd or self._left(limit, used, (*crowd, reservation)) >= 0

    async def _pause(self, limit: SpendingLimit, root: Turn, emit: Emit | None) -> None:
        """Ask whether to continue. Returns if allowed, or if it is no longer needed."""
        async with self._lanes.setdefault(root.key, asyncio.Lock()):
            used = await _sum(self.bill, limit, root, self._clock())
            lifted = {(limit, root.session), (limit, root.id)} & self._lifted
            if lifted or root.id in self._refused or self._left(limit, used) > 0:
                return
            if root.inbound.trusted:
                self._lifted.add((limit, root.id))
                if emit is not None:
                    await emit(Notice(f"{limit.describe(used)}; continuing because of --yes"))
                return
            asked, reason = limit.approval_call(root), limit.approval_reason(used)
            word = None if self._consent is None else await self._consent(asked, reason, root)
            if denial_reason(word):
                if len(self._refused) > REMEMBERED:
                    del self._refused[next(iter(self._refused))]
                self._refused[root.id] = limit, used, word == "no" or isinstance(word, DeniedBecause)
            elif word == "once":
                self._helpings[limit] = self._helpings.get(limit, 0) + 1
            else:
                self._lifted.add((limit, root.session))

    async def _doubt(self, root: Turn, worst: Usage, emit: Emit | None) -> None:
        """Tell once per session that a dollar limit cannot count a model of unknown price."""
        money = [each for each in self._limits_of(root) if each.amount.dollars is not None]
        if worst.cost is None and money and emit is not None and root.session not in self._noted:
            self._noted.add(root.session)
            names = ", ".join(f"{each.scope} = {each.amount.text}" for each in money)
            await emit(Notice(f"the price of this model is unknown, so {names} does not cover it"))


async def _sum(bill: UsageLedger, limit: SpendingLimit, root: Turn, now: float) -> UsageTotal:
    match limit.scope:
        case "per_turn" | "budget":
            return await bill.turn_total(root)
        case "per_session":
            return await bill.session_total(root.session)
        case "per_day":
            year, month, day, *_ = time.localtime(now)
            return await bill.total_since(time.mktime((year, month, day, 0, 0, 0, 0, 0, -1)))


class TurnBudget:
    """The budget of one turn: checks limits before each model call and records its cost."""

    def __init__(self, spending: SpendingLimits | None, context: ModelCallContext) -> None:
        self._spending, self._context = spending, context
        self._reservations: list[Reservation] = []
        self._unrecorded: Usage | None = None
        """Usage of answers that are not in the transcript: new ones, and those that were discarded."""
        self._last: tuple[Backend, Request] | None = None
        """The call made last."""

    async def call(self, backend: Backend, request: Request, question: int) -> ModelReply:
        """The reply with its cost. Raises `BudgetExceeded` if it may not be sent."""
        self._last = backend, request
        if self._spending is None or not self._spending.limits(self._context.turn):
            reply = with_cost(await call_model(backend, request, self._context, question), backend.facts)
        else:
            usage = worst_case(request, backend.facts)
            async with self._spending.reserve(self._context.turn, usage, self._context.emit) as reservation:
                reply = with_cost(await call_model(backend, request, self._context, question), backend.facts)
                reservation.usage, reservation.unrecorded = reply.usage, True
                self._reservations.append(reservation)
        self._unrecorded = reply.usage if self._unrecorded is None else self._unrecorded + reply.usage
        return reply

    async def take_unrecorded(self) -> Usage | None:
        """The usage that the caller records now, with the next message. Does not return once the turn is stopped."""
        await self._context.check_stop()
        unrecorded, self._unrecorded = self._unrecorded, None
        return unrecorded

    def release(self) -> None:
        """The usage is recorded, or the turn was cut off before it could be."""
        if self._spending is not None:
            self._spending.release(*self._reservations)
        self._reservations.clear()

    async def settle(self) -> None:
        """Record the usage of answers that were discarded, and the estimated usage of a call that was cut off."""
        if self._spending is None or self._last is None:
            return
        turn, (backend, request), progress = self._context.turn, self._last, self._context.progress
        unrecorded, self._unrecorded = self._unrecorded, None
        if unrecorded is not None:
            await self._spending.record(UsageRecord(turn, "answer", backend.name, unrecorded))
        if progress.is_open:
            progress.end()
            estimate = estimate_usage(request, progress.received_chars, backend.facts)
            await self._spending.record(UsageRecord(turn, ESTIMATED_TASK, backend.name, estimate))
