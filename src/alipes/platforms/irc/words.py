"""Lines of IRC: read, written, and what a name means in them. Pure; nothing here has a connection."""

import re
from collections.abc import Mapping

from msgspec import Struct

LONGEST = 512
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


def read(raw: bytes) -> Line:
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
    return LONGEST - len(around.encode())
