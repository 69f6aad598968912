"""Server-sent events out of bytes, however the network cut them. What is in them it leaves to others."""

import base64
import hashlib
import re
import secrets

import msgspec

from alipes.kernel.messages import Image, Json, ToolCall, ToolResult
from alipes.kernel.turns import StopCause, Usage

CUT_OFF = "(the output limit cut this call off)"
NOTHING = "(no output)"
MOST = 2**53
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_decode = msgspec.json.Decoder(dict[str, Json]).decode


def notice(text: str) -> str:
    """A word of the house, so marked that the model does not take it for the user's."""
    return f"<notice>{text}</notice>"


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{base64_of(image)}"


def base64_of(image: Image) -> str:
    return base64.b64encode(image.data).decode()


def result_text(result: ToolResult) -> str:
    """Never empty: several servers reject an empty result."""
    return result.text if result.text.strip() else NOTHING


def arguments(call: ToolCall) -> str:
    """A call's arguments as the JSON text that the OpenAI wires want; what was no JSON stays as it was."""
    if call.raw and call.raw != CUT_OFF:
        return call.raw
    return msgspec.json.encode(call.args).decode()


def made_call(id: str, name: str, text: str, *, stop: StopCause = "calls") -> ToolCall:
    """A call from the argument text that the model sent, whatever it is."""
    id, name = id or new_id(), name or "unnamed"
    if not text.strip():
        return ToolCall(id, name, {}, CUT_OFF if stop == "length" else "")
    try:
        return ToolCall(id, name, _decode(text))
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return ToolCall(id, name, {}, text)


def new_id() -> str:
    return f"call_{secrets.token_hex(8)}"


def fit_id(id: str, longest: int = 64) -> str:
    """`id` as every API takes it: another vendor's may have signs or a length that this one rejects."""
    if id and len(id) <= longest and not _UNFIT.search(id):
        return id
    return f"call_{digest(id, 24)}"


def fit_name(name: str) -> str:
    """A tool's name as every API takes it: models invent others, and the transcript must stay acceptable."""
    return _UNFIT.sub("_", name)[:64] or "unnamed"


def digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]


def usage(
    input: int | None, output: int | None, *, cached: int | None, written: int | None, reasoning: int | None
) -> Usage:
    """Tokens as reported, kept within reason: `input` counts the cached, `output` the reasoning ones too."""
    return Usage(
        input=_count(input),
        output=_count(output),
        cached=_count(cached),
        cache_write=_count(written),
        reasoning=_count(reasoning),
    )


def _count(value: int | None) -> int:
    return min(max(value or 0, 0), MOST)


LONGEST = 8 * 1024 * 1024
"""Bytes that one event may have; a server that sends more is broken or hostile."""
_FIELDS = (b"", b"data", b"event", b"id", b"retry")
"""What a line may begin with before its colon; nothing begins a comment."""
_BOM = b"\xef\xbb\xbf"


class Overlong(Exception):
    """An event grew beyond all measure."""


class NotEvents(Exception):
    """What arrives is something else: a web page, a JSON document. Carries what was read of it."""

    def __init__(self, begun: bytes) -> None:
        super().__init__("not a stream of events")
        self.begun = begun


class Events:
    """Takes bytes as they come, gives the data of each event as soon as it is whole.

    Names, ids and comments are dropped: the APIs we speak repeat what matters in the data.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """The beginning of a line whose end has not come."""
        self._held = 0
        self._data: list[bytes] = []
        """The data lines of an event whose end has not come."""
        self._size = 0
        self._sure = False
        """Has one line of the stream been an event's?"""
        self._first = True

    def feed(self, block: bytes) -> list[bytes]:
        """The data of the events that `block` completes. Raises `Overlong` and `NotEvents`."""
        if b"\n" not in block and b"\r" not in block:
            self._hold(block)
            return []
        if self._rest:
            block = b"".join((*self._rest, block))
            self._rest, self._held = [], 0
        if b"\r" in block:
            # A carriage return at the very end may be half of a line end: it waits for the next block.
            block, last = (block[:-1], b"\r") if block.endswith(b"\r") else (block, b"")
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + last
        if self._first:
            block, self._first = block.removeprefix(_BOM), False
        *lines, rest = block.split(b"\n")
        if not self._sure:
            self._recognise(lines, block)
        if rest:
            self._hold(rest)
        return self._events(lines)

    def end(self) -> list[bytes]:
        """The data of a last event that was not closed by an empty line. Raises `NotEvents`."""
        last = b"".join(self._rest).rstrip(b"\r")
        self._rest = []
        if self._first:
            last = last.removeprefix(_BOM)
        if not self._sure:
            self._recognise([last], last)
        return self._events([last, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        whole: list[bytes] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
                if len(data) > 1:
                    self._weigh(len(line))
            elif not line and data:
                whole.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
                self._size = 0
        return whole

    def _recognise(self, lines: list[bytes], block: bytes) -> None:
        """The first line that says anything says whether these are events."""
        first = next((line for line in lines if line.strip()), None)
        if first is not None:
            if first.partition(b":")[0] not in _FIELDS:
                raise NotEvents(block)
            self._sure = True

    def _hold(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._held += len(piece)
        if self._held > LONGEST:
            raise Overlong(f"an event of more than {LONGEST >> 20} MiB")

    def _weigh(self, size: int) -> None:
        self._size += size
        if self._size > LONGEST:
            raise Overlong(f"an event of more than {LONGEST >> 20} MiB")
