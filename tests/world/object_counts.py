"""Counts Python objects inside `alipes serve`, by a plugin for tests."""

import asyncio
import os
import signal

import msgspec
from msgspec import Struct

from tests.world.serve_process import ServeProcess

ASK = signal.SIGRTMAX - 3
PLUGIN = f"""
import gc, json, os, signal
from alipes.sessions.turn_runner import TurnRunner
from alipes.sessions.turn_state import RunningTurn

REPORT = os.path.join(os.environ["ALIPES_HOME"], "objects.json")


def count(*_):
    gc.collect()
    things = gc.get_objects()
    turns = sum(isinstance(each, RunningTurn | TurnRunner) for each in things)
    with open(REPORT + ".new", "w") as file:
        json.dump({{"things": len(things), "turns": turns}}, file)
    os.replace(REPORT + ".new", REPORT)


async def setup(ctx):
    signal.signal({ASK}, count)
"""


class ObjectCounts(Struct, frozen=True):
    """Counts after garbage collection, without the objects present at the start."""

    things: int
    turns: int
    """Objects of turns that run or are still referenced."""


async def count(service: ServeProcess) -> ObjectCounts:
    """Count the objects of a service that has `PLUGIN`, once the turns that wait for their model have ended."""
    for _ in range(160):
        found = await _ask(service)
        if not found.turns:
            break
        await asyncio.sleep(0.25)
    return found


async def _ask(service: ServeProcess) -> ObjectCounts:
    place = service.home / "objects.json"
    place.unlink(missing_ok=True)
    os.kill(service.pid, ASK)
    while not place.exists():
        await asyncio.sleep(0.02)
    return msgspec.json.decode(place.read_bytes(), type=ObjectCounts)
