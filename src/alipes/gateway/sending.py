"""Something to be said without a turn: where a name leads, and the debt that it becomes. It sends nothing."""

import os
import re
from collections.abc import Collection

from alipes.config.near import did_you_mean
from alipes.kernel.delivery import Outbound
from alipes.kernel.errors import NotTaken
from alipes.kernel.turns import Address
from alipes.store.people import SqlitePeople

_ROOM = re.compile(r"([!#][^:]+:[^:]+(?::\d+)?)(?::([^:\d].*))?\Z")
"""On Matrix the server is a part of a room's name, and its port may be."""
_CHAT = re.compile(r"([^:]*):?(.*)\Z", re.DOTALL)


async def addressed(people: SqlitePeople, to: str, text: str, platforms: Collection[str]) -> Outbound:
    """`to`: `platform:chat[:thread]`, or a platform, or `home`. Owe it, and the gateway sends it.

    Raises `NotTaken` where it names nothing.
    """
    if not text.strip():
        raise NotTaken("there is nothing to send")
    platform, _, place = to.strip().partition(":")
    homes = {name: home for name, home in (await people.homes()).items() if name in platforms}
    if platform == "home" and not place:
        address = _only(homes)
    elif platform not in platforms:
        known = ", ".join(sorted(platforms)) or "none"
        raise NotTaken(
            f"{platform!r} is no platform here (there is {known}).{did_you_mean(platform, platforms)}"
        )
    elif not place:
        address = homes.get(platform) or _homeless(platform)
    else:
        parts = _ROOM.match(place) or _CHAT.match(place)
        assert parts is not None  # the second takes everything
        address = Address(platform, parts[1], thread=parts[2] or "")
    return Outbound(f"send:{os.urandom(8).hex()}", address, text)


def _only(homes: dict[str, Address]) -> Address:
    if len(homes) != 1:
        names = ", ".join(homes)
        why = (
            f"there are several homes: {names}; name one" if homes else "no chat was made the home (/sethome)"
        )
        raise NotTaken(why)
    return next(iter(homes.values()))


def _homeless(platform: str) -> Address:
    raise NotTaken(
        f"{platform} has no home yet: write /sethome in a chat there, or name one as {platform}:CHAT"
    )
