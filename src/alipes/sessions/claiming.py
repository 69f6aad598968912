"""The next turn of a session, claimed; and whether it is over before it begins. Nothing here lives a turn."""

from alipes.agent.mending import opening
from alipes.kernel.errors import Held
from alipes.kernel.messages import Message
from alipes.kernel.turns import Ending, Reset, Stop, Turn
from alipes.sessions.living import Living
from alipes.sessions.surroundings import Surroundings

MAX_ATTEMPTS = 3
LEFT = "reset"


async def claim(key: str, around: Surroundings) -> Living | None:
    """The oldest turn that waits; None when there is none, or when another process has it."""
    try:
        turn = await around.turns.next_turn(key, _first_words)
        if turn is None:
            await around.turns.release(key)
    except Held:
        await around.pass_on(key)
        return None
    return None if turn is None else Living(turn, around.hooks.relay)


def _first_words(turn: Turn) -> tuple[Message, ...]:
    """What it says with its claim: the person's message, unless the turn may be over before it begins, or
    something must be said before that."""
    plain = turn.alone and turn.attempt == 1 and not turn.inbound.notice and turn.inbound.origin is None
    said = opening(turn, turn.said) if plain else ()
    return said if len(said) == 1 else ()


async def already_over(living: Living, around: Surroundings) -> tuple[Ending, str] | None:
    """What a turn ends as before it begins: stopped while nobody lived it, left, or tried too often."""
    turn = living.turn
    stopped = "" if turn.alone else await _stopped(living, around)
    if stopped := stopped or await around.delegated.forsaken(turn):
        return "stopped", stopped
    if turn.inbound.notice == "kept":
        return "answered", ""
    if turn.attempt > MAX_ATTEMPTS:
        return (
            "failed",
            f"given up after {MAX_ATTEMPTS} attempts: each time the process ended before the turn did",
        )
    if turn.attempt > 1:
        standing = await around.sessions.standing(turn.key)
        if standing is None or standing.session != turn.session:
            return "stopped", LEFT  # whoever left it could no longer tell the process that lived it
    return None


async def _stopped(living: Living, around: Surroundings) -> str:
    """The reason of the last word that ends it; empty when there is none."""
    turn, reason = living.turn, ""
    for op in await around.turns.drain_control(turn.key):
        match op:
            case Stop(turn=named) if named == turn.id or (turn.attempt > 1 and not named):
                reason = op.reason
            case Reset(session=left):
                reason = op.reason if left == turn.session else reason
    return reason
