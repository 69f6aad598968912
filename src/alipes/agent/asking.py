"""One question to one model: shows what streams, and asks again when the trouble will pass. It ends there."""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from alipes.agent.acting import going_on
from alipes.hooks import specs
from alipes.hooks.relay import Relay
from alipes.hooks.specs import Attempt
from alipes.kernel.errors import ProviderError, Refused, Transient
from alipes.kernel.ports import Emit, Proceed, Provider, Request
from alipes.kernel.turns import Noted, Replied, Retracted, Turn
from alipes.providers.opening import Backend
from alipes.runtime.retry import backoff


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
