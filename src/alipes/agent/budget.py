"""What may be spent: every model call passes here first, and waits for a person's word where a limit is met.

A limit is met when what was used reaches it. So one call may pass it, and no second is made: calls that
run side by side begin together only while even their worst case fits, else one after the other. What is
counted is a person's turn with all that is lived for it, and what is asked is asked of that person.
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

from alipes.agent.compaction.plan import fixed, letters
from alipes.agent.model_call import Asker, ask
from alipes.agent.tool_calls import AskPerson
from alipes.config.settings_parts import Amount, Spend
from alipes.kernel.conversations import withheld
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import money
from alipes.kernel.messages import ToolCall
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Emit, Request
from alipes.kernel.turns import Ending, Noted, Replied, Turn, Usage
from alipes.kernel.usage import Bill, Billed, Sum
from alipes.providers.catalog import cost
from alipes.providers.registry import Backend

NAME = "spend"
_WHERE = {"per_turn": "this turn", "per_session": "this conversation", "per_day": "today"}


class Spent(ToolError):
    """A limit is met and nobody let us go on. Inside a tool the model reads it; the turn ends at its next
    question."""

    def __init__(self, scope: str, limit: Amount, used: Sum, by_person: bool) -> None:
        said = refusal(scope, limit, used)
        super().__init__(
            f"{said}; the person said to stop here"
            if by_person
            else f"{said}, and nobody is here to let it go on: raise that, or ask again with --yes"
        )
        self.ending: Ending = "stopped" if by_person else "failed"


def refusal(scope: str, limit: Amount, used: Sum) -> str:
    return f"{_used(limit, used)} {_were(limit)} used {_in(scope)}; spend.{scope} allows {limit.text}"


def question(scope: str, limit: Amount, used: Sum) -> str:
    """Follows "It"."""
    unpriced = f", beside {used.unpriced:,} calls of unknown price" if used.unpriced and limit.dollars else ""
    return (
        f"has used {_used(limit, used)} {_in(scope)}{unpriced}, and the limit is {limit.text}. Yes, once: as "
        "much again; for this conversation: no more questions about this limit; no: it stops here"
    )


def call(scope: str, limit: Amount, root: Turn, place: str, id: str) -> ToolCall:
    """What is asked about, as a call; equal for equal limits of one conversation and for nothing else."""
    where = f", {place}" if scope == "per_day" else ""
    what = f"go on beyond {scope} = {limit.text} in conversation {root.session}{where}"
    return ToolCall(f"{NAME}-{id}", NAME, {"command": what})


def worst(request: Request, facts: ModelFacts) -> Usage:
    """More than a call will use: every second letter a token, and an answer as long as it may be."""
    usage = Usage(input=(fixed(request) + letters(request.messages)) // 2, output=request.max_tokens)
    return Usage(input=usage.input, output=usage.output, cost=cost(usage, facts))


def priced(reply: Replied, facts: ModelFacts) -> Replied:
    """The answer with what it cost, where the provider did not say and we know."""
    if reply.usage.cost is not None:
        return reply
    return structs.replace(reply, usage=structs.replace(reply.usage, cost=cost(reply.usage, facts)))


def _used(limit: Amount, used: Sum) -> str:
    return money(used.dollars) if limit.dollars is not None else f"{used.tokens:,} tokens"


def _were(limit: Amount) -> str:
    return "was" if limit.dollars is not None else "were"


def _in(scope: str) -> str:
    return _WHERE[scope] if scope == "per_day" else f"in {_WHERE[scope]}"


REMEMBERED = 100
"""Turns that were told to stop."""
Scope: TypeAlias = Literal["per_turn", "per_session", "per_day"]


class Slip(Struct, eq=False):
    """A call that was let through: what it may use at worst, later what it did, until that is on the bill."""

    root: Turn
    usage: Usage
    idle: bool = False
    """Calls that are made inside it are counted instead."""
    owed: bool = False
    """It is not on the bill when the call is over: whoever set this says `kept` when it is."""


class _Limit(Struct, frozen=True):
    scope: Scope
    amount: Amount
    place: str
    """What it is counted over: a turn, a session, a day."""


_HELD: ContextVar[Slip | None] = ContextVar("slip", default=None)


class Spending:
    """One for all turns of a process: it knows what is under way."""

    def __init__(
        self,
        bill: Bill,
        limits: Spend | None = None,
        consent: AskPerson | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.bill = bill
        self._limits, self._consent, self._clock = limits or Spend(), consent, clock
        self._flight: set[Slip] = set()
        self._news = asyncio.Event()
        self._version = 0
        self._helpings: dict[_Limit, int] = {}
        """How often as much again was allowed."""
        self._lifted: set[tuple[_Limit, str]] = set()
        """Limits that a session, or a turn, is no more asked about."""
        self._refused: dict[str, tuple[str, Amount, Sum, bool]] = {}
        """By turn, the word that ended it; kept for what may still be made for that turn."""
        self._noted: set[str] = set()
        self._lanes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def limited(self) -> bool:
        return self._limits != Spend()

    @asynccontextmanager
    async def call(self, turn: Turn, worst: Usage, emit: Emit | None = None) -> AsyncIterator[Slip]:
        """Around one model call and the writing of its bill. Raises `Spent` where it may not be made."""
        slip = await self._admitted(turn, worst, emit) if self.limited else Slip(turn, worst)
        token = _HELD.set(slip)
        try:
            yield slip
        finally:
            _HELD.reset(token)
            if not slip.owed:
                self.kept(slip)

    async def met(self, turn: Turn) -> bool:
        """Would a call have to be asked about now?"""
        root = await self.bill.root(turn)
        return any(self._left(limit, used) <= 0 for limit, used in await self._sums(root))

    async def owe(self, entry: Billed) -> None:
        """Put on the bill what no transcript will tell of."""
        await self.bill.add(entry)
        self._tell()

    def kept(self, *slips: Slip) -> None:
        """What they used is on the bill now."""
        self._flight.difference_update(slips)
        self._tell()

    def _tell(self) -> None:
        self._version += 1
        self._news.set()
        self._news = asyncio.Event()

    async def _admitted(self, turn: Turn, worst: Usage, emit: Emit | None) -> Slip:
        root = await self.bill.root(turn)
        if (outer := _HELD.get()) is not None and not outer.idle:
            outer.idle = True
            self._tell()
        slip = Slip(root, worst)
        await self._doubt(root, worst, emit)
        while True:
            if (refused := self._refused.get(root.id)) is not None:
                raise Spent(*refused)
            news, version = self._news, self._version
            sums = await self._sums(root)
            if version != self._version:
                continue
            for limit, used in sums:
                if self._left(limit, used) <= 0:
                    await self._pause(limit, root, emit)
                    break
            else:
                if all(self._fits(limit, used, slip) for limit, used in sums):
                    self._flight.add(slip)
                    return slip
                await news.wait()

    def _limits_of(self, root: Turn) -> list[_Limit]:
        day = time.strftime("%Y-%m-%d", time.localtime(self._clock()))
        each = (
            ("per_turn", self._limits.per_turn, root.id),
            ("per_session", self._limits.per_session, root.session),
            ("per_day", self._limits.per_day, day),
        )
        known = [_Limit(scope, amount, place) for scope, amount, place in each if amount is not None]  # type: ignore[arg-type]
        return [each for each in known if not {(each, root.session), (each, root.id)} & self._lifted]

    async def _sums(self, root: Turn) -> list[tuple[_Limit, Sum]]:
        now = self._clock()
        return [(limit, await _sum(self.bill, limit, root, now)) for limit in self._limits_of(root)]

    def _left(self, limit: _Limit, used: Sum, more: tuple[Slip, ...] = ()) -> float:
        """What of the limit is not used."""
        times = 1 + self._helpings.get(limit, 0)
        if limit.amount.tokens is not None:
            tokens = sum(each.usage.input + each.usage.output for each in more)
            return limit.amount.tokens * times - used.tokens - tokens
        dollars = sum(each.usage.cost or 0.0 for each in more)
        return (limit.amount.dollars or 0.0) * times - used.dollars - dollars

    def _fits(self, limit: _Limit, used: Sum, slip: Slip) -> bool:
        """May it begin now? Alone it may; beside others only if all together cannot pass the limit."""
        crowd = tuple(each for each in self._flight if not each.idle and _within(limit, each.root))
        return not crowd or self._left(limit, used, (*crowd, slip)) >= 0

    async def _pause(self, limit: _Limit, root: Turn, emit: Emit | None) -> None:
        """Ask whether to go on. Comes back if so, or if there is no need any more."""
        async with self._lanes.setdefault(root.key, asyncio.Lock()):
            used = await _sum(self.bill, limit, root, self._clock())
            lifted = {(limit, root.session), (limit, root.id)} & self._lifted
            if lifted or root.id in self._refused or self._left(limit, used) > 0:
                return
            if root.inbound.trusted:
                self._lifted.add((limit, root.id))
                await _note(emit, f"{refusal(limit.scope, limit.amount, used)}; going on, as --yes said")
                return
            reason = question(limit.scope, limit.amount, used)
            asked = call(limit.scope, limit.amount, root, limit.place, os.urandom(4).hex())
            word = None if self._consent is None else await self._consent(asked, reason, root)
            if withheld(word):
                if len(self._refused) > REMEMBERED:
                    del self._refused[next(iter(self._refused))]
                self._refused[root.id] = limit.scope, limit.amount, used, word == "no"
            elif word == "once":
                self._helpings[limit] = self._helpings.get(limit, 0) + 1
            else:
                self._lifted.add((limit, root.session))

    async def _doubt(self, root: Turn, worst: Usage, emit: Emit | None) -> None:
        """Say once where money is limited and a price is not known."""
        money = [each for each in self._limits_of(root) if each.amount.dollars is not None]
        if worst.cost is None and money and emit is not None and root.session not in self._noted:
            self._noted.add(root.session)
            names = ", ".join(f"{each.scope} = {each.amount.text}" for each in money)
            await _note(emit, f"the price of this model is unknown, so {names} does not count what it uses")


async def _sum(bill: Bill, limit: _Limit, root: Turn, now: float) -> Sum:
    match limit.scope:
        case "per_turn":
            return await bill.turn(root)
        case "per_session":
            return await bill.session(root.session)
        case "per_day":
            return await bill.since(_midnight(now))


def _within(limit: _Limit, root: Turn) -> bool:
    return limit.scope == "per_day" or limit.place in (root.id, root.session)


def _midnight(now: float) -> float:
    year, month, day, *_ = time.localtime(now)
    return time.mktime((year, month, day, 0, 0, 0, 0, 0, -1))


async def _note(emit: Emit | None, text: str) -> None:
    if emit is not None:
        await emit(Noted(text))


class Purse:
    """What an answer used is on the bill when its message is kept; until then it counts from here."""

    def __init__(self, spending: Spending | None, asker: Asker) -> None:
        self._spending, self._asker = spending, asker
        self._slips: list[Slip] = []

    async def ask(self, backend: Backend, request: Request, question: int) -> Replied:
        """The answer, and what it cost. Raises `Spent` where it may not be asked for."""
        if self._spending is None or not self._spending.limited:
            return priced(await ask(backend, request, self._asker, question), backend.facts)
        usage = worst(request, backend.facts)
        async with self._spending.call(self._asker.turn, usage, self._asker.emit) as slip:
            reply = priced(await ask(backend, request, self._asker, question), backend.facts)
            slip.usage, slip.owed = reply.usage, True
            self._slips.append(slip)
        return reply

    def let_go(self) -> None:
        """What was used is on the bill, or we are not there any more to put it there."""
        if self._spending is not None:
            self._spending.kept(*self._slips)
        self._slips.clear()

    async def settle(self, owed: Usage | None, backend: Backend | None) -> None:
        """Put on the bill what was used for answers that nobody got."""
        if owed is not None and backend is not None and self._spending is not None:
            await self._spending.owe(Billed(self._asker.turn, "answer", backend.name, owed))
