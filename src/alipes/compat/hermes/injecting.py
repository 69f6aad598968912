"""Words that a plugin says in a conversation: through the same door as a person's."""

import os
from urllib.parse import unquote

from alipes.compat.hermes.bridge import Bridge
from alipes.hooks.context import Context
from alipes.kernel.errors import AlipesError
from alipes.kernel.turns import Address, Inbound


def inject(bridge: Bridge, context: Context, text: str, session_key: str | None = None) -> bool:
    """Say `text`, from any thread: under the key, else in whose course we are, else where someone spoke last.

    False where there is no such conversation. What becomes of it is not waited for.
    """
    last = _last_words(bridge, session_key)
    if last is None:
        context.log.warning("%s: there is no conversation to say something in", context.name)
        return False
    inbound = Inbound(
        id=f"plugin:{context.name}:{os.urandom(8).hex()}",
        address=last.address,
        sender=last.sender,
        text=text,
        workdir=last.workdir,
    )
    bridge.soon(lambda: context.run(_submit(bridge, context, inbound), "saying something"))
    return True


def _last_words(bridge: Bridge, session_key: str | None) -> Inbound | None:
    heard = bridge.notes.heard
    if session_key:
        return heard.get(session_key) or _named(session_key)
    turn = bridge.host.living()
    return turn.inbound if turn is not None else heard.latest()


async def _submit(bridge: Bridge, context: Context, inbound: Inbound) -> None:
    try:
        await bridge.host.submit(inbound)
    except AlipesError as error:
        context.log.warning("%s could not say something: %s", context.name, error)


def _named(session_key: str) -> Inbound | None:
    """Where a key leads that nobody spoke under yet: `agent:main:<platform>:<type>:<chat>[:<thread>]`."""
    parts = [unquote(part) for part in session_key.split(":")]
    if len(parts) < 5 or parts[0] != "agent":
        return None
    address = Address(parts[2], parts[4], parts[3], *parts[5:7])
    return Inbound(id="", address=address, sender=address.user or address.chat, text="")
