"""Replies of a scripted model, as values that are also JSON. `model_wires` has their wire formats."""

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
    """Seconds between two pieces; zero: as fast as the client reads."""
    wait: float = 0.0
    """Seconds before the first byte."""
    thinking: str = ""
    seal: str = "sealed-by-the-scripted-model"
    """The signature of the thinking; a transcript with another signature is rejected."""
    redacted: bool = False
    """Send the thinking as ciphertext only (Anthropic's redacted_thinking)."""
    usage: Tokens = Tokens()


class Call(Struct, frozen=True, tag="call"):
    name: str
    args: dict[str, object] = {}
    id: str = ""
    """Empty: derived from the length of the transcript, so that a repeated request gets the same."""
    raw: str | None = None
    """The argument text, when it is not the JSON of `args`."""
    namespace: str = ""
    """The group of the tool, as Responses has them."""


class Calls(Struct, frozen=True, tag="calls"):
    calls: tuple[Call, ...]
    text: str = ""
    thinking: str = ""
    seal: str = "sealed-by-the-scripted-model"
    pieces: int = 3
    """The number of pieces of each call's arguments; pieces of several calls are interleaved."""
    delay: float = 0.0
    wait: float = 0.0
    usage: Tokens = Tokens()


class Fail(Struct, frozen=True, tag="fail"):
    status: int
    message: str = "scripted failure"
    retry_after: float | str | None = None
    kind: str = ""
    """The API's error code; empty: the usual one for the status."""
    headers: dict[str, str] = {}
    body: str | None = None
    """Sent as text/html in place of the API's JSON."""


class Stall(Struct, frozen=True, tag="stall"):
    """Send `after`, then hang. None: do not even send a status line."""

    after: str | None = ""


class Cut(Struct, frozen=True, tag="cut"):
    """Close the connection too early.

    `head`: before the status line; `text`: after the text; `call`: in the middle of a tool
    call's arguments; `no_end`: the body is complete but the API's end marker is missing.
    """

    after: str = ""
    where: Literal["head", "text", "call", "no_end"] = "text"
    reset: bool = False
    """RST instead of FIN."""


class Broken(Struct, frozen=True, tag="broken"):
    """An error event in the middle of a stream."""

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
    """Ends because the model (or its content filter) refuses."""

    text: str = ""
    usage: Tokens = Tokens()


Reply: TypeAlias = Say | Call | Calls | Fail | Stall | Cut | Broken | Raw | Truncated | Refusal


class Plan(Struct, frozen=True):
    """A stateless script: the reply is chosen by counting the assistant's messages since the last user message.

    So a client that was killed and retries gets the same reply. A notice by alipes does not count
    as a user message. `by` has other plans, for user messages that contain its key.
    """

    replies: tuple[Reply, ...]
    by: dict[str, tuple[Reply, ...]] = {}
