"""Masks known secrets in texts, also in common encodings.

This is a safety net, not a boundary: a program can encode a secret in ways that are not recognised.
"""

import base64
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote_from_bytes

import msgspec

Mask: TypeAlias = Callable[[str], str]
HIDDEN = "***"
MIN_SECRET_CHARS = 4
"""Shorter values are not masked: they would match ordinary words."""
MIN_ENCODED_CHARS = 8
"""From this length on encodings and embedded spaces are searched too; shorter ones would match everywhere."""


def make_mask(secrets: Iterable[str]) -> Mask:
    """A function that replaces every secret in a text by `***`.

    Also finds secrets quoted for URLs, repr or JSON, in base64 or hexadecimal, reversed, and with spaces
    or line breaks inside.
    """
    found = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
    forms = {form for secret in found for form in (*_quoted_forms(secret), *_encoded_forms(secret))}
    if not forms:
        return lambda text: text
    # Longest first: one secret may be a prefix of another.
    ordered = sorted(forms, key=len, reverse=True)
    longer = [form for form in ordered if len(form) >= MIN_ENCODED_CHARS and not re.search(r"\s", form)]

    def mask(text: str) -> str:
        for form in ordered:
            if form in text:
                text = text.replace(form, HIDDEN)
        tight = "".join(text.split())
        if len(tight) < len(text):
            for form in longer:
                if form in tight:
                    text = _pattern_with_spaces(form).sub(HIDDEN, text)
        return text

    return mask


def _quoted_forms(secret: str) -> tuple[str, ...]:
    in_url = quote_from_bytes(secret.encode("utf-8", "surrogateescape"), safe="")
    in_json = msgspec.json.encode(secret.encode("utf-8", "backslashreplace").decode()).decode()
    return secret, in_url, repr(secret)[1:-1], in_json[1:-1]


def _encoded_forms(secret: str) -> Iterable[str]:
    raw = secret.encode("utf-8", "surrogateescape")
    if len(secret) < MIN_ENCODED_CHARS:
        return
    yield secret[::-1]
    yield raw.hex()
    yield raw.hex().upper()
    for before in range(3):  # the encoding depends on the offset modulo three
        text = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # the first and last characters also depend on the neighbouring bytes
        certain = text[(0, 2, 3)[before] : len(text) if (before + len(raw)) % 3 == 0 else -1]
        yield certain
        yield certain.replace("+", "-").replace("/", "_")


@lru_cache(maxsize=64)
def _pattern_with_spaces(form: str) -> re.Pattern[str]:
    return re.compile(r"\s*".join(map(re.escape, form)))
