"""Markdown as lines of IRC, and the cutting of lines that are too long for one. It sends nothing."""

import re
from collections.abc import Mapping
from itertools import groupby

from msgspec import Struct

from alipes.kernel.platform import Piece
from alipes.platforms.markup.markdown import read
from alipes.platforms.markup.spans import LINE, Border, Flow, Spans, cut, plain

MAX_PART_CHARS = 4000
"""Letters of one piece: a line of the text, however many lines of IRC it takes."""
_SIGNS = {"bold": "\x02", "italic": "\x1d"}
_TOGGLES = "".join(_SIGNS.values())
_BLANK = re.compile(r"\s")
_CLINGING = re.compile(r"[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")


def pieces(markdown: str) -> tuple[Piece, ...]:
    """A piece for every line of the text: what arrived is known line by line. Empty ones cannot be sent."""
    flow = read(markdown)
    parts = cut(_by_lines(flow), _one_line, MAX_PART_CHARS)
    return tuple(Piece(text=_written(part), plain=plain(part)) for part in parts)


def lines(text: str, room: int) -> list[str]:
    """`text` in lines of at most `room` bytes, cut between words where there are some. Bold and italic
    that a cut falls into go on behind it."""
    made: list[str] = []
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
                made.append(part.rstrip())
        opened = ""
    return made


def _end(text: str, room: int) -> int:
    if len(text.encode()) <= room:
        return len(text)
    # What does not end between two characters ends before the one it fell into.
    fit = len(text.encode()[:room].decode("utf-8", "ignore"))
    blanks = [match.start() for match in _BLANK.finditer(text, 0, fit + 1)]
    if blanks and blanks[-1] > fit // 3:
        return blanks[-1]
    while fit > 1 and (_CLINGING.match(text[fit]) or text[fit - 1] == "\u200d"):
        fit -= 1
    return max(1, fit)


def _one_line(spans: Spans) -> bool:
    text = "".join(span.text for span in spans)
    return "\n" not in text.strip("\n")


def _by_lines(flow: Flow) -> Flow:
    """The same, where every line is a border and none is better than another."""
    borders: list[Border] = []
    size = 0
    for span in flow.spans:
        borders += [(size + match.end(), LINE) for match in re.finditer(r"\n", span.text)]
        size += len(span.text)
    return Flow(flow.spans, tuple(borders))


def _written(spans: Spans) -> str:
    out = ""
    for link, group in groupby(
        spans, lambda span: next((m.value for m in span.marks if m.kind == "link"), "")
    ):
        inside = tuple(group)
        for span in inside:
            kinds = {mark.kind for mark in span.marks} if span.text.strip() else set()
            signs = "" if "pre" in kinds else "".join(_SIGNS[kind] for kind in _SIGNS if kind in kinds)
            quote = "> " if "quote" in {m.kind for m in span.marks} and not out else ""
            out += f"{quote}{signs}{span.text}{signs[::-1]}"
        shown = "".join(span.text for span in inside).strip()
        out += f" ({link})" if link and link not in (shown, f"mailto:{shown}") else ""
    for sign in _TOGGLES:
        out = out.replace(sign * 2, "")
    return out


MAX_LINE_BYTES = 512
"""Bytes of a line with its end, as others receive it. Tags in front are not counted."""
CTCP = "\x01"
_FOLDED = str.maketrans("[]\\~", "{}|^")
_ESCAPES = {":": ";", "s": " ", "r": "\r", "n": "\n", "\\": "\\"}
_SHOW = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9a-fA-F]{6})?|[\x02\x0f\x11\x16\x1d\x1e\x1f]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Line(Struct, frozen=True):
    """One message of the protocol."""

    command: str
    params: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = {}

    @property
    def nick(self) -> str:
        """Who it is from; a server's has no `!`."""
        return self.source.partition("!")[0]

    @property
    def last(self) -> str:
        return self.params[-1] if self.params else ""


def parse_line(raw: bytes) -> Line:
    """Every line can be read; what makes no sense has an empty command."""
    text = decoded(raw).rstrip("\r\n")
    tags: dict[str, str] = {}
    if text.startswith("@"):
        told, _, text = text[1:].partition(" ")
        for each in told.split(";"):
            name, _, value = each.partition("=")
            tags[name] = re.sub(r"\\(.?)", lambda match: _ESCAPES.get(match[1], match[1]), value)
    text = text.lstrip(" ")
    source = ""
    if text.startswith(":"):
        source, _, text = text[1:].partition(" ")
    head, colon, last = text.partition(" :")
    words = head.split()
    params = (*words[1:], last) if colon else tuple(words[1:])
    return Line(words[0].upper() if words else "", params, source, tags)


def decoded(raw: bytes) -> str:
    """UTF-8; what is none, is what it was before that."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def written(command: str, *params: str) -> bytes:
    """A line as it goes out. The last parameter may have blanks; nothing in it can begin another line."""
    clean = [re.sub(r"[\r\n\0]+", " ", each) for each in params]
    if clean:
        clean[-1] = f":{clean[-1]}"
    return " ".join((command, *clean)).encode("utf-8", "replace") + b"\r\n"


def fold(name: str) -> str:
    """Names that differ in this way only are the same name."""
    return name.translate(_FOLDED).lower()


def person(source: str) -> str:
    """`nick!user@host` as we compare it."""
    nick, _, rest = source.partition("!")
    user, _, host = rest.partition("@")
    return f"{fold(nick)}!{user}@{host.lower()}"


def is_channel(name: str) -> bool:
    return name[:1] in ("#", "&", "+", "!")


def unadorned(text: str) -> str:
    """Without colours and the like."""
    return _CONTROL.sub("", _SHOW.sub("", text))


def room(source: str, target: str) -> int:
    """Bytes of text that a line to `target` has room for, once the server has put `source` before it."""
    around = f":{source} PRIVMSG {target} :\r\n"
    return MAX_LINE_BYTES - len(around.encode())
