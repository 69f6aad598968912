"""What came in from Discord, in our words. It fetches what was attached and hands over nothing itself."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import discord
from discord import MessageType
from msgspec.structs import replace

from alipes.kernel.messages import SEEN_BY_MODELS, Image
from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import Arrival, Filed
from alipes.kernel.turns import Address
from alipes.platforms.discord.http import Http
from alipes.platforms.files import TooLarge, kind_of, not_fetched

NAME = "discord"
_ODD = re.compile(r"[^\w.+-]+")
_SPOKEN = (MessageType.default, MessageType.reply)


def address(channel: Any, person: str, *, per_user: bool = False) -> Address:
    """The conversation there. For Discord a thread is a channel, for us it is part of one."""
    if isinstance(channel, discord.DMChannel) or getattr(channel, "guild", None) is None:
        return Address(NAME, str(channel.id))
    user = person if per_user else ""
    if isinstance(channel, discord.Thread):
        return Address(NAME, str(channel.parent_id), "group", str(channel.id), user)
    return Address(NAME, str(channel.id), "group", user=user)


def spoken(message: discord.Message) -> bool:
    """Someone said this; it is not Discord telling of a pin, nor another program."""
    return message.type in _SPOKEN and not message.author.bot and message.webhook_id is None


def arrival(
    message: discord.Message, me: discord.abc.User, *, per_user: bool = False, edited: bool = False
) -> Arrival:
    """A message without its files."""
    person, here = str(message.author.id), message.channel
    group = not isinstance(here, discord.DMChannel) and message.guild is not None
    changed = message.edited_at.timestamp() if edited and message.edited_at else None
    return Arrival(
        id=str(message.id) if changed is None else f"{message.id}@{changed:.6f}",
        address=address(here, person, per_user=per_user),
        sender=person,
        name=message.author.display_name,
        text=_text(message, me),
        message=str(message.id),
        quoted=_quoted(message),
        group=group,
        addressed=not group or _addressed(message, me),
        edits="" if changed is None else str(message.id),
    )


def interaction(told: discord.Interaction[Any], *, per_user: bool = False) -> Arrival | None:
    """A pressed button or a chosen slash command; None for what we did not offer."""
    data: Any = told.data or {}
    if told.channel is None:
        return None
    person = str(told.user.id)
    where = address(told.channel, person, per_user=per_user)
    who, group = told.user.display_name, told.guild_id is not None
    made = Arrival(id=str(told.id), address=where, sender=person, name=who, group=group)
    match told.type:
        case discord.InteractionType.component:
            about = str(told.message.id) if told.message else ""
            return replace(made, message=about, pressed=data["custom_id"])
        case discord.InteractionType.application_command:
            words = [str(option.get("value", "")) for option in data.get("options", ())]
            return replace(made, text=" ".join((f"/{data['name']}", *words)).strip())
    return None


async def files(
    http: Http, message: discord.Message, folder: Path, *, largest: int, picture: int
) -> tuple[tuple[Image, ...], tuple[Filed, ...], tuple[str, ...]]:
    """Pictures for the model to see, files for tools, and a line for each that could not be had."""
    images: list[Image] = []
    saved: list[Filed] = []
    missing: list[str] = []
    for attachment in attached(message):
        name = attachment.filename
        mime = (attachment.content_type or "").partition(";")[0]
        try:
            if attachment.size > largest:
                raise TooLarge
            if mime in SEEN_BY_MODELS and attachment.size <= picture:
                images.append(Image(mime, await http.get_from_cdn(attachment.url, picture)))
                continue
            path = folder / f"{attachment.id}-{_ODD.sub('_', name)[-80:].lstrip('.') or 'file'}"
            size = await http.save(attachment.url, path, largest)
            saved.append(Filed(str(path), _kind(message, attachment, mime), name, mime, size))
        except TooLarge:
            missing.append(not_fetched(name, largest))
        except (discord.HTTPException, aiohttp.ClientError, OSError, TimeoutError) as trouble:
            missing.append(f"[{name} could not be fetched: {trouble or type(trouble).__name__}.]")
    return tuple(images), tuple(saved), tuple(missing)


def attached(message: discord.Message) -> list[discord.Attachment]:
    passed_on = [attachment for snapshot in message.message_snapshots for attachment in snapshot.attachments]
    return [*message.attachments, *passed_on]


def _kind(message: discord.Message, attachment: discord.Attachment, mime: str) -> MediaKind:
    if attachment.is_voice_message() or message.flags.voice:
        return "voice"
    return kind_of(mime)


def _text(message: discord.Message, me: discord.abc.User) -> str:
    """The words, with names for the ids in them, and without the one that called us."""
    text = re.sub(rf"<@!?{me.id}>", "", message.content)
    for role in message.role_mentions:
        ours = _ours(role, me)
        text = text.replace(role.mention, "" if ours else f"@{role.name}")
    for person in message.mentions:
        text = re.sub(rf"<@!?{person.id}>", _literally(f"@{person.display_name}"), text)
    for channel in message.channel_mentions:
        text = text.replace(channel.mention, f"#{channel.name}")
    stickers = [f"[sticker: {sticker.name}]" for sticker in message.stickers]
    return "\n".join(filter(None, (text.strip(), *stickers)))


def _literally(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _: text


def _addressed(message: discord.Message, me: discord.abc.User) -> bool:
    answered = message.reference and message.reference.resolved
    thread = message.channel if isinstance(message.channel, discord.Thread) else None
    return (
        any(person.id == me.id for person in message.mentions)
        or any(_ours(role, me) for role in message.role_mentions)
        or (isinstance(answered, discord.Message) and answered.author.id == me.id)
        or (thread is not None and thread.owner_id == me.id)
    )


def _ours(role: discord.Role, me: discord.abc.User) -> bool:
    """Discord gives every bot a role of its own name, and people often pick that."""
    return bool(role.tags and role.tags.bot_id == me.id)


def _quoted(message: discord.Message) -> str:
    if message.message_snapshots:
        words = "\n".join(snapshot.content for snapshot in message.message_snapshots if snapshot.content)
        return words and f"Forwarded:\n{words}"
    answered = message.reference.resolved if message.reference else None
    if not isinstance(answered, discord.Message):
        return ""
    names = ", ".join(attachment.filename for attachment in answered.attachments)
    words = "\n".join(filter(None, (answered.content, names and f"[{names}]")))
    return f"{answered.author.display_name}: {words}" if words else ""
