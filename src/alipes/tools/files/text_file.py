"""Text files as they lie on disk: where a path leads, what is in it, in which bytes. It changes nothing."""

import codecs
import os
import stat
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.tools.common import Places
from alipes.tools.files.read_file import binary_kind, encoding_of

CONTEXT = 3
COMPARED = 4_000
"""Lines that are compared with each other; of a larger change the old lines go and the new ones come."""
SHOWN_LINES, SHOWN = 300, 16_000
"""Lines and characters of a diff for the screen."""


class Diff(Struct, frozen=True):
    added: int
    removed: int
    line: int
    """The first line that changed, in the new text; 0 when nothing did."""
    text: str

    @property
    def summary(self) -> str:
        return f"+{self.added} -{self.removed}"


def compare(old: str, new: str, *, before: str, after: str) -> Diff:
    """The change from `old` to `new`; `before` and `after` name them in the diff."""
    a, b = _lines(old), _lines(new)
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    gone, come = a[head : len(a) - tail], b[head : len(b) - tail]
    if not gone and not come:
        return Diff(0, 0, 0, "")
    first, end = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    window = a[first : len(a) - end], b[first : len(b) - end]
    codes = _opcodes(gone, come, head - first, tail - end)
    removed = sum(i2 - i1 for tag, i1, i2, _, _ in codes if tag != "equal")
    added = sum(j2 - j1 for tag, _, _, j1, j2 in codes if tag != "equal")
    start = next(j1 for tag, _, _, j1, _ in codes if tag != "equal")
    rows = [f"--- {before}", f"+++ {after}"]
    for group in _groups(codes):
        rows += _hunk(group, first, *window)
    return Diff(added, removed, first + start + 1, _bounded(rows))


Opcode = tuple[str, int, int, int, int]


def _opcodes(gone: Sequence[str], come: Sequence[str], before: int, after: int) -> list[Opcode]:
    """What to do, seen from the window: `before` and `after` lines around the change stay."""
    if len(gone) + len(come) > COMPARED:
        middle: list[Opcode] = [("replace", 0, len(gone), 0, len(come))]
    else:
        middle = [*SequenceMatcher(None, gone, come).get_opcodes()]
    codes = [(tag, i1 + before, i2 + before, j1 + before, j2 + before) for tag, i1, i2, j1, j2 in middle]
    if before:
        codes.insert(0, ("equal", 0, before, 0, before))
    if after:
        i, j = len(gone) + before, len(come) + before
        codes.append(("equal", i, i + after, j, j + after))
    return codes


def _groups(codes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Changes with their context; a long stretch that stays parts one hunk from the next."""
    group: list[Opcode] = []
    for tag, i1, i2, j1, j2 in codes:
        if tag == "equal" and i2 - i1 > 2 * CONTEXT:
            yield [*group, (tag, i1, i1 + CONTEXT, j1, j1 + CONTEXT)]
            group = [(tag, i2 - CONTEXT, i2, j2 - CONTEXT, j2)]
        else:
            group.append((tag, i1, i2, j1, j2))
    yield group


def _hunk(group: Sequence[Opcode], shift: int, a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
    yield f"@@ -{_span(i1, i2, shift)} +{_span(j1, j2, shift)} @@"
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            yield from _rows(" ", a[i1:i2])
            continue
        yield from _rows("-", a[i1:i2])
        yield from _rows("+", b[j1:j2])


def _rows(sign: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield sign + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _span(start: int, end: int, shift: int) -> str:
    count = end - start
    first = start + shift + (1 if count else 0)
    return str(first) if count == 1 else f"{first},{count}"


def _lines(text: str) -> list[str]:
    """By line feed alone: `splitlines` would also split at form feeds and other rarities."""
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    count = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        count += 1
    return count


def _bounded(rows: Sequence[str]) -> str:
    taken = room = 0
    for row in rows[:SHOWN_LINES]:
        room += len(row) + 1
        if room > SHOWN and taken:
            break
        taken += 1
    text = "\n".join(row[:SHOWN] for row in rows[:taken])
    left = len(rows) - taken
    return f"{text}\n[... {left:,} more lines of this diff]" if left else text


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
