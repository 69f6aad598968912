"""One question to one model: shows what streams, and asks again when the trouble will pass. It ends there."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from alipes.kernel.errors import ProviderError, Refused, Transient
from alipes.kernel.ports import Emit, Provider, Request
from alipes.kernel.turns import Noted, Replied, Retracted
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


async def ask(backend: Backend, request: Request, emit: Emit, patience: Patience) -> Replied:
    """The model's whole answer. Each wait is told; text of an answer that failed is withdrawn.

    Raises `Transient` when patience is used up, `Refused` also for a refusal in words,
    and every other `ProviderError` at once.
    """
    waited = 0.0
    for attempt in range(1, patience.attempts + 1):
        try:
            return await _listen(backend.provider, request, emit)
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
