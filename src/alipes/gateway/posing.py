"""A question as something owed to a chat; and why one did not get there. It asks nothing."""

from alipes.kernel.delivery import Button, Outbound
from alipes.kernel.turns import Address
from alipes.store.outbox import SqliteOutbox

UNREACHED = "I cannot tell whether this question of mine reached you"


def posed(
    id: str, address: Address, text: str, *, buttons: tuple[Button, ...] = (), reply_to: str = ""
) -> Outbound:
    """It waits with the turn that asks: one that is resumed asks anew."""
    return Outbound(id, address, text, buttons=buttons, reply_to=reply_to, notice=True, fleeting=True)


async def undelivered(outbox: SqliteOutbox, id: str) -> str:
    """Why it is not sent any more; empty while it is, or once it was."""
    debt = await outbox.find(id)
    if debt is None or debt.state not in ("dead", "expired"):
        return ""
    return f"the question was not delivered: {debt.why.rstrip('.')}"
