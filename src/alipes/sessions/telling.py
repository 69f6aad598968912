"""What plugins are told about turns and conversations that end, and about subagents. It ends none."""

from alipes.hooks import specs
from alipes.kernel.messages import Message
from alipes.kernel.turns import Inbound, Reset, Stop
from alipes.sessions.delegating_words import summary_of
from alipes.sessions.living import Living
from alipes.sessions.surroundings import Surroundings


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
