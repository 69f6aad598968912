"""Telegram's Bot API as calls: one request, one answer, failures in our words. It retries nothing.

The token is part of every address, so no address ever reaches a message or the log.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import httpx2
import msgspec
from msgspec import Struct, field

from alipes.kernel.errors import ConfigError, DeliveryError, Gone
from alipes.kernel.models import Secret
from alipes.platforms.connection import unanswered
from alipes.runtime.http.clients import NOT_SENT, Http

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds for one call, but for polls and files."""


class Parameters(Struct, frozen=True):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class Answer(Struct, Generic[T], frozen=True):
    """What every call is answered with."""

    ok: bool
    result: T | None = None
    error_code: int = 0
    description: str = ""
    parameters: Parameters = Parameters()


class Refusal(Exception):
    """Telegram said no. Never leaves this platform: `ours` puts it in our words."""

    def __init__(self, answer: Answer[Any]) -> None:
        super().__init__(answer.description)
        self.code, self.why, self.parameters = answer.error_code, answer.description, answer.parameters

    def says(self, *words: str) -> bool:
        return any(word in self.why.lower() for word in words)


class Garbled(Exception):
    """An answer that is not Telegram's: a proxy's page, a network's login."""

    def __init__(self, status: int) -> None:
        super().__init__(f"an answer with status {status} that is not the Bot API's")
        self.status = status


class Upload(Struct, frozen=True):
    """A file that goes along with a call."""

    field: str
    name: str
    data: bytes


class Api:
    """Calls of one bot. Raises `Refusal`, `Garbled` and `httpx2.HTTPError` kinds; see `ours`."""

    def __init__(self, http: Http, token: Secret, base_url: str) -> None:
        self._http, self._token, self._base = http, token, base_url.rstrip("/")
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    async def call(
        self,
        method: str,
        kind: type[T],
        given: Mapping[str, Any],
        *,
        upload: Upload | None = None,
        patience: float = PATIENCE,
    ) -> T:
        """The result of a method, as a `kind`."""
        url = f"{self._base}/bot{self._token.reveal()}/{method}"
        if upload is None:
            content, form = msgspec.json.encode(given), "application/json"
        else:
            content, form = await asyncio.to_thread(_form, given, upload)
        headers = {"content-type": form}
        response = await self._http.request("POST", url, headers=headers, content=content, timeout=patience)
        return self._result(response, kind)

    async def download(self, path: str, largest: int) -> bytes:
        """A file by the path that `getFile` told. Raises `Garbled` for one that is larger."""
        url = f"{self._base}/file/bot{self._token.reveal()}/{path}"
        data = bytearray()
        try:
            async with asyncio.timeout(PATIENCE * 4), self._http.stream("GET", url) as response:
                if response.status_code != 200:
                    raise Garbled(response.status_code)
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > largest:
                        raise Garbled(413)
        except TimeoutError as late:
            raise httpx2.ReadTimeout("the file did not come in time") from late
        return bytes(data)

    def _result(self, response: httpx2.Response, kind: type[T]) -> T:
        if kind not in self._decoders:
            self._decoders[kind] = msgspec.json.Decoder(Answer[kind])  # type: ignore[valid-type]
        try:
            answer: Answer[T] = self._decoders[kind].decode(response.content)
        except msgspec.MsgspecError as error:
            raise Garbled(response.status_code) from error
        if not answer.ok or answer.result is None:
            raise Refusal(answer)
        return answer.result


def ours(theirs: Exception, doing: str) -> DeliveryError:
    """A failed call, by who acts next. `uncertain`: it was sent, and nobody said what became of it."""
    match theirs:
        case Refusal(parameters=Parameters(retry_after=float(wait))):
            return DeliveryError(f"Telegram asks to wait {wait:.0f} s before {doing}.", retry_after=wait)
        case Refusal(code=403):
            return Gone(f"Telegram does not let the bot write there ({doing}: {theirs.why}).")
        case Refusal(code=400 | 413):  # the chat or the message is not there, or can never be so
            return Gone(f"Telegram refuses it ({doing}: {theirs.why}).")
        case Refusal(code=401 | 404):
            return DeliveryError(f"Telegram does not accept the bot's token ({doing}).")
        case Refusal():
            return DeliveryError(f"Telegram answered with {theirs.code} ({doing}: {theirs.why}).")
        case Garbled(status=413):
            return Gone(f"Telegram finds it too large ({doing}).")
        case Garbled(status=status):
            return DeliveryError(
                f"Telegram answered with {status} and no word of its own ({doing}).", uncertain=True
            )
    sent, late = not isinstance(theirs, NOT_SENT), isinstance(theirs, httpx2.TimeoutException)
    # Only the kind of the failure: its text may hold the address, and so the token.
    return unanswered("Telegram", doing, type(theirs).__name__, sent=sent, late=late)


FAILURES = (Refusal, Garbled, httpx2.HTTPError)
"""What a call may raise."""


def bad_token() -> ConfigError:
    return ConfigError(
        "Telegram does not know the bot's token: copy it from @BotFather into the variable that "
        "telegram.token_env names (TELEGRAM_BOT_TOKEN)."
    )


def _form(given: Mapping[str, Any], upload: Upload) -> tuple[bytes, str]:
    """A multipart body: the parameters, then the file."""
    border = f"alipes{secrets.token_hex(16)}"
    parts = []
    for name, value in given.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        parts.append(
            f'--{border}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
        )
    file = upload.name.replace("\\", "_").replace('"', "'").replace("\r", " ").replace("\n", " ")
    head = (
        f'--{border}\r\ncontent-disposition: form-data; name="{upload.field}"; filename="{file}"\r\n'
        "content-type: application/octet-stream\r\n\r\n"
    )
    body = b"".join([*parts, head.encode("utf-8", "replace"), upload.data, f"\r\n--{border}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={border}"


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
