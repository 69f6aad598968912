"""Sends one delivery: its parts in order, turning drafts of the same turn into the final messages."""

import os
import re
from collections.abc import Collection

from msgspec import structs

from alipes.gateway.platform_runner import PlatformRunner
from alipes.kernel.errors import DeliveryError, MessageRejected, Undeliverable
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.outbox import Delivery, Media, Outbound
from alipes.kernel.platform import MessagePart
from alipes.kernel.turns import Address
from alipes.store.outbox import SqliteOutbox
from alipes.store.people import SqlitePeople

UNCONFIRMED = "?"
"""Prefix of a draft row whose send was started: its message id is not known yet."""


class Sender:
    """Stores each part before it sends the next, so that another process knows what was delivered."""

    def __init__(self, outbox: SqliteOutbox) -> None:
        self._outbox = outbox

    async def send(self, runner: PlatformRunner, delivery: Delivery) -> Delivery:
        """Send a delivery that is marked as `sending`. Raises `DeliveryError`; delivered parts are stored."""
        outbound = delivery.outbound
        texts = await _format_text(runner, outbound)
        files = (_format_file(each, runner) for each in outbound.media)
        parts = [structs.replace(each, id=f"{outbound.id}#{n}") for n, each in enumerate((*texts, *files))]
        drafts = await self._find_drafts(runner, delivery, texts)
        # a draft whose message id we never learned may still be in the chat
        stray = not runner.capabilities.deduplicates and any(each.startswith(UNCONFIRMED) for each in delivery.drafts)
        for index in range(len(delivery.paid), len(parts)):
            draft = drafts[index] if index < min(len(drafts), len(texts)) else ""
            id = await self._send_part(runner, outbound, parts[index], draft)
            rest = index + 1 < len(parts)
            delivery = await self._outbox.mark_sent(delivery, id, rest=rest, uncertain=stray)
        if delivery.state != "sent":  # there was nothing to send
            delivery = await self._outbox.mark_sent(delivery)
        await self._remove_drafts(runner, outbound, drafts[len(texts) :])
        return delivery

    async def _find_drafts(
        self, runner: PlatformRunner, delivery: Delivery, texts: tuple[MessagePart, ...]
    ) -> list[str]:
        """Message ids of the drafts. An unconfirmed one is sent again under its id where the platform
        deduplicates: that returns the existing message."""
        found = [each for each in delivery.drafts if not each.startswith(UNCONFIRMED)]
        names = [each.removeprefix(UNCONFIRMED) for each in delivery.drafts if each.startswith(UNCONFIRMED)]
        for name in names if texts and runner.capabilities.deduplicates else ():
            part = structs.replace(texts[min(len(found), len(texts) - 1)], id=name)
            id = await runner.send(delivery.outbound.address, part)
            found += [id] if id not in found else []
        return found

    async def _send_part(self, runner: PlatformRunner, outbound: Outbound, part: MessagePart, draft: str) -> str:
        if draft:
            try:
                await runner.edit(outbound.address, draft, part)
            except Undeliverable:
                pass  # the draft was deleted: send a new message
            except DeliveryError as error:  # never uncertain: editing again is harmless
                raise DeliveryError(str(error), retry_after=error.retry_after) from error
            else:
                return draft
        return await runner.send(outbound.address, part)

    async def _remove_drafts(self, runner: PlatformRunner, outbound: Outbound, left: list[str]) -> None:
        """The drafts had more messages than the final text."""
        for message in left:
            try:
                if runner.capabilities.can_delete:
                    await runner.delete(outbound.address, message)
                else:
                    await runner.edit(outbound.address, message, MessagePart(text="…", plain="…"))
            except DeliveryError:
                continue  # a leftover draft repeats only what was said


async def _format_text(runner: PlatformRunner, outbound: Outbound) -> tuple[MessagePart, ...]:
    texts = await runner.format_message(outbound.text) if outbound.text.strip() else ()
    if not texts:
        return ()
    texts = (structs.replace(texts[0], reply_to=outbound.reply_to), *texts[1:])
    return (*texts[:-1], structs.replace(texts[-1], buttons=outbound.buttons))


def _format_file(media: Media, runner: PlatformRunner) -> MessagePart:
    name = media.name or os.path.basename(media.path)
    if not os.path.isfile(media.path):
        text = f"({name} no longer exists and was not sent.)"
    elif media.kind in runner.capabilities.media:
        return MessagePart(media=media)
    elif "file" in runner.capabilities.media:
        return MessagePart(media=structs.replace(media, kind="file"))
    else:
        text = f"({name} can't be sent on this platform. It is saved at {media.path}.)"
    return MessagePart(text=text, plain=text)


_MATRIX_ROOM = re.compile(r"([!#][^:]+:[^:]+(?::\d+)?)(?::([^:\d].*))?\Z")
"""A Matrix room name contains its server and sometimes a port."""
_CHAT = re.compile(r"([^:]*):?(.*)\Z", re.DOTALL)


async def address_message(people: SqlitePeople, to: str, text: str, platforms: Collection[str]) -> Outbound:
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
