"""Whom a message is for, as in `alipes send`: a chat, a platform with a default chat, or `home`."""

import os
import re
from collections.abc import Collection

from alipes.config.messengers import MESSENGERS
from alipes.kernel.errors import ConfigError, MessageRejected
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address
from alipes.store.sql.people import PeopleStore
from alipes.store.sql.store import Store

_MATRIX_ROOM = re.compile(r"([!#][^:]+:[^:]+(?::\d+)?)(?::([^:\d].*))?\Z")
"""A Matrix room name contains its server and sometimes a port."""
_CHAT = re.compile(r"([^:]*):?(.*)\Z", re.DOTALL)


async def resolve_target(store: Store, target: str, text: str) -> Outbound:
    """An outbound message to `target`. Raises ConfigError if there is no such chat."""
    homes, people = await store.people.default_chats(), await store.people.all()
    known = {*MESSENGERS, *homes, *(each.platform for each in people)}
    try:
        return await address_message(store.people, target, text, known)
    except MessageRejected as refused:
        raise ConfigError(str(refused)) from refused


async def address_message(people: PeopleStore, to: str, text: str, platforms: Collection[str]) -> Outbound:
    """A message for `to`: `platform:chat[:thread]`, a platform with a default chat, or `home`.

    Raises `MessageRejected` if `to` names nothing.
    """
    if not text.strip():
        raise MessageRejected("there is nothing to send")
    platform, _, place = to.strip().partition(":")
    homes = {name: home for name, home in (await people.default_chats()).items() if name in platforms}
    if platform == "home" and not place:
        address = _only_home(homes)
    elif platform not in platforms:
        known = ", ".join(sorted(platforms)) or "none"
        hint = did_you_mean(platform, platforms)
        raise MessageRejected(f"unknown platform {platform!r} (available: {known}).{hint}")
    elif not place:
        if platform not in homes:
            fix = f"send /sethome in a chat there, or name one as {platform}:CHAT"
            raise MessageRejected(f"{platform} has no default chat: {fix}")
        address = homes[platform]
    else:
        parts = _MATRIX_ROOM.match(place) or _CHAT.match(place)
        assert parts is not None  # _CHAT matches everything
        address = Address(platform, parts[1], thread=parts[2] or "")
    return Outbound(f"send:{os.urandom(8).hex()}", address, text)


def _only_home(homes: dict[str, Address]) -> Address:
    if len(homes) > 1:
        raise MessageRejected(f"several platforms have a default chat: {', '.join(homes)}; name one")
    if not homes:
        raise MessageRejected("there is no default chat: send /sethome in one")
    return next(iter(homes.values()))
