"""Minding a living turn: what people say to it meanwhile, and whether it still tells anything."""

import asyncio
import math
from collections.abc import Callable

from alipes.kernel.errors import Fenced
from alipes.kernel.turns import Envelope, Noted, Said, Stop, TurnEnded
from alipes.kernel.wording import span
from alipes.sessions.living import Boundary, Living
from alipes.sessions.surroundings import Surroundings


async def take_in(boundary: Boundary, around: Surroundings) -> None:
    """Move the messages that wait to be steered into the turn that stands at the boundary."""
    living = boundary.living
    if boundary.heard.done():  # it was stopped before its letter was read
        return
    living.steered = False
    try:
        taken = await around.sessions.absorb(living.turn)
    except Fenced:
        taken = ()  # what the turn says next tells it the same
    for each in taken:
        said = Said(each.message)
        living.fold(said)
        around.publish(living.envelope(said))
        around.publish(Envelope(living.turn.key, each.turn, TurnEnded(each.turn, "steered", living.turn.id)))
    if not boundary.heard.done():
        boundary.heard.set_result(tuple(each.message for each in taken))


def listen_for(living: Living, around: Surroundings, post: Callable[[Stop], None]) -> None:
    """Ask for the end of a turn that tells nothing for too long, or that works for another for too long;
    who waits for a person may wait."""
    if living.stop is not None or living.task is None or living.task.done():
        return
    silent, age = (0.0, 0.0) if around.waits(living.turn.id) else (living.silent, living.age)
    longest = around.delegated.longest(living.turn)
    quiet = around.silence - silent if around.silence else math.inf
    wait = min(quiet, longest - age if longest else math.inf)
    if wait > 0:
        if wait < math.inf:
            loop = asyncio.get_running_loop()
            living.timer = loop.call_later(wait, listen_for, living, around, post)
        return
    why = f"nothing happened for {silent:.0f} s" if quiet <= 0 else f"it took longer than {span(longest)}"
    around.publish(living.envelope(Noted(f"{why}, so it is stopped")))
    post(Stop("timeout", "timeout", living.turn.id))
