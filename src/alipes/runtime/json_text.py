"""JSON of values, and text that every database column and every client can hold."""

import msgspec

_encoder = msgspec.json.Encoder()


def to_json_bytes(value: object) -> bytes:
    """JSON of `value`. A lone surrogate (half a character, as from a broken pipe) becomes `?`."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_clean_value(msgspec.to_builtins(value)))


def to_json(value: object) -> str:
    return to_json_bytes(value).decode()


def clean_text(text: str) -> str:
    """`text` with lone surrogates replaced, so that a column can hold it."""
    return text.encode("utf-8", "replace").decode()


def _clean_value(value: object) -> object:
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {_clean_value(name): _clean_value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_clean_value(inner) for inner in value]
    return value
