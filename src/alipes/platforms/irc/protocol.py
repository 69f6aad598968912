"""The IRC line protocol, and Markdown as IRC lines."""

import re
from collections.abc import Mapping
from itertools import groupby

from msgspec import Struct

from alipes.kernel.platform import MessagePart
from alipes.platforms.markup import LINE, Border, MarkedText, Spans, join_text, parse_markdown, plain_text, split_text

MAX_PART_CHARS = 4000
"""Characters of one message part: one line of the text, sent as one or more IRC lines."""
_SIGNS = {"bold": "\x02", "italic": "\x1d"}
_TOGGLES = "".join(_SIGNS.values())
_BLANK = re.compile(r"\s")
_CLINGING = re.compile(r"[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")


def format_markdown(markdown: str) -> tuple[MessagePart, ...]:
    """One part per line of the text, so that delivery is known line by line. Empty lines are dropped."""
    parts = split_text(_by_lines(parse_markdown(markdown)), _one_line, MAX_PART_CHARS)
    return tuple(MessagePart(text=_written(part), plain=plain_text(part)) for part in parts)


def split_lines(text: str, room: int) -> list[str]:
    """Split `text` into lines of at most `room` bytes, if possible between words. Formatting continues in the next."""
    result: list[str] = []
    opened = ""
    for line in text.split("\n"):
        rest = line.rstrip()
        while rest:
            whole = opened + rest
            end = _end(whole, room)
            part, rest = whole[:end], whole[end:]
            rest = rest.lstrip(" ") if rest and end < len(whole) else rest
            opened = "".join(sign for sign in _TOGGLES if part.count(sign) % 2) if rest else ""
            if part.strip(f" {_TOGGLES}"):
                result.append(part.rstrip())
        opened = ""
    return result


def _end(text: str, room: int) -> int:
    if len(text.encode()) <= room:
        return len(text)
    # a cut inside a character moves before it
    fit = len(text.encode()[:room].decode("utf-8", "ignore"))
    blanks = [match.start() for match in _BLANK.finditer(text, 0, fit + 1)]
    if blanks and blanks[-1] > fit // 3:
        return blanks[-1]
    while fit > 1 and (_CLINGING.match(text[fit]) or text[fit - 1] == "\u200d"):
        fit -= 1
    return max(1, fit)


def _one_line(spans: Spans) -> bool:
    return "\n" not in join_text(spans).strip("\n")


def _by_lines(flow: MarkedText) -> MarkedText:
    """The same text with every line as an equal border."""
    borders: list[Border] = []
    size = 0
    for span in flow.spans:
        borders += [(size + match.end(), LINE) for match in re.finditer(r"\n", span.text)]
        size += len(span.text)
    return MarkedText(flow.spans, tuple(borders))


def _written(spans: Spans) -> str:
    out = ""
    for link, group in groupby(spans, lambda span: next((m.value for m in span.marks if m.kind == "link"), "")):
        inside = tuple(group)
        for span in inside:
            kinds = {mark.kind for mark in span.marks} if span.text.strip() else set()
            signs = "" if "pre" in kinds else "".join(_SIGNS[kind] for kind in _SIGNS if kind in kinds)
            quote = "> " if span.find("quote") and not out else ""
            out += f"{quote}{signs}{span.text}{signs[::-1]}"
        shown = join_text(inside).strip()
        out += f" ({link})" if link and link not in (shown, f"mailto:{shown}") else ""
    for sign in _TOGGLES:
        out = out.replace(sign * 2, "")
    return out


MAX_LINE_BYTES = 512
"""Bytes of a line including its end, as others receive it. Tags are not counted."""
CTCP = "\x01"
_FOLDED = str.maketrans("[]\\~", "{}|^")
_ESCAPES = {":": ";", "s": " ", "r": "\r", "n": "\n", "\\": "\\"}
_SHOW = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9a-fA-F]{6})?|[\x02\x0f\x11\x16\x1d\x1e\x1f]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class IrcLine(Struct, frozen=True):
    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = {}

    @property
    def nick(self) -> str:
        """Nick of the sender; a server has no `!`."""
        return self.source.partition("!")[0]

    @property
    def last(self) -> str:
        return self.params[-1] if self.params else ""


def parse_line(raw: bytes) -> IrcLine:
    """Parse any line; garbage has an empty command."""
    text = decode(raw).rstrip("\r\n")
    tags: dict[str, str] = {}
    if text.startswith("@"):
        raw_tags, _, text = text[1:].partition(" ")
        for each in raw_tags.split(";"):
            name, _, value = each.partition("=")
            tags[name] = re.sub(r"\\(.?)", lambda match: _ESCAPES.get(match[1], match[1]), value)
    text = text.lstrip(" ")
    source = ""
    if text.startswith(":"):
        source, _, text = text[1:].partition(" ")
    head, colon, last = text.partition(" :")
    words = head.split()
    params = (*words[1:], last) if colon else tuple(words[1:])
    return IrcLine(words[0].upper() if words else "", params, source, tags)


def decode(raw: bytes) -> str:
    """Decode as UTF-8, otherwise as Windows-1252."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def encode_line(command: str, *params: str) -> bytes:
    """Encode a line. The last parameter may contain spaces; no parameter can start another line."""
    clean = [re.sub(r"[\r\n\0]+", " ", each) for each in params]
    if clean:
        clean[-1] = f":{clean[-1]}"
    return " ".join((command, *clean)).encode("utf-8", "replace") + b"\r\n"


def fold_name(name: str) -> str:
    """Fold a name: names that differ only in this way are equal."""
    return name.translate(_FOLDED).lower()


def normalise_mask(source: str) -> str:
    """`nick!user@host` in the form in which we compare it."""
    nick, _, rest = source.partition("!")
    user, _, host = rest.partition("@")
    return f"{fold_name(nick)}!{user}@{host.lower()}"


def is_channel(name: str) -> bool:
    return name[:1] in ("#", "&", "+", "!")


def strip_formatting(text: str) -> str:
    """Remove colours and other formatting."""
    return _CONTROL.sub("", _SHOW.sub("", text))


def available_bytes(source: str, target: str) -> int:
    """Bytes of text that fit into a line to `target`, given the prefix that the server adds."""
    around = f":{source} PRIVMSG {target} :\r\n"
    return MAX_LINE_BYTES - len(around.encode())
