"""Cost of calling plugins, and of plugins that misbehave."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from alipes.kernel.turns import Address, Inbound, Notice, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE, PluginOwner
from alipes.runtime.watchdog import LOOP_ACTIVITY, Watchdog
from bench.measure import Row, bounded

TURN = Turn("t", "s", Inbound("1", Address("bench", "me"), "me", "hi"))
EVENT = Notice("x")
LAPS, EVENTS = 7, 5_000
BLOCK, FOREVER = 1.0, 10**6
HANGS = 20


async def observe(event: object, turn: object) -> None: ...


def observe_plainly(event: object, turn: object) -> None: ...


async def observe_and_yield(event: object, turn: object) -> None:
    await asyncio.sleep(0)


async def sleeps(event: object) -> None:
    time.sleep(FOREVER)


async def loops(event: object) -> None:
    while True:
        pass


async def swallows(event: object) -> None:
    while True:
        try:
            time.sleep(FOREVER)
        except BaseException:
            continue


async def relay() -> list[Row]:
    async with Watchdog():
        rows = [*await _costs(), *await _stops()]
        return [*rows, await _named(), *[await _free(hook) for hook in (sleeps, loops, swallows)]]


async def _costs() -> list[Row]:
    async def bare() -> None:
        for _ in range(10):
            await observe(event=EVENT, turn=TURN)

    async def yielding() -> None:
        for _ in range(10):
            async with asyncio.timeout(5):
                await observe_and_yield(event=EVENT, turn=TURN)

    no_hooks, ten, plain, waiting, limit, timed = await _in_turn(
        _notify(), _notify(observe), _notify(observe_plainly), _notify(observe_and_yield), bare, yielding
    )
    entry = _hooks(observe).dispatcher._entries["on_event"][0]
    began = time.perf_counter()
    for _ in range(100_000):
        LOOP_ACTIVITY.end(LOOP_ACTIVITY.begin(entry))
    watched = (time.perf_counter() - began) * 10
    return [
        bounded("relay, no plugin, per event", no_hooks, 2, "us"),
        _compare_us("relay, ten async observers / ten bare coroutines", ten, limit, 50),
        _compare_us("relay, ten sync observers / ten bare coroutines", plain, limit, 50),
        _compare_us("relay, ten that yield once / the same in asyncio.timeout", waiting, timed, 500),
        bounded("one watched call", watched, 1, "us"),
    ]


def _hooks(*observers: Callable[..., Any]) -> Hooks:
    hooks = Hooks()
    for observer in observers:
        for n in range(10):
            hooks.add(PluginOwner(str(n)), observer, name="on_event")
    return hooks


def _notify(*observers: Callable[..., Any]) -> Callable[[], Awaitable[None]]:
    relay = _hooks(*observers).dispatcher
    return lambda: relay.notify(specs.on_event, event=EVENT, turn=TURN)


async def _in_turn(*sides: Callable[[], Awaitable[None]]) -> list[float]:
    """Microseconds of each side, the best of some laps."""
    best = [float("inf")] * len(sides)
    for _ in range(LAPS):
        for n, side in enumerate(sides):
            began = time.perf_counter()
            for _ in range(EVENTS):
                await side()
            best[n] = min(best[n], (time.perf_counter() - began) / EVENTS * 1e6)
    return best


def _compare_us(what: str, ours: float, limit: float, reach: float) -> Row:
    return Row(what, f"{ours:.2f} us", f"{limit:.2f} us", f"{ours / limit:.1f}", f"<= {reach:g} us", ours <= reach)


async def _stops() -> list[Row]:
    """How long hooks delay a stop beyond their deadline."""

    async def hangs() -> None:
        await asyncio.Event().wait()

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def raises() -> None:
        raise ValueError

    logging.getLogger("alipes.plugins").setLevel(logging.CRITICAL)
    rows = []
    for what, hook, deadline in (("raising", raises, 0.0), ("hanging", hangs, 0.2), ("stubborn", stubborn, 0.2)):
        hooks = Hooks(deadline=deadline or 5.0)
        for n in range(10):
            hooks.add(PluginOwner(str(n)), hook, name="agent_loop_stopped")
        given = dict.fromkeys(("session_key", "session_id", "turn_id", "platform", "reason"), "")
        began = time.perf_counter()
        await hooks.dispatcher.notify(
            specs.agent_loop_stopped, turn=TURN, invalidation_reason="", tool_call_ids=(), partial_text="", **given
        )
        held = (time.perf_counter() - began - deadline) * 1000
        rows.append(bounded(f"ten hooks, each {what}, hold a stop beyond the deadline", held, 100, "ms"))
    logging.getLogger("alipes.plugins").setLevel(logging.NOTSET)
    return rows


async def _named() -> Row:
    """Time from the call of a blocking sync hook until the log names it."""
    seen: list[float] = []

    class RecordTime(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(time.perf_counter())

    def blocks(event: object) -> None:
        time.sleep(BLOCK)

    handler, logger = RecordTime(), logging.getLogger("alipes.runtime.watchdog")
    hooks = Hooks()
    hooks.add(CORE, blocks, name="on_event")  # core hooks are never interrupted
    async with AsyncExitStack() as stack:
        logger.addHandler(handler)
        logger.propagate = False
        stack.callback(setattr, logger, "propagate", True)
        stack.callback(logger.removeHandler, handler)
        began = time.perf_counter()
        await hooks.dispatcher.notify(specs.on_event, event=EVENT, turn=TURN)
    return bounded(f"a sync hook that blocks {BLOCK:g} s is named after", (seen[0] - began) * 1000, 350, "ms")


async def _free(hook: Callable[..., Any]) -> Row:
    """How long a hook that never returns blocks the loop."""
    took: list[float] = []
    free: list[float] = []
    logging.getLogger("alipes").setLevel(logging.CRITICAL)
    for _ in range(HANGS):
        hooks = Hooks()
        hooks.add(PluginOwner("hung"), hook, name="on_event")
        began = time.perf_counter()
        asyncio.get_running_loop().call_soon(lambda: free.append(time.perf_counter()))
        await hooks.dispatcher.notify(specs.on_event, event=EVENT, turn=TURN)
        took.append((free.pop() - began) * 1000)
    logging.getLogger("alipes").setLevel(logging.NOTSET)
    what = f"a hook that never returns ({hook.__name__}): the loop is free again after, worst of {HANGS}"
    return bounded(what, max(took), 250, "ms")
