"""Calls of `apply` as JSON. jsonb refuses the character NUL, which a text may contain."""

import re
from collections.abc import Iterable

from alipes.store.database.rows import to_json_bytes

APPLY = "SELECT apply(%s, %s, %s::jsonb, %s)"
"""Worker, number of the batch, calls, and whether they must be on disk. Returns the results as JSON."""
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""Not the NUL inside a JSON text that is a value itself: there the backslash is escaped."""


def encode_call(verb: str, key: str, args: tuple[object, ...]) -> bytes:
    """One call, without NUL characters."""
    call = to_json_bytes((verb, key, *args))
    return _NUL.sub(rb"\1", call) if rb"\u0000" in call else call


def join_calls(calls: Iterable[bytes]) -> str:
    """The calls of a batch, as `APPLY` takes them."""
    return (b"[" + b",".join(calls) + b"]").decode()
