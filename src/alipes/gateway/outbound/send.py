"""One debt is paid: its parts are sent in order; what was shown of it unfinished becomes it."""

import os
import re
from collections.abc import Collection

from msgspec import structs

from alipes.gateway.platform_runner import Channel
from alipes.kernel.errors import DeliveryError, Gone, NotTaken
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.outbox import Debt, Media, Outbound
from alipes.kernel.platform import Piece
from alipes.kernel.turns import Address
from alipes.store.outbox import SqliteOutbox
from alipes.store.people import SqlitePeople

BEGUN = "?"
"""Among the drafts, before our name for one that is being sent: which message it is, is not known yet."""


class Payer:
    """Every part is a row before the next is begun, so that whoever takes over knows what is there."""

    def __init__(self, outbox: SqliteOutbox) -> None:
        self._outbox = outbox

    async def pay(self, channel: Channel, debt: Debt) -> Debt:
        """One that was begun. Raises `DeliveryError` for what did not arrive; what did is kept in it."""
        outbound = debt.outbound
        texts = await _texts(channel, outbound)
        pieces = _numbered(outbound, (*texts, *(_file(each, channel) for each in outbound.media)))
        mine = await self._found(channel, debt, texts)
        # something of it may stand there unfinished, and we cannot find it
        stray = not channel.talents.remembers and any(each.startswith(BEGUN) for each in debt.drafts)
        for index in range(len(debt.paid), len(pieces)):
            draft = mine[index] if index < min(len(mine), len(texts)) else ""
            id = await self._put(channel, outbound, pieces[index], draft)
            rest = index + 1 < len(pieces)
            debt = await self._outbox.pay(debt, id, rest=rest, uncertain=stray)
        if debt.state != "sent":  # there was nothing to say
            debt = await self._outbox.pay(debt)
        await self._clear(channel, outbound, mine[len(texts) :])
        return debt

    async def _found(self, channel: Channel, debt: Debt, texts: tuple[Piece, ...]) -> list[str]:
        """The drafts, by their ids. One that was cut off while being sent is sent again under its name, where
        that gives the message that is there."""
        found = [each for each in debt.drafts if not each.startswith(BEGUN)]
        names = [each.removeprefix(BEGUN) for each in debt.drafts if each.startswith(BEGUN)]
        for name in names if texts and channel.talents.remembers else ():
            piece = structs.replace(texts[min(len(found), len(texts) - 1)], id=name)
            id = await channel.send(debt.outbound.address, piece)
            found += [id] if id not in found else []
        return found

    async def _put(self, channel: Channel, outbound: Outbound, piece: Piece, draft: str) -> str:
        if draft:
            try:
                await channel.edit(outbound.address, draft, piece)
            except Gone:
                pass  # somebody took it away: it is said anew
            except DeliveryError as error:  # to change it once more does no harm
                raise DeliveryError(str(error), retry_after=error.retry_after) from error
            else:
                return draft
        return await channel.send(outbound.address, piece)

    async def _clear(self, channel: Channel, outbound: Outbound, left: list[str]) -> None:
        """More was shown than was said in the end."""
        for message in left:
            try:
                if channel.talents.deletes:
                    await channel.delete(outbound.address, message)
                else:
                    await channel.edit(outbound.address, message, Piece(text="…", plain="…"))
            except DeliveryError:
                continue  # it has no more to tell than what was said


async def _texts(channel: Channel, outbound: Outbound) -> tuple[Piece, ...]:
    texts = await channel.pieces(outbound.text) if outbound.text.strip() else ()
    if not texts:
        return ()
    first = structs.replace(texts[0], reply_to=outbound.reply_to)
    texts = (first, *texts[1:])
    return (*texts[:-1], structs.replace(texts[-1], buttons=outbound.buttons))


def _file(media: Media, channel: Channel) -> Piece:
    name = media.name or os.path.basename(media.path)
    if not os.path.isfile(media.path):
        said = f"({name} is not there any more, so it could not be sent.)"
    elif media.kind in channel.talents.media:
        return Piece(media=media)
    elif "file" in channel.talents.media:
        return Piece(media=structs.replace(media, kind="file"))
    else:
        said = f"({name} cannot be sent here; it lies at {media.path}.)"
    return Piece(text=said, plain=said)


def _numbered(outbound: Outbound, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    return tuple(structs.replace(each, id=f"{outbound.id}#{number}") for number, each in enumerate(pieces))


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
