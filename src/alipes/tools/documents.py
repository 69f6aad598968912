"""Text files as they lie on disk: where a path leads, what is in it, in which bytes. It changes nothing."""

import codecs
import os
import stat
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.tools.kinds import binary_kind
from alipes.tools.paths import Places
from alipes.tools.slices import encoding_of

LARGEST = 10 << 20
"""Bytes of a file that is read whole to be changed."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Target(Struct, frozen=True):
    """What a path leads to, once links are followed."""

    named: Path
    real: str
    facts: os.stat_result | None
    """None: there is nothing yet."""
    link: bool
    """The name itself is a link, and the file it points to is meant."""

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """Changes when somebody else writes the file."""
        return None if self.facts is None else (self.facts.st_ino, self.facts.st_mtime_ns, self.facts.st_size)


class Document(Struct, frozen=True):
    """The text of a file and how it is written. Lines end with `\\n` here, unless the file mixes endings."""

    text: str = ""
    codec: str = "utf-8"
    mark: bytes = b""
    crlf: bool = False

    def encode(self, text: str) -> bytes:
        """Another text in the bytes of this file; UnicodeEncodeError when they cannot say it."""
        return self.mark + (text.replace("\n", "\r\n") if self.crlf else text).encode(self.codec)

    def accept(self, text: str) -> str:
        """Text from elsewhere, with the line endings this document has in memory."""
        return text if "\r\n" in self.text else text.replace("\r\n", "\n")

    @property
    def traits(self) -> list[str]:
        """What is unusual about its bytes."""
        names = [self.codec.upper() + (" with BOM" if self.mark else "")]
        return (names if self.mark or self.codec != "utf-8" else []) + (["CRLF"] if self.crlf else [])


def find(places: Places, path: str, workdir: str) -> Target:
    """Where `path` leads. Raises ToolError for what is ours alone and for whatever is no plain file."""
    if not path or path.endswith("/"):
        raise ToolError(f"{path or 'an empty path'} does not name a file")
    named = places.locate(path, workdir)
    try:
        real = os.path.realpath(named)
        refuse_secrets(places, real)
        facts = os.stat(real) if os.path.lexists(real) else None
        link = os.path.islink(named)
    except (OSError, ValueError) as error:
        raise ToolError(f"{named} cannot be used: {reason(error)}") from error
    if facts is not None:
        if not stat.S_ISREG(facts.st_mode):
            raise ToolError(f"{named} is {special(facts.st_mode)}, not a file")
        if places.is_linked(facts):
            refuse(real)
    return Target(named, real, facts, link)


def read(target: Target) -> Document:
    """The text of a file that is there. Raises ToolError when it is no text, too large or unreadable."""
    if target.facts is not None and target.facts.st_size > LARGEST:
        raise ToolError(
            f"{target.named} has {target.facts.st_size:,} bytes; beyond {LARGEST:,} use the terminal"
        )
    try:
        handle = os.open(target.real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(handle, "rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise ToolError(f"{target.named} cannot be read: {reason(error)}") from error
    document = decode(data)
    if document is None:
        raise ToolError(f"{target.named} is {binary_kind(data)}, no text; use the terminal")
    return document


def decode(data: bytes) -> Document | None:
    """The document in `data`; None when it is no text."""
    mark, codec = next(((m, c) for m, c in _MARKS if data.startswith(m)), (b"", encoding_of(data)))
    if not codec:
        return None
    try:
        text = data[len(mark) :].decode(codec)
    except UnicodeDecodeError:
        return None
    breaks = text.count("\n")
    crlf = breaks > 0 and text.count("\r\n") == breaks
    return Document(text.replace("\r\n", "\n") if crlf else text, codec, mark, crlf)


def refuse_secrets(places: Places, real: str) -> None:
    if places.secrecy(real) == "ours":
        refuse(real)


def refuse(real: str) -> NoReturn:
    raise ToolError(f"{real} holds secrets or the state of this program and is out of reach")


def shown(path: str | Path, workdir: str) -> str:
    """A path as the model would write it: seen from the working directory if it lies in there."""
    start = os.path.join(workdir or os.getcwd(), "")
    plain = os.path.normpath(path)
    return plain[len(start) :] if plain.startswith(start) else plain


def special(mode: int) -> str:
    names = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISBLK, "a disk"),
    )
    return next((name for test, name in names if test(mode)), "a device")


def reason(error: OSError | ValueError) -> str:
    """Why, without the path that the sentence around it names already."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
