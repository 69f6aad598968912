"""What a scripted model may answer: small values, also as JSON. How they look on a wire is `model_wires`' business."""

from typing import Literal, TypeAlias

from msgspec import Struct


class Tokens(Struct, frozen=True):
    """The usage a reply reports; `cached` and `cache_write` are part of `input`, `reasoning` of `output`."""

    input: int = 100
    output: int = 20
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Say(Struct, frozen=True, tag="say"):
    text: str
    pieces: int = 4
    delay: float = 0.0
    """Seconds between two pieces; zero sends all of them as fast as the client reads."""
    wait: float = 0.0
    """Seconds before the first byte."""
    thinking: str = ""
    seal: str = "sealed-by-the-scripted-model"
    """What the thinking is sealed with; a transcript that brings back another seal is rejected."""
    redacted: bool = False
    """The thinking comes as ciphertext only (Anthropic's redacted_thinking)."""
    usage: Tokens = Tokens()


class Call(Struct, frozen=True, tag="call"):
    name: str
    args: dict[str, object] = {}
    id: str = ""
    """Empty: one is made from the length of the transcript, so a repeated request gets the same."""
    raw: str | None = None
    """The argument text, when it is not the JSON of `args`."""


class Calls(Struct, frozen=True, tag="calls"):
    calls: tuple[Call, ...]
    text: str = ""
    thinking: str = ""
    seal: str = "sealed-by-the-scripted-model"
    pieces: int = 3
    """Into how many pieces each call's arguments are cut; the pieces of several calls are interleaved."""
    delay: float = 0.0
    wait: float = 0.0
    usage: Tokens = Tokens()


class Fail(Struct, frozen=True, tag="fail"):
    status: int
    message: str = "scripted failure"
    retry_after: float | str | None = None
    kind: str = ""
    """The API's own word for it; empty means the usual one for the status."""
    headers: dict[str, str] = {}
    body: str | None = None
    """Sent as text/html in place of the API's JSON."""


class Stall(Struct, frozen=True, tag="stall"):
    """Say `after`, then nothing more, for ever. None does not even send a status line."""

    after: str | None = ""


class Cut(Struct, frozen=True, tag="cut"):
    """Close the connection too early.

    `head`: before the status line; `text`: after the text; `call`: in the middle of a tool
    call's arguments; `no_end`: all is said and HTTP ends well, but the API's end marker is missing.
    """

    after: str = ""
    where: Literal["head", "text", "call", "no_end"] = "text"
    reset: bool = False
    """RST in place of FIN."""


class Broken(Struct, frozen=True, tag="broken"):
    """An error event in the middle of a stream that began well."""

    after: str = ""
    message: str = "Overloaded"
    kind: str = "overloaded_error"


class Raw(Struct, frozen=True, tag="raw"):
    """These bytes as the body, in one piece or cut at every `step` bytes."""

    data: bytes
    status: int = 200
    content_type: str = "text/event-stream"
    step: int = 0
    encoding: str = ""


class Truncated(Struct, frozen=True, tag="truncated"):
    """Ends because the output limit was reached."""

    text: str
    usage: Tokens = Tokens()


class Refusal(Struct, frozen=True, tag="refusal"):
    """Ends because the model (or its guard) declines."""

    text: str = ""
    usage: Tokens = Tokens()


Reply: TypeAlias = Say | Call | Calls | Fail | Stall | Cut | Broken | Raw | Truncated | Refusal


class Plan(Struct, frozen=True):
    """A script without memory: the reply is chosen by counting the assistant's messages since the user last spoke.

    So a client that was killed and asks again gets the same reply again. A house notice does not count
    as the user speaking. `by` holds other plans for users whose last words contain its key.
    """

    replies: tuple[Reply, ...]
    by: dict[str, tuple[Reply, ...]] = {}
