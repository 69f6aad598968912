"""Converts Telegram updates to incoming messages."""

from typing import Literal

from msgspec import Struct, structs

from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import IncomingMessage
from alipes.kernel.turns import Address
from alipes.platforms.telegram.api import CallbackQuery, Entity, TelegramFile, TelegramMessage, TelegramUser, Update

NAME = "telegram"
_KINDS: tuple[tuple[str, MediaKind], ...] = (
    ("animation", "video"),  # before `document`, which every animation has too
    ("document", "file"),
    ("voice", "voice"),
    ("audio", "audio"),
    ("video", "video"),
    ("video_note", "video"),
)


class ParseContext(Struct, frozen=True):
    me: TelegramUser
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    commands: dict[str, str] = {}
    """Our commands by their names in Telegram's menu."""


def parse_update(update: Update, context: ParseContext) -> IncomingMessage | None:
    """An incoming message without its files; None for service messages."""
    match update:
        case Update(callback_query=CallbackQuery() as query):
            return _pressed(query, context)
        case Update(message=TelegramMessage() as message):
            return _said(message, context)
        case Update(edited_message=TelegramMessage() as message):
            said = _said(message, context)
            return said and structs.replace(said, id=f"{said.id}:{update.update_id}", edits=said.id)
    return None


def list_attachments(message: TelegramMessage) -> tuple[tuple[TelegramFile, MediaKind], ...]:
    """Attached files except photos."""
    for name, kind in _KINDS:
        file: TelegramFile | None = getattr(message, name)
        if file is not None:
            return ((file, "image" if file.mime_type.startswith("image/") and kind == "file" else kind),)
    return ()


def chat_address(message: TelegramMessage, user: str, context: ParseContext) -> Address:
    kinds = {"private": "dm", "group": "group", "supergroup": "group"}
    kind = kinds.get(message.chat.type, message.chat.type)
    # in other chats every reply has a thread id, which nobody sees as a thread
    thread = str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else ""
    alone = user if context.per_user and kind != "dm" else ""
    return Address(NAME, str(message.chat.id), kind, thread, alone)


def _said(message: TelegramMessage, context: ParseContext) -> IncomingMessage | None:
    text = _text(message, context)
    described = _described(message)
    if not (text or described or message.photo or list_attachments(message)):
        return None
    sender, name = _sender(message)
    group = message.chat.type != "private"
    forwarded = message.forward_origin
    words = "\n".join(filter(None, (described, text)))
    return IncomingMessage(
        # another bot counts a person's messages from one again
        id=f"{context.me.id}:{message.chat.id}:{message.message_id}",
        address=chat_address(message, sender, context),
        sender=sender,
        name=name,
        text="" if forwarded else words,
        message=str(message.message_id),
        quoted=f"Forwarded from {forwarded.name}:\n{words}" if forwarded and words else _answered(message),
        group=group,
        addressed=not group or _addressed(message, context),
        album=f"{message.chat.id}:{message.media_group_id}" if message.media_group_id else "",
    )


def _pressed(query: CallbackQuery, context: ParseContext) -> IncomingMessage | None:
    message = query.message
    if message is None or not query.data:
        return None
    sender = str(query.sender.id)
    return IncomingMessage(
        id=f"{context.me.id}:pressed:{query.id}",
        address=chat_address(message, sender, context),
        sender=sender,
        name=query.sender.name,
        message=str(message.message_id),
        group=message.chat.type != "private",
        pressed=query.data,
    )


def _sender(message: TelegramMessage) -> tuple[str, str]:
    """The sender. Anonymous administrators share one user id: there the chat itself is the sender."""
    if message.sender_chat is not None:
        return str(message.sender_chat.id), message.sender_chat.title
    if message.sender is not None:
        return str(message.sender.id), message.sender.name
    return str(message.chat.id), message.chat.title


def _text(message: TelegramMessage, context: ParseContext) -> str:
    """The text with written-out links, without a leading mention of us."""
    text = message.words
    for entity in sorted(message.marks, key=lambda entity: entity.offset, reverse=True):
        shown = entity.of(text)
        if entity.type == "text_link" and entity.url.rstrip("/") != shown.rstrip("/"):
            text = _replaced(text, entity, f"[{shown}]({entity.url})")
        elif entity.type == "bot_command" and entity.offset == 0:
            text = _replaced(text, entity, _command(shown, context))
        elif entity.type == "mention" and entity.offset == 0 and _names_us(shown, context):
            text = _replaced(text, entity, "").lstrip(" ,:\n")
    return text


def _replaced(text: str, entity: Entity, new: str) -> str:
    raw = text.encode("utf-16-le")
    parts = (raw[: entity.offset * 2], new.encode("utf-16-le"), raw[(entity.offset + entity.length) * 2 :])
    return b"".join(parts).decode("utf-16-le", "replace")


def _command(shown: str, context: ParseContext) -> str:
    name, _, bot = shown.partition("@")
    if bot and not _names_us(f"@{bot}", context):
        return shown
    return f"/{context.commands.get(name[1:], name[1:])}"


def _names_us(mention: str, context: ParseContext) -> bool:
    return bool(context.me.username) and mention.lower() == f"@{context.me.username}".lower()


def _addressed(message: TelegramMessage, context: ParseContext) -> bool:
    """In a group: it mentions us, replies to us, or is a command that names no other bot."""
    answered = message.reply_to_message
    topic = answered is not None and answered.forum_topic_created is not None
    if answered and not topic and answered.sender and answered.sender.id == context.me.id:
        return True
    for entity in message.marks:
        shown = entity.of(message.words)
        if entity.type == "mention" and _names_us(shown, context):
            return True
        if entity.type == "text_mention" and entity.user and entity.user.id == context.me.id:
            return True
        if entity.type == "bot_command" and entity.offset == 0:
            bot = shown.partition("@")[2]
            return not bot or _names_us(f"@{bot}", context)
    return context.group == "all"


def _answered(message: TelegramMessage) -> str:
    """The quoted text: the part that the person selected, or the whole message it replies to."""
    if message.quote is not None:
        return message.quote.text
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return ""
    return answered.words or _described(answered)


def _described(message: TelegramMessage) -> str:
    """Text for content that is neither text nor a file."""
    if message.sticker is not None:
        return f"[sticker {message.sticker.emoji}]".replace(" ]", "]")
    if message.location is not None:
        return f"[location {message.location.latitude}, {message.location.longitude}]"
    if message.contact is not None:
        contact = message.contact
        return f"[contact {f'{contact.first_name} {contact.last_name}'.strip()} {contact.phone_number}]"
    if message.poll is not None:
        return f"[poll {message.poll.question}: {' / '.join(option.text for option in message.poll.options)}]"
    return ""
