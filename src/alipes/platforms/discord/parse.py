"""Converts Discord messages and interactions to incoming messages, and downloads attachments."""

import re
from typing import Any

import aiohttp
import discord
from discord import MessageType
from msgspec.structs import replace

from alipes.kernel.platform import IncomingMessage, ReceivedFile
from alipes.kernel.turns import Address
from alipes.platforms.discord.http import DiscordHttp
from alipes.platforms.files import Downloads, make_file_name, media_kind

NAME = "discord"
_SPOKEN = (MessageType.default, MessageType.reply)


def chat_address(channel: Any, person: str, *, per_user: bool = False) -> Address:
    """Address of a channel. A Discord thread is a channel of its own; for us it is part of its parent."""
    if isinstance(channel, discord.DMChannel) or getattr(channel, "guild", None) is None:
        return Address(NAME, str(channel.id))
    user = person if per_user else ""
    if isinstance(channel, discord.Thread):
        return Address(NAME, str(channel.parent_id), "group", str(channel.id), user)
    return Address(NAME, str(channel.id), "group", user=user)


def is_from_person(message: discord.Message) -> bool:
    """True for a message of a person: neither a system message nor one of a program."""
    return message.type in _SPOKEN and not message.author.bot and message.webhook_id is None


def parse_message(
    message: discord.Message, me: discord.abc.User, *, per_user: bool = False, edited: bool = False
) -> IncomingMessage:
    """A message without its files."""
    person, here = str(message.author.id), message.channel
    group = not isinstance(here, discord.DMChannel) and message.guild is not None
    changed = message.edited_at.timestamp() if edited and message.edited_at else None
    return IncomingMessage(
        id=str(message.id) if changed is None else f"{message.id}@{changed:.6f}",
        address=chat_address(here, person, per_user=per_user),
        sender=person,
        name=message.author.display_name,
        text=_text(message, me),
        message=str(message.id),
        quoted=_quoted(message),
        group=group,
        addressed=not group or _addressed(message, me),
        edits="" if changed is None else str(message.id),
    )


def parse_interaction(interaction: discord.Interaction[Any], *, per_user: bool = False) -> IncomingMessage | None:
    """A pressed button or a slash command; None for other interactions."""
    data: Any = interaction.data or {}
    if interaction.channel is None:
        return None
    person = str(interaction.user.id)
    where = chat_address(interaction.channel, person, per_user=per_user)
    who, group = interaction.user.display_name, interaction.guild_id is not None
    incoming = IncomingMessage(id=str(interaction.id), address=where, sender=person, name=who, group=group)
    match interaction.type:
        case discord.InteractionType.component:
            about = str(interaction.message.id) if interaction.message else ""
            return replace(incoming, message=about, pressed=data["custom_id"])
        case discord.InteractionType.application_command:
            words = [str(option.get("value", "")) for option in data.get("options", ())]
            return replace(incoming, text=" ".join((f"/{data['name']}", *words)).strip())
    return None


async def fetch_files(http: DiscordHttp, message: discord.Message, files: Downloads) -> None:
    for attachment in list_attachments(message):
        name, mime = attachment.filename, (attachment.content_type or "").partition(";")[0]
        with files.note_failure(name, discord.HTTPException, aiohttp.ClientError, OSError):
            files.check_size(attachment.size)
            kind = "voice" if attachment.is_voice_message() or message.flags.voice else media_kind(mime)
            async with http.open_download(attachment.url) as chunks:
                await files.save(ReceivedFile(make_file_name(str(attachment.id), name), kind, name, mime), chunks)


def list_attachments(message: discord.Message) -> list[discord.Attachment]:
    passed_on = [attachment for snapshot in message.message_snapshots for attachment in snapshot.attachments]
    return [*message.attachments, *passed_on]


def _text(message: discord.Message, me: discord.abc.User) -> str:
    """The text with names instead of ids, without the mention of us."""
    text = re.sub(rf"<@!?{me.id}>", "", message.content)
    for role in message.role_mentions:
        ours = _ours(role, me)
        text = text.replace(role.mention, "" if ours else f"@{role.name}")
    for person in message.mentions:
        text = re.sub(rf"<@!?{person.id}>", "@" + person.display_name.replace("\\", r"\\"), text)
    for channel in message.channel_mentions:
        text = text.replace(channel.mention, f"#{channel.name}")
    stickers = [f"[sticker: {sticker.name}]" for sticker in message.stickers]
    return "\n".join(filter(None, (text.strip(), *stickers)))


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
    """True for the role that Discord creates for every bot: people often mention it instead of the bot."""
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
