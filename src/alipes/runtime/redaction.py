"""Masks known secrets in texts, also in common encodings.

This is a safety net, not a boundary: a program can encode a secret in ways that are not recognised.
"""

import base64
import codecs
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import TypeAlias
from urllib.parse import quote_from_bytes

import msgspec
from msgspec import Struct

Mask: TypeAlias = Callable[[str], str]
HIDDEN = "***"
MIN_SECRET_CHARS = 4
"""Shorter values are not masked: they would match ordinary words."""
MIN_ENCODED_CHARS = 8
"""From this length on encodings and embedded spaces are searched too; shorter ones would match everywhere."""
MIN_HALVED_CHARS = 32
"""From this length on each half of a secret counts as one."""
MIN_CUT_CHARS = 6
"""From this length on the start or end of a secret is masked at the end or start of a text that was cut."""
BLOCK_BYTES = 8
"""Texts are searched by their blocks of eight bytes, as numbers. A form of fifteen bytes contains a whole one."""
CHUNK_CHARS = 64 * 1024
"""Texts are searched in pieces of this length, so that other threads can run in between."""
_QUOTES = "\"'`\\\u200b\ufeff"
_JOINED = r"[\"'`]\s{0,9}[+.,&]\s{0,9}[\"'`]"
"""Between the parts of a value in code or a list: `"a" + "b"`."""
_GAPS = rf"(?:{_JOINED}|[\s{re.escape(_QUOTES)}])*"
"""What line breaks, quoting and code insert into a value."""
_HEX_GAPS = rf"(?:0[xX]|[\s{re.escape(_QUOTES)}%:,xX-])*"
_NO_GAPS = dict.fromkeys(map(ord, " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f" + _QUOTES))
_IN_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
"""As `html.escape` does, whose module takes half a megabyte."""
_NO_HEX_GAPS = _NO_GAPS | dict.fromkeys(map(ord, "%:,x-"))


class _Forms(Struct, frozen=True, dict=True):
    """How secrets may be written. The search index of those that are long enough is `blocks`."""

    exact: tuple[str, ...] = ()
    """Short ones, searched as they are."""
    short: tuple[str, ...] = ()
    """Searched in the text without gaps, like all that follow."""
    blocks: dict[int, tuple[str, ...]] = {}
    hex_blocks: dict[int, tuple[str, ...]] = {}
    long: tuple[str, ...] = ()
    """As they are written, with gaps."""
    longest: int = 0

    @cached_property
    def starts(self) -> frozenset[str]:
        """Every start of a long form."""
        return frozenset(form[:end] for form in self.long for end in range(1, len(form)))

    @cached_property
    def ends(self) -> frozenset[str]:
        """Every end of a long form."""
        return frozenset(form[start:] for form in self.long for start in range(1, len(form)))


class SecretRegistry:
    """The secrets known so far, and the function that masks them. Secrets may be added at any time, from any thread.

    `also`: another registry that gets to know them too.
    """

    def __init__(self, secrets: Iterable[str] = (), also: "SecretRegistry | None" = None) -> None:
        self._values: frozenset[str] = frozenset()
        self._also = also
        self._made = (self._values, _Forms())
        self.add(*secrets)

    @property
    def _forms(self) -> _Forms:
        """Made when they are needed: a start without any text to mask must not wait for it."""
        values, (made_of, forms) = self._values, self._made
        if made_of is not values:
            forms = _make_forms(values)
            self._made = values, forms
        return forms

    def add(self, *secrets: str) -> None:
        """Mask these too, from now on. Values that are too short are ignored."""
        values = self._values | {each for each in secrets if len(each) >= MIN_SECRET_CHARS}
        if len(values) > len(self._values):
            self._values = values
            if self._also is not None:
                self._also.add(*secrets)

    def __call__(self, text: str) -> str:
        """The text with every secret replaced by `***`.

        Also finds secrets quoted for URLs, HTML, repr or JSON, in base64, base32 or hexadecimal, some of them twice,
        reversed, rotated, and with spaces, line breaks, quotes or `" + "` inside. The time depends on the length of
        the text, hardly on the number of secrets.
        """
        forms = self._forms
        plain, in_hex = _find_candidates(text, forms)
        for form in plain:
            text = _pattern(form, _GAPS).sub(HIDDEN, text)
        for form in in_hex:
            text = _pattern(form, _HEX_GAPS).sub(HIDDEN, text)
        for form in forms.exact:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text

    def hold_back(self, text: str) -> int:
        """How many characters at the end may be the start of a secret whose rest is still to come."""
        return self._overlap(text, self._forms.starts, at_end=True)

    def mask_cut(self, text: str) -> str:
        """Mask a text that was cut out of a longer one: at its ends, parts of secrets are masked too."""
        if (count := self._overlap(text, self._forms.starts, at_end=True)) >= MIN_CUT_CHARS:
            text = text[:-count] + HIDDEN
        if (count := self._overlap(text, self._forms.ends, at_end=False)) >= MIN_CUT_CHARS:
            text = HIDDEN + text[count:]
        return self(text)

    def _overlap(self, text: str, parts: frozenset[str], *, at_end: bool) -> int:
        for count in range(min(len(text), self._forms.longest), 0, -1):
            if (text[-count:] if at_end else text[:count]) in parts:
                return count
        return 0


def make_mask(secrets: Iterable[str]) -> Mask:
    """A function that replaces each of these secrets by `***`."""
    return SecretRegistry(secrets)


def split_ready(mask: Mask, text: str) -> tuple[str, str]:
    """The text of a stream that can be masked and shown, and the end that must wait for the next piece."""
    count = mask.hold_back(text) if isinstance(mask, SecretRegistry) else 0
    return (text[:-count], text[-count:]) if count else (text, "")


def mask_cut(mask: Mask, text: str) -> str:
    """Mask a text that was cut out of a longer one."""
    return mask.mask_cut(text) if isinstance(mask, SecretRegistry) else mask(text)


def _make_forms(secrets: Iterable[str]) -> _Forms:
    forms = {form for secret in secrets for form in (*_quoted_forms(secret), *_encoded_forms(secret))}
    long = {form for form in forms if len(form) >= MIN_ENCODED_CHARS}
    tight = {form: _remove_gaps(form) for form in long}
    in_hex = {_raw(secret).hex() for secret in secrets if len(secret) >= MIN_ENCODED_CHARS}
    blocks = {form for form in tight.values() if len(form) >= 2 * BLOCK_BYTES - 1}
    return _Forms(
        exact=_longest_first(forms - long),
        short=_longest_first({form for form in tight.values() if form} - blocks),
        blocks=_index(blocks),
        hex_blocks=_index(in_hex),
        long=tuple(long),
        longest=max(map(len, forms), default=0),
    )


def _longest_first(forms: Iterable[str]) -> tuple[str, ...]:
    """One form may be the start of another."""
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


def _index(forms: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """The forms by every block in them."""
    index: dict[int, tuple[str, ...]] = {}
    for form in forms:
        data = _to_bytes(form)
        for start in range(len(data) - BLOCK_BYTES + 1):
            block = int.from_bytes(data[start : start + BLOCK_BYTES], sys.byteorder)
            index[block] = (*index.get(block, ()), form)
    return index


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _find_candidates(text: str, forms: _Forms) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The forms that occur in the text without gaps, and the ones in hexadecimal."""
    found, in_hex = set[str](), set[str]()
    carry, hex_carry = "", ""
    for start in range(0, len(text) if forms.longest else 0, CHUNK_CHARS):
        piece = text[start : start + CHUNK_CHARS]
        tight = carry + _remove_gaps(piece)
        found.update(form for form in forms.short if form in tight)
        found.update(_look_up(forms.blocks, tight))
        carry = tight[-forms.longest :]
        digits = hex_carry + _remove_hex_gaps(piece)
        in_hex.update(_look_up(forms.hex_blocks, digits))
        hex_carry = digits[-2 * forms.longest :]
    return _longest_first(found), _longest_first(in_hex)


def _look_up(index: dict[int, tuple[str, ...]], text: str) -> Iterator[str]:
    """The forms that have a block in common with the text and occur in it."""
    data = _to_bytes(text)
    blocks = memoryview(data)[: len(data) // BLOCK_BYTES * BLOCK_BYTES].cast("Q").tolist()
    if index.keys().isdisjoint(blocks):
        return
    for block in {*blocks} & index.keys():
        yield from (form for form in index[block] if form in text)


def _remove_gaps(text: str) -> str:
    if '"' in text or "'" in text or "`" in text:
        text = re.sub(_JOINED, "", text)
    if text.isascii():
        return text.translate(_NO_GAPS)
    text = "".join(text.split())
    for char in _QUOTES:
        text = text.replace(char, "")
    return text


def _remove_hex_gaps(text: str) -> str:
    if not text.isascii():
        text = text.encode("ascii", "replace").decode()
    return text.lower().replace("0x", "").translate(_NO_HEX_GAPS)


def _raw(secret: str) -> bytes:
    return secret.encode("utf-8", "surrogateescape")


def _quoted_forms(secret: str) -> Iterator[str]:
    in_json = msgspec.json.encode(secret.encode("utf-8", "backslashreplace").decode()).decode()
    yield from (secret, repr(secret)[1:-1], in_json[1:-1], secret.translate(_IN_HTML))
    for safe in ("", "/"):
        in_url = quote_from_bytes(_raw(secret), safe=safe)
        yield in_url
        yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), in_url)


def _encoded_forms(secret: str) -> Iterator[str]:
    raw = _raw(secret)
    if len(secret) < MIN_ENCODED_CHARS:
        return
    yield secret[::-1]
    yield codecs.encode(secret, "rot13")
    yield raw.hex()
    yield raw.hex().upper()
    yield quote_from_bytes(quote_from_bytes(raw, safe="").encode(), safe="")
    yield base64.b32encode(raw).decode().rstrip("=")[: len(raw) * 8 // 5]
    once = base64.b64encode(raw)
    yield base64.b64encode(once[: len(once) // 3 * 3]).decode()
    if len(secret) >= MIN_HALVED_CHARS:
        yield secret[: len(secret) // 2]
        yield secret[len(secret) // 2 :]
    for before in range(3):  # the encoding depends on the offset modulo three
        text = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # the first and last characters also depend on the neighbouring bytes
        certain = text[(0, 2, 3)[before] : len(text) if (before + len(raw)) % 3 == 0 else -1]
        yield certain
        yield certain.replace("+", "-").replace("/", "_")


@lru_cache(maxsize=64)
def _pattern(form: str, gaps: str) -> re.Pattern[str]:
    return re.compile(gaps.join(map(re.escape, form)), re.NOFLAG if gaps is _GAPS else re.IGNORECASE)
