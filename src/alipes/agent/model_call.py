"""Who is asked: the wanted model, and those that stand in for it while it rests. It asks nothing itself."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from msgspec import Struct

from alipes.agent.tool_calls import going_on
from alipes.kernel.errors import (
    AlipesError,
    ConfigError,
    ContextTooLong,
    NotAuthorised,
    OutOfCredit,
    ProviderError,
    Refused,
    Transient,
)
from alipes.kernel.ports import Emit, Proceed, Provider, Request
from alipes.kernel.turns import Noted, Replied, Retracted, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Relay
from alipes.plugins.specs import Attempt
from alipes.providers.registry import Backend
from alipes.runtime.tasks import backoff


class Patience(Struct, frozen=True):
    """How long we go on asking, and with which clock, sleep and dice."""

    attempts: int = 4
    waiting: float = 120.0
    """Seconds we wait in all for one answer; a server that asks for more is given up."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    dice: Callable[[], float] = random.random


class Asker(Struct, frozen=True):
    """Who asks: the turn, whom it tells, and how patient it is."""

    turn: Turn
    emit: Emit
    patience: Patience = Patience()
    hooks: Relay = Relay()
    proceed: Proceed = going_on


async def ask(backend: Backend, request: Request, asker: Asker, step: int = 1) -> Replied:
    """The model's whole answer. Each wait is told; text of an answer that failed is withdrawn.

    Raises `Transient` when patience is used up, `Refused` also for a refusal in words,
    and every other `ProviderError` at once.
    """
    waited, patience, emit = 0.0, asker.patience, asker.emit
    for attempt in range(1, patience.attempts + 1):
        this = Attempt(
            os.urandom(8).hex(), backend.name, request, step, attempt, patience.attempts, time.time()
        )
        try:
            return await _try(backend, this, asker)
        except Transient as error:
            pause = error.retry_after or backoff(attempt, patience.dice)
            if attempt == patience.attempts:
                raise
            if waited + pause > patience.waiting:
                raise Transient(
                    f"{error} (it asks to wait {pause:.0f} s, longer than we wait)", error.retry_after
                ) from error
            trouble = str(error)
        again = f"attempt {attempt + 1} of {patience.attempts}"
        await emit(Noted(f"{backend.name}: {trouble}; asking again in {_span(pause)} ({again})"))
        await patience.sleep(pause)
        waited += pause
    raise AssertionError("the last attempt returns or raises")


async def _try(backend: Backend, attempt: Attempt, asker: Asker) -> Replied:
    """One try, and everyone told of it."""
    hooks, turn, began = asker.hooks, asker.turn, asker.patience.clock()

    async def go(request: Request) -> Replied:
        await asker.proceed()
        return await _listen(backend.provider, request, asker.emit)

    await asker.proceed()
    await hooks.tell(specs.request_sent, attempt=attempt, turn=turn)
    try:
        reply = await hooks.wrap(specs.around_request, go, attempt.request, turn=turn)
    except ProviderError as error:
        again = isinstance(error, Transient) and attempt.number < attempt.limit
        await hooks.tell(specs.request_failed, attempt=attempt, error=error, again=again, turn=turn)
        raise
    seconds = asker.patience.clock() - began
    await hooks.tell(specs.request_answered, attempt=attempt, reply=reply, seconds=seconds, turn=turn)
    return reply


async def _listen(provider: Provider, request: Request, emit: Emit) -> Replied:
    reply: Replied | None = None
    shown = False
    try:
        async with provider.stream(request) as deltas:
            async for delta in deltas:  # to the very end, also past the reply: so the connection is kept
                if isinstance(delta, Replied):
                    reply = delta
                else:
                    shown = True
                    await emit(delta)
        if reply is None:
            raise Transient("the answer broke off before its end")
        if reply.stop == "refused":
            raise Refused(f"the model declined to answer: {reply.message.text}".rstrip(": "))
    except ProviderError as error:
        if shown:
            await emit(Retracted(str(error)))
        raise
    return reply


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


T = TypeVar("T")


class Opens(Protocol):
    """Whoever can open a model by its name."""

    async def open(self, name: str) -> Backend: ...


class Chain:
    """Lives longer than a turn: a model that failed rests a while, then it is first again.

    An outage rests for `cooldown` seconds, or as long as the server asked for; a missing
    payment or a wrong key, which a person must mend, ten times as long. A refusal concerns
    one conversation, so it rests nobody.
    """

    def __init__(self, cooldown: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._cooldown, self._clock = cooldown, clock
        self._until: dict[str, float] = {}

    def order(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """`names` with the resting ones last, because a tired model is better than none."""
        return tuple(sorted(names, key=self.resting))

    def resting(self, name: str) -> bool:
        return self._until.get(name, 0.0) > self._clock()

    def rest(self, name: str, error: AlipesError) -> None:
        match error:
            case Transient(retry_after=asked):
                span = max(self._cooldown, asked or 0.0)
            case OutOfCredit() | NotAuthorised():
                span = self._cooldown * 10
            case _:
                return
        self._until[name] = self._clock() + span

    def wake(self, name: str) -> None:
        self._until.pop(name, None)


class Line:
    """The models of one turn, best first. It moves on when one cannot answer, and never back."""

    def __init__(self, chain: Chain, models: Opens, names: tuple[str, ...], *, insist: bool = False) -> None:
        """`insist`: the first was asked for by name, so it is asked even while it rests."""
        self._chain, self._models = chain, models
        names = tuple(dict.fromkeys(names))
        self._names = (names[0], *chain.order(names[1:])) if insist else chain.order(names)
        self._aside = "" if self._names[0] == names[0] else f"{names[0]} rests after a failure"
        self.backend: Backend | None = None
        """Whoever was asked last."""

    async def through(self, put: Callable[[Backend], Awaitable[T]], emit: Emit) -> T:
        """What `put` gives for the first model that can answer; each change of model is told.

        Raises `ContextTooLong` at once; when nobody is left, the error of the first asked.
        """
        if self._aside:
            await emit(Noted(f"{self._aside}; asking {self._names[0]}"))
            self._aside = ""
        first: AlipesError | None = None
        try:
            while True:
                name = self._names[0]
                try:
                    backend = await self._open(name)
                    given = await put(backend)
                except ContextTooLong:
                    raise
                except (ProviderError, ConfigError) as error:
                    if first is None and isinstance(error, ConfigError):
                        raise  # a setting to be mended, not an outage to be lived through
                    self._chain.rest(name, error)
                    first = first or error
                    if len(self._names) == 1:
                        raise first from None
                    self._names = self._names[1:]
                    await emit(Noted(f"{name} {_why(error)}; going on with {self._names[0]}"))
                else:
                    self._chain.wake(name)
                    return given
        finally:
            del first  # it leads back to us, and to all that the turn holds

    async def _open(self, name: str) -> Backend:
        if self.backend is None or self.backend.name != name:
            self.backend = await self._models.open(name)
        return self.backend


def _why(error: AlipesError) -> str:
    match error:
        case OutOfCredit():
            return "is out of credit"
        case NotAuthorised():
            return "does not accept our key"
        case Refused():
            return "declined to answer"
        case Transient():
            return f"does not answer ({error})"
        case _:
            return f"cannot be asked ({error})"
