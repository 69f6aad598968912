"""The gateway from outside: the real `alipes serve`, the loopback Bot API and the model a process each."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.world.repeated_kills import kill_repeatedly
from tests.world.serve_process import ServeSetup, open_setup
from tests.world.telegram_load import FIRST

from bench import results
from bench.measure import Row, bounded, p

CHATS, ROUNDS = 64, 15
CONVERSATIONS, WARM = 10, 20
CROWD, WORDS = 1000, 600
KILLS = 100
STATED = 4.0
"""Turns per second of hermes-agent 0.19, if `make bench-rivals` saved no figure."""


@asynccontextmanager
async def open_service(plugin: str = "", **more: object) -> AsyncIterator[ServeSetup]:
    """All three processes, after some warm-up turns."""
    with tempfile.TemporaryDirectory() as name:
        async with open_setup(Path(name), plugin=plugin, **more) as world:
            await world.service.start()
            await world.messenger.call("polled")
            await world.messenger.call("converse", chats=1, turns=3)
            yield world


@asynccontextmanager
async def bare() -> AsyncIterator[ServeSetup]:
    """The same messenger and model with a minimal client between them."""
    with tempfile.TemporaryDirectory() as name:
        async with open_setup(Path(name)) as world:
            client = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.raw_turn", world.messenger.url, world.model.url("openai-chat")),
                env={**os.environ, "TOKEN": world.messenger.token},
            )
            try:
                await world.messenger.call("polled")
                await world.messenger.call("converse", chats=1, turns=3)
                yield world
            finally:
                client.kill()
                await client.wait()


def at_least(what: str, ours: float, reach: float, unit: str) -> Row:
    return Row(what, f"{ours:.1f} {unit}", "", "", f">= {reach:g} {unit}", ours >= reach)


async def turns() -> list[Row]:
    """A model that answers at once, and 64 people who write again as soon as they are answered."""
    async with open_service() as world:
        await world.messenger.call("converse", chats=CHATS, turns=2)
        cpu, loop, began = world.service.cpu(), world.service.loop_cpu(), time.monotonic()
        seen = await world.messenger.call("converse", chats=CHATS, turns=ROUNDS)
        seconds = time.monotonic() - began
        each = (world.service.cpu() - cpu) / len(seen) * 1000
        on_loop = (world.service.loop_cpu() - loop) / len(seen) * 1000
        at_once = max([await _at_once(world) for _ in range(3)])
    theirs = results.load().rivals.get("hermes-agent", {}).get("rate", STATED)
    theirs = theirs if isinstance(theirs, float) else STATED
    ratio = at_once / theirs
    return [
        at_least(f"Telegram, {CHATS} chats, model without delay", len(seen) / seconds, 1000, "turns/s"),
        bounded("the same, CPU per turn", each, 1.1, "ms"),
        bounded("the same, of it on the loop's thread", on_loop, 0.9, "ms"),
        Row(
            f"{CHATS} messages at once / hermes-agent 0.19 as last measured",
            f"{at_once:.1f} turns/s",
            f"{theirs:.1f} turns/s",
            f"{ratio:.1f}",
            ">= 20",
            ratio >= 20,
        ),
    ]


async def _at_once(world: ServeSetup) -> float:
    """Turns per second when all people write at the same moment."""
    seen = await world.messenger.call("converse", chats=CHATS, turns=1, within=90)
    return len(seen) / (max(one["answered"] for one in seen) - min(one["asked"] for one in seen))


async def warm() -> list[Row]:
    """One person who pauses before each message: time from the message to our answer, without the time that
    the model and the messenger report. In turn with a bare client: its time is that of the connections."""
    ours, theirs = list[float](), list[float]()
    cpu = on_loop = 0.0
    async with open_service(allow='["1000"]') as world, bare() as other:
        for _ in range(CONVERSATIONS):
            cpu, on_loop = cpu - world.service.cpu(), on_loop - world.service.loop_cpu()
            ours += await _spent(world)
            cpu, on_loop = cpu + world.service.cpu(), on_loop + world.service.loop_cpu()
            theirs += await _spent(other)
    seen = f"p10 {p(ours, 10):.1f}, p50 {p(ours, 50):.2f}, p90 {p(ours, 90):.1f} with the way there and back"
    beyond, limit = p(ours, 50) - p(theirs, 50), f"{p(theirs, 50):.2f} ms"
    what = f"warm turn beyond model and messenger, p50 ({seen})"
    return [
        Row(what, f"{beyond:.2f} ms", limit, "", "<= 2.5 ms", beyond <= 2.5),
        bounded("the same, CPU per turn", cpu / len(ours) * 1000, 1.1, "ms"),
        bounded("the same, of it on the loop's thread", on_loop / len(ours) * 1000, 0.9, "ms"),
    ]


async def _spent(world: ServeSetup) -> list[float]:
    """Milliseconds of each turn of a conversation."""
    before = len(world.model.log_lines("request"))
    seen = await world.messenger.call("converse", chats=1, turns=WARM, pause=0.05)
    await world.messenger.call("say", text="/new", chat=FIRST)
    await asyncio.sleep(0.2)
    asked = [line["came"] for line in world.model.log_lines("request")][before:]
    answered = [line["time"] for line in world.model.log_lines("answered")][before:]
    return [
        (each["answered"] - each["asked"] - each["own"] - (after - since)) * 1000
        for each, since, after in zip(seen, asked, answered, strict=True)
    ]


async def crowd() -> list[Row]:
    """A thousand people write at once, and each answer takes half a minute."""
    async with open_service() as world:
        before = await world.service.metrics()
        peak = 0.0
        talking = asyncio.create_task(
            world.messenger.call("converse", chats=CROWD, turns=1, word=f"drip {WORDS}", within=WORDS / 20 * 4 + 60)
        )
        while not talking.done():
            peak = max(peak, world.service.resident())
            await asyncio.sleep(0.5)
        after = await world.service.metrics()
        seen = talking.result()
    late = {name: after[name] - before[name] for name in after if name.startswith("alipes_loop_lag")}
    count = late["alipes_loop_lag_seconds_count"]
    within = late['alipes_loop_lag_seconds_bucket{le="0.1"}'] / count
    seconds = max(each["answered"] - each["asked"] for each in seen)
    return [
        at_least(f"{CROWD} chats at 20 tokens/s, {WORDS} each ({seconds:.0f} s)", len(seen), CROWD, "complete"),
        at_least(f"the same, looks at the loop that were within 100 ms, of {count:.0f}", within * 100, 99, "%"),
        bounded("the same, peak memory", peak, 500, "MB"),
    ]


async def kills(times: int = KILLS) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        result = await kill_repeatedly(Path(name), seed=5, kills=times)
    bad = [result.lost, result.doubled, result.reordered, result.repeated]
    lost, doubled, reordered, repeated = map(len, bad)
    seen = f"{lost} lost, {doubled} doubled, {reordered} reordered, {repeated} run twice"
    seen += f", {result.orphans} orphans"
    if not result.clean:
        print(bad)
    return [
        Row(
            f"kill -9 at {result.kills} moments, {result.messages} messages in 20 chats",
            seen,
            f"{len(result.marked)} marked uncertain",
            "",
            "0",
            result.clean,
        ),
        bounded(
            f"the same, start to first answer, worst (median {statistics.median(result.again):.2f} s)",
            max(result.again),
            2,
            "s",
        ),
    ]
