"""What plugins are told about turns and conversations that end, and about subagents. It ends none."""

import asyncio
import math
from collections.abc import Callable

from msgspec import structs

from alipes.kernel.errors import Fenced
from alipes.kernel.formatting import span
from alipes.kernel.messages import Message
from alipes.kernel.turns import Envelope, Inbound, Noted, Reset, Said, Stop, TurnEnded
from alipes.plugins import specs
from alipes.sessions.services import Surroundings
from alipes.sessions.subagents.text import summary_of
from alipes.sessions.turn_state import Boundary, Living


async def write_end(
    living: Living, around: Surroundings, ended: TurnEnded, closing: tuple[Message, ...]
) -> None:
    """Nothing that works for it goes on; a turn that was detached reports. Raises `Fenced`.

    The report comes first: whoever is cut off between the two writes it again, and that is refused.
    """
    turn, origin = living.turn, living.turn.inbound.origin
    await around.delegated.leave(turn)
    shown = await around.delegated.report(living, ended.ending, ended.detail)
    owed = around.owes(turn, ended)
    if shown and origin is not None:
        there = structs.replace(turn, inbound=structs.replace(turn.inbound, address=origin.address))
        owed = (*owed, *around.owes(there, Noted(shown)))
    await around.turns.finish(turn, ended.ending, ended.detail, *closing, owed=owed)
    if shown and origin is not None:
        around.publish(Envelope(origin.address.key, "", Noted(shown)))


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


async def tell_stop(living: Living, stop: Stop) -> None:
    """A living turn is marked, and about to be cancelled."""
    turn = living.turn
    await living.relay.tell(
        specs.agent_loop_stopped,
        turn=turn,
        session_key=turn.key,
        session_id=turn.session,
        turn_id=turn.id,
        platform=turn.inbound.address.platform,
        reason=stop.reason,
        invalidation_reason=stop.invalidation_reason,
        tool_call_ids=living.running,
        partial_text=living.partial,
    )


async def tell_end(
    living: Living, around: Surroundings, ending: str, detail: str, *, closing: tuple[Message, ...]
) -> None:
    """Every call that the end cut off, and the end itself. After this the turn's plugins may close."""
    turn, relay = living.turn, living.relay
    for answered in around.unanswered(turn.id):
        await relay.tell(specs.on_event, event=answered, turn=turn)
    for call, result, seconds in living.cut_off(closing):
        await relay.tell(specs.after_tool, call=call, result=result, turn=turn, seconds=seconds, error=None)
    said = (*living.said, *closing)
    await relay.tell(specs.turn_ended, turn=turn, ending=ending, detail=detail, said=said, usage=living.usage)
    living.release()


async def tell_leave(key: str, around: Surroundings, reset: Reset) -> None:
    """A conversation goes on no more, and another may stand in its place."""
    relay, reason, old, new = around.hooks.relay, reset.reason, reset.session, reset.successor
    await relay.tell(specs.session_left, session=old, session_key=key, reason=reason, successor=new)
    if new:
        await relay.tell(specs.session_reset, session=new, session_key=key, reason=reason, predecessor=old)


async def tell_child(living: Living, around: Surroundings) -> None:
    """A turn begins that works for another, if it does; only when it begins for the first time."""
    turn, relay, inbound = living.turn, living.relay, living.turn.inbound
    if not inbound.parent or turn.attempt > 1 or not relay.listens(specs.subagent_started):
        return
    if (parent := await around.delegated.parent_of(turn)) is not None:
        goal, role = inbound.origin.goal if inbound.origin else "", _role(inbound)
        await relay.tell(specs.subagent_started, parent=parent, session=turn.session, role=role, goal=goal)


async def tell_child_end(living: Living, around: Surroundings, ending: str, detail: str) -> None:
    """It is over: told once of each that had begun, also if whoever began to live it is gone."""
    turn, relay, inbound = living.turn, living.relay, living.turn.inbound
    begun = living.started or turn.attempt > 1
    if not inbound.parent or not begun or not relay.listens(specs.subagent_ended):
        return
    if (parent := await around.delegated.parent_of(turn)) is not None:
        await relay.tell(
            specs.subagent_ended,
            parent=parent,
            session=turn.session,
            role=_role(inbound),
            goal=inbound.origin.goal if inbound.origin else "",
            ending=ending,
            summary=summary_of(living.said, detail),
            seconds=living.age,
        )


def _role(inbound: Inbound) -> str:
    return "orchestrator" if "delegate_task" in (inbound.only or ()) else "leaf"
