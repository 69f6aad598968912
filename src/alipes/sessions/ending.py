"""The end of a turn, written: with it what a chat is owed, before it what others are told. It ends there."""

from msgspec import structs

from alipes.kernel.messages import Message
from alipes.kernel.turns import Envelope, Noted, TurnEnded
from alipes.sessions.living import Living
from alipes.sessions.surroundings import Surroundings


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
