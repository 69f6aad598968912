"""An update of Telegram's as an `Arrival`: who said what where, and does it mean us. It fetches no file."""

from typing import Literal

from msgspec import Struct

from alipes.kernel.outbox import MediaKind
from alipes.kernel.platform import Arrival
from alipes.kernel.turns import Address
from alipes.platforms.telegram.api import Entity, File, Message, Query, Update, User

NAME = "telegram"
_KINDS: tuple[tuple[str, MediaKind], ...] = (
    ("animation", "video"),  # before `document`, which every animation is too
    ("document", "file"),
    ("voice", "voice"),
    ("audio", "audio"),
    ("video", "video"),
    ("video_note", "video"),
)


class Reader(Struct, frozen=True):
    """What must be known to read updates."""

    me: User
    group: Literal["mention", "all"] = "mention"
    per_user: bool = False
    commands: dict[str, str] = {}
    """Our commands by the names that Telegram's menu bears."""


def arrival(update: Update, reader: Reader) -> Arrival | None:
    """What came in, without its files; None for what says nothing, as when someone joins."""
    match update:
        case Update(callback_query=Query() as query):
            return _pressed(query, reader)
        case Update(message=Message() as message):
            return _said(message, reader)
        case Update(edited_message=Message() as message):
            said = _said(message, reader)
            if said is None:
                return None
            return _again(said, f"{said.id}:{update.update_id}")
    return None


def attached(message: Message) -> tuple[tuple[File, MediaKind], ...]:
    """The files that come along, photos excepted."""
    for name, kind in _KINDS:
        file: File | None = getattr(message, name)
        if file is not None:
            return ((file, "image" if file.mime_type.startswith("image/") and kind == "file" else kind),)
    return ()


def address_of(message: Message, user: str, reader: Reader) -> Address:
    kinds = {"private": "dm", "group": "group", "supergroup": "group"}
    kind = kinds.get(message.chat.type, message.chat.type)
    # Other chats give every answer a thread, which nobody sees as one.
    thread = str(message.message_thread_id) if message.is_topic_message and message.message_thread_id else ""
    alone = user if reader.per_user and kind != "dm" else ""
    return Address(NAME, str(message.chat.id), kind, thread, alone)


def _id(message: Message, reader: Reader) -> str:
    # Another bot counts a person's messages from one again.
    return f"{reader.me.id}:{message.chat.id}:{message.message_id}"


def _said(message: Message, reader: Reader) -> Arrival | None:
    text = _text(message, reader)
    described = _described(message)
    if not (text or described or message.photo or attached(message)):
        return None
    sender, name = _sender(message)
    group = message.chat.type != "private"
    forwarded = message.forward_origin
    words = "\n".join(filter(None, (described, text)))
    return Arrival(
        id=_id(message, reader),
        address=address_of(message, sender, reader),
        sender=sender,
        name=name,
        text="" if forwarded else words,
        message=str(message.message_id),
        quoted=f"Forwarded from {forwarded.name}:\n{words}" if forwarded and words else _answered(message),
        group=group,
        addressed=not group or _addressed(message, reader),
        album=f"{message.chat.id}:{message.media_group_id}" if message.media_group_id else "",
    )


def _again(said: Arrival, id: str) -> Arrival:
    fields = {name: getattr(said, name) for name in said.__struct_fields__}
    return Arrival(**(fields | {"id": id, "edits": said.id}))


def _pressed(query: Query, reader: Reader) -> Arrival | None:
    message = query.message
    if message is None or not query.data:
        return None
    sender = str(query.sender.id)
    return Arrival(
        id=f"{reader.me.id}:pressed:{query.id}",
        address=address_of(message, sender, reader),
        sender=sender,
        name=query.sender.name,
        message=str(message.message_id),
        group=message.chat.type != "private",
        pressed=query.data,
    )


def _sender(message: Message) -> tuple[str, str]:
    """Who speaks. Anonymous administrators all bear one user's id: there the chat itself speaks."""
    if message.sender_chat is not None:
        return str(message.sender_chat.id), message.sender_chat.title
    if message.sender is not None:
        return str(message.sender.id), message.sender.name
    return str(message.chat.id), message.chat.title


def _text(message: Message, reader: Reader) -> str:
    """The words, with links written out, and without our own name where it only calls us."""
    text = message.words
    for entity in sorted(message.marks, key=lambda entity: entity.offset, reverse=True):
        shown = entity.of(text)
        if entity.type == "text_link" and entity.url.rstrip("/") != shown.rstrip("/"):
            text = _replaced(text, entity, f"[{shown}]({entity.url})")
        elif entity.type == "bot_command" and entity.offset == 0:
            text = _replaced(text, entity, _command(shown, reader))
        elif entity.type == "mention" and entity.offset == 0 and _names_us(shown, reader):
            text = _replaced(text, entity, "").lstrip(" ,:\n")
    return text


def _replaced(text: str, entity: Entity, new: str) -> str:
    raw = text.encode("utf-16-le")
    parts = (raw[: entity.offset * 2], new.encode("utf-16-le"), raw[(entity.offset + entity.length) * 2 :])
    return b"".join(parts).decode("utf-16-le", "replace")


def _command(shown: str, reader: Reader) -> str:
    name, _, bot = shown.partition("@")
    if bot and not _names_us(f"@{bot}", reader):
        return shown
    return f"/{reader.commands.get(name[1:], name[1:])}"


def _names_us(mention: str, reader: Reader) -> bool:
    return bool(reader.me.username) and mention.lower() == f"@{reader.me.username}".lower()


def _addressed(message: Message, reader: Reader) -> bool:
    """In a group: it calls us by name, answers us, or is a command that no other bot is meant by."""
    answered = message.reply_to_message
    topic = answered is not None and answered.forum_topic_created is not None
    if answered and not topic and answered.sender and answered.sender.id == reader.me.id:
        return True
    for entity in message.marks:
        shown = entity.of(message.words)
        if entity.type == "mention" and _names_us(shown, reader):
            return True
        if entity.type == "text_mention" and entity.user and entity.user.id == reader.me.id:
            return True
        if entity.type == "bot_command" and entity.offset == 0:
            bot = shown.partition("@")[2]
            return not bot or _names_us(f"@{bot}", reader)
    return reader.group == "all"


def _answered(message: Message) -> str:
    """What it answers: the words that the person picked, or all of them."""
    if message.quote is not None:
        return message.quote.text
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return ""
    return answered.words or _described(answered)


def _described(message: Message) -> str:
    """What is neither words nor a file, in words."""
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
