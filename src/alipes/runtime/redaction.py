"""Takes secrets out of a text by their value, also where they are written in another common way.

It is a net, not a wall: who may run any program can write a secret in a way that nobody knows beforehand.
"""

import base64
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias

import msgspec

Mask: TypeAlias = Callable[[str], str]
HIDDEN = "***"
SHORTEST = 4
"""A word of fewer letters is no secret; masking it would only spoil the text."""
LONG = 8
"""From here on it is looked for in encodings and between blanks: a shorter one would be found everywhere."""


def masking(secrets: Iterable[str]) -> Mask:
    """A function that puts `***` for every secret in a text.

    Also for one quoted as in a URL, a repr or JSON, in base 64, in hexadecimal or backwards, and with
    blanks or ends of lines in it.
    """
    found = {secret for secret in secrets if len(secret) >= SHORTEST}
    forms = {form for secret in found for form in (*_quoted(secret), *_encoded(secret))}
    if not forms:
        return lambda text: text
    # Longest first: a secret may be the beginning of another.
    ordered = sorted(forms, key=len, reverse=True)
    longer = [form for form in ordered if len(form) >= LONG and not re.search(r"\s", form)]

    def mask(text: str) -> str:
        for form in ordered:
            if form in text:
                text = text.replace(form, HIDDEN)
        tight = "".join(text.split())
        if len(tight) < len(text):
            for form in longer:
                if form in tight:
                    text = _loosely(form).sub(HIDDEN, text)
        return text

    return mask


def _quoted(secret: str) -> tuple[str, ...]:
    plain = b"-._~"
    in_url = "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte in plain) else f"%{byte:02X}"
        for byte in secret.encode("utf-8", "surrogateescape")
    )
    in_json = msgspec.json.encode(secret.encode("utf-8", "backslashreplace").decode()).decode()
    return secret, in_url, repr(secret)[1:-1], in_json[1:-1]


def _encoded(secret: str) -> Iterable[str]:
    raw = secret.encode("utf-8", "surrogateescape")
    if len(secret) < LONG:
        return
    yield secret[::-1]
    yield raw.hex()
    yield raw.hex().upper()
    for before in range(3):  # how it looks depends on where it stands, counted in threes
        text = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # the first letters have a part of what stands before it, the last ones of what comes after
        certain = text[(0, 2, 3)[before] : len(text) if (before + len(raw)) % 3 == 0 else -1]
        yield certain
        yield certain.replace("+", "-").replace("/", "_")


@lru_cache(maxsize=64)
def _loosely(form: str) -> re.Pattern[str]:
    return re.compile(r"\s*".join(map(re.escape, form)))
