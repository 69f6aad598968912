"""One model call with retries, and the fallback to other models."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from msgspec import Struct, field

from alipes.agent.tool_calls import never_stopped
from alipes.kernel.errors import (
    AlipesError,
    ConfigError,
    ContextTooLong,
    LimitReached,
    NotAuthorised,
    OutOfCredit,
    ProviderError,
    Refused,
    Transient,
)
from alipes.kernel.ports import CheckStop, Emit, Provider, Request
from alipes.kernel.turns import ModelReply, Notice, Retracted, ToolCallBegun, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import HookDispatcher
from alipes.plugins.specs import ModelAttempt
from alipes.providers.registry import Backend
from alipes.runtime.tasks import backoff

RATE_LIMIT_WAITS_S, OUTAGE_WAITS_S = (2.0, 5.0, 15.0, 30.0), (1.0, 2.0, 5.0, 10.0)
"""The waits after a rate limit and after an error of the server, unless the server names another."""
SHORT_WAIT_S = 5.0
"""The longest wait if another model can take over."""
UNNAMED_WAIT_S = 300.0
"""How long a turn waits for a limit whose reset the server does not name."""


class RetryPolicy(Struct, frozen=True):
    """How often and how long to retry; clock, sleep and random source are replaceable."""

    attempts: int = 5
    max_wait: float = 120.0
    """Seconds to wait in total for one answer; a server that asks for more is given up."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    random: Callable[[], float] = random.random


class CallProgress:
    """How much of a model call was received; for a call that is cut off, whose usage nobody reports."""

    def __init__(self) -> None:
        self.is_open = False
        """A request was sent and its answer is not complete."""
        self.received_chars = 0

    def begin(self) -> None:
        self.is_open, self.received_chars = True, 0

    def end(self) -> None:
        self.is_open = False


class ModelCallContext(Struct, frozen=True):
    """The context of a model call: the turn, where events go, and the retry policy."""

    turn: Turn
    emit: Emit
    retry: RetryPolicy = RetryPolicy()
    hooks: HookDispatcher = HookDispatcher()
    check_stop: CheckStop = never_stopped
    progress: CallProgress = field(default_factory=CallProgress)
    has_fallback: Callable[[], bool] = lambda: False
    """Another model takes over if this one fails: then there is one short wait only."""
    call_begun: Callable[[str], None] = lambda _name: None
    """Called with the name of a tool when the model begins to write a call of it."""


async def call_model(backend: Backend, request: Request, context: ModelCallContext, step: int = 1) -> ModelReply:
    """The model's whole answer. Each retry is announced; text of a failed answer is retracted.

    Raises `Transient` when the retries are used up, `Refused` also for a refusal in words, and every other
    `ProviderError` at once.
    """
    waited, retry = 0.0, context.retry
    number, limit = 1, _count_attempts(context, falls_back=context.has_fallback())
    while True:
        attempt = ModelAttempt(os.urandom(8).hex(), backend.name, request, step, number, limit, time.time())
        try:
            return await _attempt_call(backend, attempt, context)
        except Transient as error:
            pause = _choose_pause(error, number, retry)
            falls_back = context.has_fallback() and not (error.is_limit and backend.on_limit != "fallback")
            limit = _count_attempts(context, falls_back=falls_back)
            if number >= limit or (falls_back and pause > SHORT_WAIT_S):
                raise
            if waited + pause > retry.max_wait:
                asked = f"server asked for a {pause:.0f} s wait; limit is {retry.max_wait:.0f} s"
                longer = Transient(f"{error} ({asked})", error.retry_after, brief=error.brief)
                longer.status = error.status
                raise longer from error
            trouble = error.brief or _name_model(backend.name, str(error))
        await context.emit(Notice(_format_retry(trouble, pause, f"{number + 1}/{limit}"), live=True))
        await retry.sleep(pause)
        waited += pause
        number += 1


def _count_attempts(context: ModelCallContext, *, falls_back: bool) -> int:
    return min(context.retry.attempts, 2) if falls_back else context.retry.attempts


def _choose_pause(error: Transient, number: int, retry: RetryPolicy) -> float:
    """Seconds to wait after attempt `number`: what the server asks for, else longer each time."""
    if error.retry_after:
        return error.retry_after
    if error.status is None or error.status < 429:
        return backoff(number, retry.random)
    waits = RATE_LIMIT_WAITS_S if error.status == 429 else OUTAGE_WAITS_S
    return waits[min(number, len(waits)) - 1] * (1 + retry.random() / 10)  # not all turns at the same moment


def _name_model(model: str, trouble: str) -> str:
    """`openai/gpt: the trouble`. The model is named unless its provider is."""
    return trouble if trouble.startswith(model.partition("/")[0]) else f"{model}: {trouble}"


def _format_retry(trouble: str, pause: float, attempt: str) -> str:
    """`Rate limit of openai reached. Retrying in 3 s (2/5)`."""
    wait = f" in {pause:.0f} s" if pause >= 1 else ""
    return f"{trouble.rstrip('. ')}. Retrying{wait} ({attempt})"


async def _attempt_call(backend: Backend, attempt: ModelAttempt, context: ModelCallContext) -> ModelReply:
    """One attempt, with its hooks."""
    hooks, turn, began = context.hooks, context.turn, context.retry.clock()

    async def go(request: Request) -> ModelReply:
        await context.check_stop()
        return await _read_stream(backend.provider, request, context)

    await context.check_stop()
    await hooks.notify(specs.request_sent, attempt=attempt, turn=turn)
    try:
        reply = await hooks.wrap(specs.around_request, go, attempt.request, turn=turn)
    except ProviderError as error:
        again = isinstance(error, Transient) and attempt.number < attempt.limit
        await hooks.notify(specs.request_failed, attempt=attempt, error=error, again=again, turn=turn)
        raise
    seconds = context.retry.clock() - began
    await hooks.notify(specs.request_answered, attempt=attempt, reply=reply, seconds=seconds, turn=turn)
    return reply


async def _read_stream(provider: Provider, request: Request, context: ModelCallContext) -> ModelReply:
    reply: ModelReply | None = None
    emit, progress, shown = context.emit, context.progress, False
    progress.begin()
    try:
        async with provider.stream(request) as deltas:
            async for delta in deltas:  # read to the end, also past the reply, so the connection can be reused
                if isinstance(delta, ModelReply):
                    reply = delta
                elif isinstance(delta, ToolCallBegun):
                    context.call_begun(delta.name)
                else:
                    shown = True
                    progress.received_chars += len(delta.text)
                    await emit(delta)
        if reply is None:
            raise Transient("the answer ended early", brief="Connection lost")
        if reply.stop == "refused":
            raise Refused(f"the model declined to answer: {reply.message.text}".rstrip(": "))
    except ProviderError as error:
        progress.end()
        if shown:
            await emit(Retracted(error.brief if isinstance(error, Transient) and error.brief else str(error)))
        raise
    progress.end()
    return reply


T = TypeVar("T")


class ModelOpener(Protocol):
    """Opens a model by name."""

    async def open(self, name: str) -> Backend: ...


class ModelCooldowns:
    """Models that failed recently. Shared by all turns of a process.

    An outage lasts `cooldown` seconds, or as long as the server asked for; missing credit or a wrong key,
    which a person must fix, ten times as long. A refusal concerns one conversation and causes no cooldown.
    """

    def __init__(self, cooldown: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._cooldown, self._clock = cooldown, clock
        self._until: dict[str, float] = {}
        self._answered: set[str] = set()

    def sort_available(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """`names` with the cooling ones last."""
        return tuple(sorted(names, key=self.is_cooling))

    def is_cooling(self, name: str) -> bool:
        return self._until.get(name, 0.0) > self._clock()

    def start_cooldown(self, name: str, error: AlipesError) -> None:
        match error:
            case Transient(retry_after=asked):
                span = max(self._cooldown, asked or 0.0)
            case OutOfCredit() | NotAuthorised():
                span = self._cooldown * 10
            case _:
                return
        self._until[name] = self._clock() + span

    def has_answered(self, name: str) -> bool:
        """True once the model has answered a request of this process."""
        return name in self._answered

    def mark_answered(self, name: str) -> None:
        self._until.pop(name, None)
        self._answered.add(name)


class FallbackModels:
    """The models of one turn, best first. Moves on when one fails, and never back."""

    def __init__(
        self,
        chain: ModelCooldowns,
        models: ModelOpener,
        names: tuple[str, ...],
        *,
        insist: bool = False,
        last_resort: str = "",
    ) -> None:
        """`insist`: the first was chosen by name, so it is tried even while cooling. `last_resort`: a demo model to
        use if none of the others ever answered."""
        self._chain, self._models = chain, models
        self._last_resort = "" if any(map(chain.has_answered, names)) else last_resort
        names = tuple(dict.fromkeys(filter(None, (*names, self._last_resort))))
        self._names = (names[0], *chain.sort_available(names[1:])) if insist else chain.sort_available(names)
        self._aside = "" if self._names[0] == names[0] else f"{names[0]} failed recently"
        self.backend: Backend | None = None
        """The model used last."""

    def has_next(self) -> bool:
        """True if another model takes over when this one fails; a demo model does not count."""
        return any(each != self._last_resort for each in self._names[1:])

    async def call_first_available(self, put: Callable[[Backend], Awaitable[T]], emit: Emit) -> T:
        """The result of `put` for the first model that answers; each change of model is announced.

        Raises `ContextTooLong` at once, and `LimitReached` if the provider is set to wait at a limit; if no model is
        left, the error of the first one.
        """
        if self._aside:
            await emit(Notice(f"{self._aside}; using {self._names[0]}"))
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
                        raise  # a setting to fix, not an outage
                    self._obey_limit(error)
                    self._chain.start_cooldown(name, error)
                    first = first or error
                    if len(self._names) == 1:
                        raise first from None
                    self._names = self._names[1:]
                    await emit(Notice(f"{name} {_describe_failure(error)}; switching to {self._describe_next()}"))
                else:
                    self._chain.mark_answered(name)
                    if name != self._last_resort:  # an outage later on is no reason for a demo model
                        self._names = tuple(each for each in self._names if each != self._last_resort)
                    return given
        finally:
            del first  # breaks the reference cycle to this frame and the turn

    def _obey_limit(self, error: ProviderError | ConfigError) -> None:
        """Raises `LimitReached`, or the error, if its provider is set to wait or to fail at a limit."""
        if self.backend is None or not isinstance(error, ProviderError) or not error.is_limit:
            return
        match self.backend.on_limit:
            case "wait":
                who = self.backend.name.partition("/")[0]
                brief = error.brief if isinstance(error, Transient) else ""
                raise LimitReached(brief or f"Limit of {who} reached", error.retry_after or UNNAMED_WAIT_S) from error
            case "fail":
                raise error

    def _describe_next(self) -> str:
        name = self._names[0]
        return name + (". Choose another with /model or `alipes setup`" if name == self._last_resort else "")

    async def _open(self, name: str) -> Backend:
        if self.backend is None or self.backend.name != name:
            self.backend = await self._models.open(name)
        return self.backend


def _describe_failure(error: AlipesError) -> str:
    match error:
        case OutOfCredit():
            return "is out of credit"
        case NotAuthorised():
            return "rejected the API key"
        case Refused():
            return "declined to answer"
        case Transient():
            return f"is unavailable ({error})"
        case _:
            return f"cannot be used ({error})"
