"""Telegram's Bot API: one request per call, our own errors, no retries.

The token is part of every address, so addresses never appear in messages or the log.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, field

from alipes.kernel.errors import ConfigError, DeliveryError, Undeliverable
from alipes.kernel.models import Secret
from alipes.platforms.connection import no_answer_error
from alipes.platforms.files import read_download
from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.lazy_httpx import errors, httpx2
from alipes.runtime.http.messages import HttpResponse

T = TypeVar("T")

CALL_TIMEOUT = 30.0
"""Seconds for one call, except polls and files."""


class ResponseParameters(Struct, frozen=True):
    retry_after: float | None = None
    migrate_to_chat_id: int | None = None


class ApiResponse(Struct, Generic[T], frozen=True):
    ok: bool
    result: T | None = None
    error_code: int = 0
    description: str = ""
    parameters: ResponseParameters = ResponseParameters()


class TelegramError(Exception):
    """Telegram returned an error. It stays inside this platform; see `translate_error`."""

    def __init__(self, answer: ApiResponse[Any]) -> None:
        super().__init__(answer.description)
        self.code, self.why, self.parameters = answer.error_code, answer.description, answer.parameters

    def mentions(self, *words: str) -> bool:
        return any(word in self.why.lower() for word in words)


class InvalidApiResponse(Exception):
    """A response that is not the Bot API's, such as a proxy's error page."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a response with status {status} that is not the Bot API's")
        self.status = status


class FileUpload(Struct, frozen=True):
    field: str
    name: str
    data: bytes


class TelegramApi:
    """Calls of one bot. Raises `FAILURES`; see `translate_error`."""

    def __init__(self, http: HttpClient, token: Secret, base_url: str) -> None:
        self._http, self._token, self._base = http, token, base_url.rstrip("/")
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    async def call(
        self,
        method: str,
        kind: type[T],
        given: Mapping[str, Any],
        *,
        upload: FileUpload | None = None,
        patience: float = CALL_TIMEOUT,
    ) -> T:
        """Call a method; its result is decoded as `kind`."""
        url = f"{self._base}/bot{self._token.reveal()}/{method}"
        if upload is None:
            content, form = msgspec.json.encode(given), "application/json"
        else:
            content, form = await asyncio.to_thread(_form, given, upload)
        headers = {"content-type": form}
        response = await self._http.request("POST", url, headers=headers, content=content, timeout=patience)
        return self._result(response, kind)

    async def download(self, path: str, largest: int) -> bytes:
        """Download a file by the path from `getFile`. Raises `InvalidApiResponse` if it is too large."""
        stream = self._http.stream("GET", f"{self._base}/file/bot{self._token.reveal()}/{path}")
        status, data = await read_download(stream, largest=largest, timeout_s=CALL_TIMEOUT * 4)
        if status != 200:
            raise InvalidApiResponse(status)
        return data

    def _result(self, response: HttpResponse, kind: type[T]) -> T:
        if kind not in self._decoders:
            self._decoders[kind] = msgspec.json.Decoder(ApiResponse[kind])  # type: ignore[valid-type]
        try:
            answer: ApiResponse[T] = self._decoders[kind].decode(response.content)
        except msgspec.MsgspecError as error:
            raise InvalidApiResponse(response.status_code) from error
        if not answer.ok or answer.result is None:
            raise TelegramError(answer)
        return answer.result


def translate_error(failure: Exception, doing: str) -> DeliveryError:
    """Translate a failed call. `uncertain`: it was sent and the result is unknown."""
    match failure:
        case TelegramError(parameters=ResponseParameters(retry_after=float(wait))):
            return DeliveryError(f"Telegram asks to wait {wait:.0f} s before {doing}.", retry_after=wait)
        case TelegramError(code=403):
            return Undeliverable(f"Telegram does not allow the bot to write there ({doing}: {failure.why}).")
        case TelegramError(code=400 | 413):  # the chat or message does not exist, or the request is invalid
            return Undeliverable(f"Telegram rejected it ({doing}: {failure.why}).")
        case TelegramError(code=401 | 404):
            return DeliveryError(f"Telegram does not accept the bot's token ({doing}).")
        case TelegramError():
            return DeliveryError(f"Telegram answered with {failure.code} ({doing}: {failure.why}).")
        case InvalidApiResponse(status=413):
            return Undeliverable(f"It is too large for Telegram ({doing}).")
        case InvalidApiResponse(status=status):
            return DeliveryError(f"Telegram answered with {status} and an invalid response ({doing}).", uncertain=True)
    sent, late = not isinstance(failure, errors.NOT_SENT), isinstance(failure, httpx2.TimeoutException)
    # only the type of the error: its text may contain the address and with it the token
    return no_answer_error("Telegram", doing, type(failure).__name__, sent=sent, late=late)


FAILURES = (TelegramError, InvalidApiResponse, httpx2.HTTPError)
"""What a call may raise."""


def bad_token_error() -> ConfigError:
    return ConfigError(
        "Telegram does not know the bot's token: copy it from @BotFather into the variable that "
        "telegram.token_env names (TELEGRAM_BOT_TOKEN)."
    )


def _form(given: Mapping[str, Any], upload: FileUpload) -> tuple[bytes, str]:
    """Multipart body: the parameters, then the file."""
    texts = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in given.items()
    }
    name = re.sub(r"[\r\n]", " ", upload.name.replace("\\", "_").replace('"', "'")).encode("utf-8", "replace").decode()
    file = (name, upload.data, "application/octet-stream")
    request = httpx2.Request("POST", "http://localhost", data=texts, files={upload.field: file})
    return request.read(), request.headers["content-type"]


class TelegramUser(Struct, frozen=True):
    id: int
    first_name: str = ""
    last_name: str = ""
    username: str = ""

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip() or self.username or str(self.id)


class TelegramChat(Struct, frozen=True):
    id: int
    type: str = "private"
    title: str = ""


class Entity(Struct, frozen=True):
    """A marked range of a text, counted in UTF-16 units."""

    type: str
    offset: int
    length: int
    url: str = ""
    user: TelegramUser | None = None

    def of(self, text: str) -> str:
        raw = text.encode("utf-16-le")
        return raw[self.offset * 2 : (self.offset + self.length) * 2].decode("utf-16-le", "replace")


class TelegramFile(Struct, frozen=True):
    """A file of any kind: photo size, document, voice note."""

    file_id: str
    file_size: int = 0
    file_name: str = ""
    mime_type: str = ""
    width: int = 0
    emoji: str = ""


class ForwardOrigin(Struct, frozen=True):
    """Author of a forwarded message."""

    sender_user: TelegramUser | None = None
    sender_user_name: str = ""
    sender_chat: TelegramChat | None = None
    chat: TelegramChat | None = None

    @property
    def name(self) -> str:
        chat = self.sender_chat or self.chat
        named = self.sender_user.name if self.sender_user else chat.title if chat else ""
        return named or self.sender_user_name or "someone"


class TextPart(Struct, frozen=True):
    """A quote, or an option of a poll."""

    text: str


class Location(Struct, frozen=True):
    latitude: float
    longitude: float


class Contact(Struct, frozen=True):
    phone_number: str = ""
    first_name: str = ""
    last_name: str = ""


class Poll(Struct, frozen=True):
    question: str
    options: tuple[TextPart, ...] = ()


class TelegramMessage(Struct, frozen=True):
    message_id: int
    chat: TelegramChat
    sender: TelegramUser | None = field(name="from", default=None)
    sender_chat: TelegramChat | None = None
    text: str = ""
    entities: tuple[Entity, ...] = ()
    caption: str = ""
    caption_entities: tuple[Entity, ...] = ()
    message_thread_id: int = 0
    is_topic_message: bool = False
    reply_to_message: "TelegramMessage | None" = None
    quote: TextPart | None = None
    forward_origin: ForwardOrigin | None = None
    media_group_id: str = ""
    photo: tuple[TelegramFile, ...] = ()
    document: TelegramFile | None = None
    voice: TelegramFile | None = None
    audio: TelegramFile | None = None
    video: TelegramFile | None = None
    video_note: TelegramFile | None = None
    animation: TelegramFile | None = None
    sticker: TelegramFile | None = None
    location: Location | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    forum_topic_created: dict[str, Any] | None = None

    @property
    def words(self) -> str:
        return self.text or self.caption

    @property
    def marks(self) -> tuple[Entity, ...]:
        return self.entities or self.caption_entities


class CallbackQuery(Struct, frozen=True):
    """A pressed button."""

    id: str
    sender: TelegramUser = field(name="from")
    message: TelegramMessage | None = None
    data: str = ""


class Update(Struct, frozen=True):
    update_id: int
    message: TelegramMessage | None = None
    edited_message: TelegramMessage | None = None
    callback_query: CallbackQuery | None = None

    @property
    def chat(self) -> int:
        """Id of its chat: updates of a chat are handled in order."""
        pressed = self.callback_query.message if self.callback_query else None
        message = self.message or self.edited_message or pressed
        return message.chat.id if message else 0


class UpdateNumber(Struct, frozen=True):
    """The part of an update that is always readable."""

    update_id: int


class RemoteFile(Struct, frozen=True):
    file_path: str = ""
    file_size: int = 0


class SentMessage(Struct, frozen=True):
    message_id: int


class WebhookInfo(Struct, frozen=True):
    url: str = ""
    pending_update_count: int = 0
    last_error_date: int = 0
    last_error_message: str = ""


UPDATE_TYPES = ("message", "edited_message", "callback_query")
"""Update types that we request."""
