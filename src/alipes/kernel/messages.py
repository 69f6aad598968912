"""Messages and their parts.

Pure values. Messages with equal content are equal; ids and times belong to the store.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    Json = Any  # decoders are built from it at run time and do not support recursive aliases


IMAGE_CHARS = 6_000
"""Characters that an image counts for."""
MODEL_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_STARTS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(start: bytes) -> str:
    """The media type if it is one of `MODEL_IMAGE_TYPES`; else empty."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _STARTS if start.startswith(magic)), "")


Role: TypeAlias = Literal["user", "assistant", "tool", "notice"]
"""`notice`: written by alipes for the model (continue, summarise); never shown as the user's words."""
Outcome: TypeAlias = Literal["ok", "failed", "denied", "cancelled", "unknown"]


class Text(Struct, frozen=True, tag="text"):
    text: str


class Image(Struct, frozen=True, tag="image"):
    media_type: str
    data: bytes


class Thinking(Struct, frozen=True, tag="thinking", omit_defaults=True):
    text: str
    seal: str = ""
    """The provider's signature or ciphertext; sent back to it verbatim."""
    by: str = ""
    """The `provider/model` that signed it; only that model receives the signature."""


class ToolCall(Struct, frozen=True, tag="call", omit_defaults=True):
    id: str
    name: str
    args: dict[str, Json]
    raw: str = ""
    """The model's arguments if they were not a JSON object; such a call is answered with an error."""


class WebSource(Struct, frozen=True, omit_defaults=True):
    """A web page behind a tool result, numbered within the conversation so that an answer can cite it as [1]."""

    number: int
    url: str
    title: str = ""
    read: bool = False
    """Its text was read; otherwise it was only found."""


class ToolResult(Struct, frozen=True, tag="result", omit_defaults=True):
    call_id: str
    text: str
    outcome: Outcome = "ok"
    """`cancelled`: stopped on purpose; `unknown`: the process died during the call, so it may have taken effect."""
    images: tuple[Image, ...] = ()
    files: tuple[str, ...] = ()
    """Files that the tool made for the user: absolute paths."""
    sources: tuple[WebSource, ...] = ()
    passed_on: bool = False
    """A placeholder: the client runs this call."""


Part: TypeAlias = Text | Image | Thinking | ToolCall | ToolResult


class Message(Struct, frozen=True, weakref=True):
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])


def user(text: str, *more: Part) -> Message:
    return Message("user", (Text(text), *more))


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


def notice(text: str) -> Message:
    return Message("notice", (Text(text),))


def count_chars(messages: tuple[Message, ...]) -> int:
    """Total characters as a model reads them."""
    return sum(_part_chars(part) for message in messages for part in message.parts)


def _part_chars(part: Part) -> int:
    match part:
        case Text(text) | Thinking(text):
            return len(text)
        case ToolCall():
            args = sum(len(key) + len(str(value)) for key, value in part.args.items())
            return len(part.name) + len(part.raw) + args
        case ToolResult(text=text, images=images):
            return len(text) + IMAGE_CHARS * len(images)
        case Image():
            return IMAGE_CHARS
