"""What Telegram says of messages, as far as we listen: one struct per object. Pure values."""

from typing import Any

from msgspec import Struct, field


class User(Struct, frozen=True):
    id: int
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip() or self.username or str(self.id)


class Chat(Struct, frozen=True):
    id: int
    type: str = "private"
    title: str = ""


class Entity(Struct, frozen=True):
    """A stretch of text that means something; counted in units of UTF-16."""

    type: str
    offset: int
    length: int
    url: str = ""
    user: User | None = None

    def of(self, text: str) -> str:
        raw = text.encode("utf-16-le")
        return raw[self.offset * 2 : (self.offset + self.length) * 2].decode("utf-16-le", "replace")


class File(Struct, frozen=True):
    """A file of any kind: photo sizes, documents, voice notes, all tell these."""

    file_id: str
    file_size: int = 0
    file_name: str = ""
    mime_type: str = ""
    width: int = 0
    emoji: str = ""


class Origin(Struct, frozen=True):
    """Whose words a forwarded message holds."""

    sender_user: User | None = None
    sender_user_name: str = ""
    sender_chat: Chat | None = None
    chat: Chat | None = None

    @property
    def name(self) -> str:
        chat = self.sender_chat or self.chat
        named = self.sender_user.name if self.sender_user else chat.title if chat else ""
        return named or self.sender_user_name or "someone"


class Quote(Struct, frozen=True):
    text: str


class Place(Struct, frozen=True):
    latitude: float
    longitude: float


class Contact(Struct, frozen=True):
    phone_number: str = ""
    first_name: str = ""
    last_name: str = ""


class Option(Struct, frozen=True):
    text: str


class Poll(Struct, frozen=True):
    question: str
    options: tuple[Option, ...] = ()


class Message(Struct, frozen=True):
    message_id: int
    chat: Chat
    sender: User | None = field(name="from", default=None)
    sender_chat: Chat | None = None
    text: str = ""
    entities: tuple[Entity, ...] = ()
    caption: str = ""
    caption_entities: tuple[Entity, ...] = ()
    message_thread_id: int = 0
    is_topic_message: bool = False
    reply_to_message: "Message | None" = None
    quote: Quote | None = None
    forward_origin: Origin | None = None
    media_group_id: str = ""
    photo: tuple[File, ...] = ()
    document: File | None = None
    voice: File | None = None
    audio: File | None = None
    video: File | None = None
    video_note: File | None = None
    animation: File | None = None
    sticker: File | None = None
    location: Place | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    forum_topic_created: dict[str, Any] | None = None

    @property
    def words(self) -> str:
        return self.text or self.caption

    @property
    def marks(self) -> tuple[Entity, ...]:
        return self.entities or self.caption_entities


class Query(Struct, frozen=True):
    """A button was pressed."""

    id: str
    sender: User = field(name="from")
    message: Message | None = None
    data: str = ""


class Update(Struct, frozen=True):
    update_id: int
    message: Message | None = None
    edited_message: Message | None = None
    callback_query: Query | None = None

    @property
    def chat(self) -> int:
        """What happens in one chat is taken in order."""
        pressed = self.callback_query.message if self.callback_query else None
        message = self.message or self.edited_message or pressed
        return message.chat.id if message else 0


class Numbered(Struct, frozen=True):
    """Of an update that cannot be read, this much."""

    update_id: int


class RemoteFile(Struct, frozen=True):
    file_path: str = ""
    file_size: int = 0


class Sent(Struct, frozen=True):
    message_id: int


class WebhookInfo(Struct, frozen=True):
    url: str = ""
    pending_update_count: int = 0
    last_error_date: int = 0
    last_error_message: str = ""


LISTENED = ("message", "edited_message", "callback_query")
"""The updates that we ask for."""
