"""What Python holds inside `alipes serve`, counted there when it is asked to: by a plugin, for the tests alone."""

import asyncio
import os
import signal

import msgspec
from msgspec import Struct

from tests.world.serving import Service

ASK = signal.SIGRTMAX - 3
PLUGIN = f"""
import gc, json, os, signal
from alipes.sessions.turn_runner import Course
from alipes.sessions.turn_state import Living

PLACE = os.path.join(os.environ["ALIPES_HOME"], "census.json")


def count(*_):
    gc.collect()
    things = gc.get_objects()
    turns = sum(isinstance(each, Living | Course) for each in things)
    with open(PLACE + ".new", "w") as file:
        json.dump({{"things": len(things), "turns": turns}}, file)
    os.replace(PLACE + ".new", PLACE)


async def setup(ctx):
    signal.signal({ASK}, count)
"""


class Census(Struct, frozen=True):
    """After Python looked for garbage, without what was there at the start."""

    things: int
    turns: int
    """Parts of turns: those that live, or that somebody has not let go of."""


async def count(service: Service) -> Census:
    """Of a service that was settled with `PLUGIN`. Turns that nobody waits for any more may end meanwhile."""
    for _ in range(20):
        found = await _ask(service)
        if not found.turns:
            break
        await asyncio.sleep(0.25)
    return found


async def _ask(service: Service) -> Census:
    place = service.home / "census.json"
    place.unlink(missing_ok=True)
    os.kill(service.pid, ASK)
    while not place.exists():
        await asyncio.sleep(0.02)
    return msgspec.json.decode(place.read_bytes(), type=Census)
