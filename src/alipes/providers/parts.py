"""What the three wires say alike: images, notices, results, calls, ids. Values in, values out."""

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
