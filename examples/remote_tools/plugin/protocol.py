"""Messages of the protocol, from client to server and back. Pure values; README.md explains each."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

VERSION = 1

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64)]
ToolName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
Why: TypeAlias = Literal["cancelled", "timeout", "answered", "disconnected", "unknown"]
"""How a call ended."""
Label: TypeAlias = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]{1,80}$")]

# Close codes beside the standard ones (1001: going away, 1009: message too big).
BAD_HELLO, BAD_TOKEN, LATE_HELLO, REPLACED, FULL = 4400, 4401, 4408, 4409, 4429


class Payload(Struct, frozen=True, tag_field="type", tag=str.lower):
    """One message: a JSON object in one text frame, whose `type` is the name of the class."""


# --- from client to server


class Hello(Payload, frozen=True):
    protocol: int
    token: str
    name: Label
    """The client's name for people and the model; it need not be unique."""
    instance: str = ""
    """Created by the client and kept over reconnects: a new connection replaces the old one."""


class RemoteSpec(Struct, frozen=True):
    name: ToolName
    description: Annotated[str, Meta(min_length=1, max_length=4000)]
    schema: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    effect: Literal["read", "write"] = "write"
    timeout: Annotated[float, Meta(gt=0)] | None = None
    """Seconds; None: the configured default."""


class Register(Payload, frozen=True):
    id: Id
    tool: RemoteSpec


class Unregister(Payload, frozen=True):
    id: Id
    name: str


class Progress(Payload, frozen=True):
    call: str
    text: Annotated[str, Meta(max_length=10_000)]


class Result(Payload, frozen=True):
    call: str
    output: Any
    """Text reaches the model unchanged, anything else as JSON."""


class Failure(Payload, frozen=True, tag="error"):
    """The tool failed; the model reads why."""

    call: str
    message: str


class Ping(Payload, frozen=True):
    id: str = ""


ClientMessage: TypeAlias = Hello | Register | Unregister | Progress | Result | Failure | Ping


# --- from server to client


class Limits(Struct, frozen=True):
    message_bytes: int
    tools: int
    calls: int
    timeout: float
    """Default of a tool, in seconds."""
    max_timeout: float


class Welcome(Payload, frozen=True):
    protocol: int
    client: str
    limits: Limits


class Registered(Payload, frozen=True):
    id: str
    name: str
    timeout: float
    """The effective one: never more than `max_timeout`."""


class Unregistered(Payload, frozen=True):
    id: str
    name: str


class Call(Payload, frozen=True):
    call: str
    tool: str
    args: dict[str, Any]
    timeout: float
    session: str


class Cancelled(Payload, frozen=True):
    call: str
    reason: str


class Timeout(Payload, frozen=True):
    call: str
    seconds: float


class Dropped(Payload, frozen=True):
    """An answer to a call that had ended."""

    call: str
    why: Why


class Refused(Payload, frozen=True, tag="error"):
    code: Literal["bad_message", "name_taken", "bad_tool", "too_many_tools", "no_such_tool"]
    message: str
    id: str = ""


class Pong(Payload, frozen=True):
    id: str = ""


ServerMessage: TypeAlias = Welcome | Registered | Unregistered | Call | Cancelled | Timeout | Dropped | Refused | Pong

_decoder: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)
_encoder = msgspec.json.Encoder()


class _MessageId(Struct, frozen=True):
    id: str = ""


def read(frame: str | bytes) -> ClientMessage | Refused:
    """Decode a client's message; for an invalid one, the error to answer with."""
    if isinstance(frame, bytes):
        return Refused("bad_message", "send text frames, not binary ones")
    try:
        return _decoder.decode(frame)
    except (msgspec.MsgspecError, RecursionError) as error:
        return Refused("bad_message", f"invalid message: {error}", _id(frame))


def encode(message: ServerMessage) -> bytes:
    return _encoder.encode(message)


def _id(frame: str) -> str:
    """The id of an invalid message, if it can be read."""
    try:
        return msgspec.json.decode(frame, type=_MessageId).id[:64]
    except (msgspec.MsgspecError, RecursionError):
        return ""


def check_schema(schema: dict[str, Any]) -> str:
    """The problem of a tool's schema, or nothing: a schema that no provider accepts would fail every turn."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type") != "object":
        return 'the schema must have "type": "object"'
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        return "the schema's properties must be an object of schemas"
    if not isinstance(required, list) or not all(each in properties for each in required):
        return "the schema requires a property that it does not define"
    return ""
