"""The words on the wire: what a client may say, and what it is told. Pure values; README.md explains each."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

VERSION = 1

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
ToolName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
Why: TypeAlias = Literal["cancelled", "timeout", "answered", "disconnected", "unknown"]
"""How a call ended."""
Label: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,80}$")]

# Why a connection is closed, beside the codes every WebSocket has (1001: we go, 1009: too big a message).
BAD_HELLO, BAD_TOKEN, LATE_HELLO, REPLACED, FULL = 4400, 4401, 4408, 4409, 4429


class Words(Struct, frozen=True, tag_field="type", tag=str.lower):
    """One message: a JSON object in one text frame, whose `type` is the name of the class."""


# --- what a client says


class Hello(Words, frozen=True):
    protocol: int
    token: str
    name: Label
    """What people and the model know the client by; several may have the same."""
    instance: str = ""
    """Made up by the client and kept over reconnects: a new connection takes the place of the old one."""


class RemoteSpec(Struct, frozen=True):
    name: ToolName
    description: Annotated[str, Meta(min_length=1, max_length=4000)]
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    effect: Literal["read", "write"] = "write"
    timeout: Annotated[float, Meta(gt=0)] | None = None
    """Seconds; None: what the plugin is configured with."""


class Register(Words, frozen=True):
    id: Id
    tool: RemoteSpec


class Unregister(Words, frozen=True):
    id: Id
    name: str


class Progress(Words, frozen=True):
    call: str
    text: Annotated[str, Meta(max_length=10_000)]


class Result(Words, frozen=True):
    call: str
    output: Any
    """Text reaches the model as it is, anything else as JSON."""


class Broke(Words, frozen=True, tag="error"):
    """The tool could not do it; the model reads why."""

    call: str
    message: str


class Ping(Words, frozen=True):
    id: str = ""


Said: TypeAlias = Hello | Register | Unregister | Progress | Result | Broke | Ping


# --- what it is told


class Limits(Struct, frozen=True):
    message_bytes: int
    tools: int
    calls: int
    timeout: float
    """Of a tool that names none, in seconds."""
    max_timeout: float


class Welcome(Words, frozen=True):
    protocol: int
    client: str
    limits: Limits


class Registered(Words, frozen=True):
    id: str
    name: str
    timeout: float
    """What holds: never more than `max_timeout`."""


class Unregistered(Words, frozen=True):
    id: str
    name: str


class Call(Words, frozen=True):
    call: str
    tool: str
    args: dict[str, Any]
    timeout: float
    session: str


class Cancelled(Words, frozen=True):
    call: str
    reason: str


class Timeout(Words, frozen=True):
    call: str
    seconds: float


class Dropped(Words, frozen=True):
    """An answer came to a call that was over."""

    call: str
    why: Why


class Refused(Words, frozen=True, tag="error"):
    code: Literal["bad_message", "name_taken", "bad_tool", "too_many_tools", "no_such_tool"]
    message: str
    id: str = ""


class Pong(Words, frozen=True):
    id: str = ""


Told: TypeAlias = Welcome | Registered | Unregistered | Call | Cancelled | Timeout | Dropped | Refused | Pong

_said: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)
_encoder = msgspec.json.Encoder()


class _Marked(Struct, frozen=True):
    id: str = ""


def read(frame: str | bytes) -> Said | Refused:
    """What the client said; if it makes no sense, the answer to that."""
    if isinstance(frame, bytes):
        return Refused("bad_message", "send text frames, not binary ones")
    try:
        return _said.decode(frame)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Refused("bad_message", f"not understood: {error}", _id(frame))


def written(words: Told) -> bytes:
    return _encoder.encode(words)


def _id(frame: str) -> str:
    """Which message it was, where that much can be read."""
    try:
        return msgspec.json.decode(frame, type=_Marked).id[:64]
    except (msgspec.MsgspecError, RecursionError):
        return ""


def unsound(schema: dict[str, Any]) -> str:
    """What is wrong with a tool's schema, or nothing: one that no provider takes would fail every turn."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type") != "object":
        return 'the schema must have "type": "object"'
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        return "the schema's properties must be an object of schemas"
    if not isinstance(required, list) or not all(each in properties for each in required):
        return "the schema requires what it has no property for"
    return ""
