"""Values to the text of a column or a line, and back. Knows JSON, no SQL and no socket."""

import msgspec

from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import Address, Inbound, Op, Usage

messages = msgspec.json.Decoder(Message)
inbounds = msgspec.json.Decoder(Inbound)
addresses = msgspec.json.Decoder(Address)
results = msgspec.json.Decoder(ToolResult)
ops: msgspec.json.Decoder[Op] = msgspec.json.Decoder(Op)

_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """JSON of one of our values. Half a character (a lone surrogate, as from a broken pipe) becomes `?`."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_whole(msgspec.to_builtins(value)))


def dump(value: object) -> str:
    return encode(value).decode()


def _whole(value: object) -> object:
    match value:
        case str():
            return whole(value)
        case dict():
            return {_whole(name): _whole(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_whole(inner) for inner in value]
    return value


def whole(text: str) -> str:
    """`text` as a column can hold it."""
    return text.encode("utf-8", "replace").decode()


def words(message: Message) -> str:
    """What a person would search for in `message`: what they and the model said, not what tools gave."""
    return whole(message.text).replace("\0", " ") if message.role in ("user", "assistant") else ""


UsageRow = tuple[int | None, int | None, int | None, int | None, int | None, float | None]


def usage_columns(usage: Usage | None) -> UsageRow:
    if usage is None:
        return (None,) * 6
    return (usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning, usage.cost)


def usage_from(row: UsageRow) -> Usage:
    """Sums as one `Usage`; a sum over nothing is zero tokens at an unknown price."""
    return Usage(row[0] or 0, row[1] or 0, row[2] or 0, row[3] or 0, row[4] or 0, row[5])
