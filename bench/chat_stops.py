"""A /stop in a chat: time until the tool is cancelled, its child process gone, a stuck stream closed."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.world.serve_process import ServeSetup, find_processes
from tests.world.telegram_load import FIRST, token

from bench.gateway import open_service
from bench.measure import Row, bounded, p, wait_gone
from bench.plugins import SLOW_HOOKS

STOPS = 100
TEN = 10
PLUGIN = """
import asyncio, time
from alipes.plugin import tool

def note(what):
    with open("notes", "a") as notes:
        notes.write(f"{what} {time.time()}\\n")

@tool(effect="read")
async def remote() -> str:
    "Ask a remote server."
    note("running")
    try:
        await asyncio.Event().wait()
    finally:
        note("cancelled")

@tool(effect="read")
async def stubborn() -> str:
    "Ask a remote server and wait for it."
    note("running")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(3)
        raise

@tool(effect="read")
async def blocking() -> str:
    "Ask a remote server and block a thread."
    note("running")
    await asyncio.to_thread(time.sleep, 8)
    return "at last"

@tool(effect="read")
async def quick() -> str:
    "Look at something here."
    return await asyncio.to_thread(str, "seen")
"""


async def stops() -> list[Row]:
    return [*await _stops(PLUGIN, ""), *await _stops(PLUGIN + SLOW_HOOKS, ", ten slow hooks")]


async def _stops(plugin: str, hooks: str) -> list[Row]:
    rng, rows, after = random.Random(11), [], list[float]()
    async with open_service(plugin=plugin) as world:
        trial = _Trial(world, rng, after)
        for what, seconds in (
            ("tool cancelled", await trial.each(trial.tool)),
            ("child gone", await trial.each(trial.child)),
            ("stuck model stream closed", await trial.each(trial.stream)),
            ("next message answered", after),
        ):
            middle = f"p50 {p(seconds, 50) * 1000:.1f} ms"
            rows.append(
                bounded(
                    f"/stop in a chat to {what}{hooks}, p99 of {len(seconds)} ({middle})",
                    p(seconds, 99) * 1000,
                    100,
                    "ms",
                )
            )
    return rows


class _Trial:
    """One stop after the other, each at a random moment of its turn."""

    def __init__(self, world: ServeSetup, rng: random.Random, after: list[float]) -> None:
        self._world, self._rng, self._after = world, rng, after
        self._notes = world.service.work / "notes"
        self._numbers = itertools.count(10)

    async def each(self, one: Callable[[], Any]) -> list[float]:
        return [await one() for _ in range(STOPS)]

    async def tool(self) -> float:
        count = len(self._read_times("cancelled"))
        await self._say("use remote")
        await _until(lambda: len(self._read_times("running")) > count)
        stopped = await self._stop()
        await _until(lambda: len(self._read_times("cancelled")) > count)
        return self._read_times("cancelled")[-1] - stopped

    async def child(self) -> float:
        word = f"{self._rng.randrange(10**6, 10**7)}{next(self._numbers):04}"
        await self._say(f"run sleep {word}")
        pids: list[int] = []
        await _until(lambda: bool(pids.extend(find_processes(word)) or pids))
        ends = [wait_gone(pid) for pid in pids]
        stopped = await self._stop()
        return max([await end for end in ends]) - stopped

    async def stream(self) -> float:
        before = len(self._world.model.log_lines("request"))
        await self._say("stall here")
        await _until(lambda: len(self._world.model.log_lines("request")) > before)
        closed = len(self._world.model.log_lines("left"))
        stopped = await self._stop()
        await _until(lambda: len(self._world.model.log_lines("left")) > closed)
        return float(self._world.model.log_lines("left")[-1]["time"]) - stopped

    async def _stop(self) -> float:
        """When it was sent. The sender sends another message at once, which is answered."""
        await asyncio.sleep(self._rng.random() * 0.05)
        number = next(self._numbers)
        words = [{"text": "/stop", "chat": FIRST}, {"text": f"echo {token(FIRST, number)}", "chat": FIRST}]
        said = time.time()
        await self._world.messenger.call("say_many", messages=words)
        shown = await self._world.messenger.call("shows", chat=FIRST, text=token(FIRST, number))
        self._after.append(shown["at"] - said)
        return said

    async def _say(self, text: str) -> None:
        await self._world.messenger.call("say", text=text, chat=FIRST)

    def _read_times(self, what: str) -> list[float]:
        lines = self._notes.read_text().split("\n")[:-1] if self._notes.exists() else []
        return [float(line.split()[1]) for line in lines if line.startswith(what)]


async def eleventh() -> list[Row]:
    """Ten people stop their tools, each kind of tool in its own service; then another person writes."""
    rows = []
    for kind in ("remote", "stubborn", "blocking"):
        async with open_service(plugin=PLUGIN) as world:
            notes = world.service.work / "notes"
            people = range(FIRST + 1, FIRST + 1 + TEN)
            await _send_all(world, people, f"use {kind}")
            await _until(lambda notes=notes: _lines(notes) >= TEN)
            await _send_all(world, people, "/stop")
            plain = await _answer(world, "echo", FIRST + 50)
            busy = await _answer(world, "use quick", FIRST + 51)
        rows.append(bounded(f"ten chats stopped in a {kind} tool, an eleventh is answered", plain * 1000, 100, "ms"))
        rows.append(bounded("and a twelfth, whose turn needs a thread", busy * 1000, 200, "ms"))
    return rows


async def _send_all(world: ServeSetup, people: range, text: str) -> None:
    await world.messenger.call("say_many", messages=[{"text": text, "chat": chat} for chat in people])


async def _answer(world: ServeSetup, verb: str, chat: int) -> float:
    said = time.time()
    await world.messenger.call("say", text=f"{verb} {token(chat, 0)}", chat=chat)
    async with asyncio.timeout(30):
        shown = await world.messenger.call("shows", chat=chat, text=token(chat, 0))
    return float(shown["edits"][-1][0] if shown["edits"] else shown["at"]) - said


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


async def _until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not fact():
            await asyncio.sleep(0.002)
