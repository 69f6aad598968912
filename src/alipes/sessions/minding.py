"""Minding a living turn: what people say to it meanwhile, and whether it still tells anything."""

import asyncio
from collections.abc import Callable

from alipes.kernel.errors import Fenced
from alipes.kernel.turns import Envelope, Noted, Said, Stop, TurnEnded
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
    """Ask for the end of a turn that tells nothing for too long; who waits for a person may wait."""
    limit = around.silence
    if not limit or living.stop is not None or living.task is None or living.task.done():
        return
    silent = 0.0 if around.waits(living.turn.id) else living.silent
    if silent < limit:
        loop = asyncio.get_running_loop()
        living.timer = loop.call_later(limit - silent, listen_for, living, around, post)
    else:
        around.publish(living.envelope(Noted(f"nothing happened for {silent:.0f} s, so it is stopped")))
        post(Stop("timeout", "timeout", living.turn.id))
