"""Finds lines in a text that somebody remembers almost right. What is done with them is for others to say.

The levels of tolerance are tried one after another, and the first that finds anything decides: a sloppy
match never competes with a better one.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice

from msgspec import Struct

_LOOKS = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u02bc\uff07",
    '"': "\u201c\u201d\u201e\u201f\u2033\uff02",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d",
    " ": "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
}
LOOK_ALIKES = str.maketrans({each: plain for plain, many in _LOOKS.items() for each in many})
"""One character for one: places in the text stay what they are."""
_UNSEEN = str.maketrans(dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad"))


class Found(Struct, frozen=True):
    """Where the wanted lines begin, and how they are indented there."""

    start: int
    indents: dict[str, str] = {}
    """What an indentation of the wanted lines is in the text; empty when it is the same."""

    def indented(self, line: str) -> str:
        """A new line with the indentation it would have among the lines that were found."""
        if not self.indents or not line.strip():
            return line
        indent = _indent(line)
        return _translated(indent, self.indents) + line[len(indent) :]


def find_lines(lines: Sequence[str], wanted: Sequence[str]) -> tuple[list[Found], str]:
    """Every place of `wanted` in `lines`, and what had to be overlooked; both empty when there is none."""
    if not wanted:
        return [], ""
    for overlooked, plain in _LEVELS:
        ours, theirs = [plain(line) for line in lines], [plain(line) for line in wanted]
        starts = list(_windows(ours, theirs))
        if overlooked == _INDENTATION:
            shifted = (_shift(lines[start : start + len(wanted)], wanted) for start in starts)
            found = [Found(s, indents) for s, indents in zip(starts, shifted, strict=True) if indents]
        else:
            found = [Found(start) for start in starts]
        if found:
            return found, overlooked
    return [], ""


def plain(line: str) -> str:
    """The line as it looks: typographic quotes, dashes and blanks made plain, the end trimmed."""
    if not line.isascii():
        line = unicodedata.normalize("NFC", line).translate(_UNSEEN).translate(LOOK_ALIKES)
        line = line.replace("\u2026", "...")
    return line.rstrip()


_INDENTATION = "indentation"
_LEVELS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", str),
    ("trailing whitespace", str.rstrip),
    ("look-alike characters", plain),
    (_INDENTATION, lambda line: plain(line).lstrip()),
)


def _windows(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    """Starts of `wanted` in `lines`; the wanted line that is rarest there is looked for first."""
    counts = Counter(lines)
    pivot = min(range(len(wanted)), key=lambda n: counts[wanted[n]])
    last = len(lines) - len(wanted)
    at = pivot - 1
    while True:
        try:
            at = lines.index(wanted[pivot], at + 1)
        except ValueError:
            return
        start = at - pivot
        if start > last:
            return
        if list(lines[start : start + len(wanted)]) == list(wanted):
            yield start


def _shift(lines: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """The indentation in the text for each in `wanted`; empty when one would have to be two things."""
    indents: dict[str, str] = {}
    for line, want in zip(lines, wanted, strict=True):
        if want.strip():
            theirs, ours = _indent(want), _indent(line)
            if indents.setdefault(theirs, ours) != ours:
                return {}
    deeper = [indents[each] for each in sorted(indents, key=_width)]
    return indents if deeper == sorted(deeper, key=_width) else {}


def _translated(indent: str, indents: dict[str, str]) -> str:
    if indent in indents:
        return indents[indent]
    known = [each for each in indents if indent.startswith(each)]
    if known:
        base = max(known, key=len)
        return indents[base] + _unit(indent[len(base) :], indents)
    base = min(indents, key=_width)
    rest = _unit(base[len(indent) :], indents) if base.startswith(indent) else ""
    return indents[base].removesuffix(rest)


def _unit(more: str, indents: dict[str, str]) -> str:
    """A further indentation in the kind of blanks that the text uses."""
    steps = [(theirs, ours) for theirs, ours in indents.items() if theirs and ours]
    for theirs, ours in sorted(steps, key=lambda step: len(step[0])):
        if theirs.isspace() and set(theirs) == {" "} and set(ours) == {"\t"} and len(theirs) % len(ours) == 0:
            width = len(theirs) // len(ours)
            return more.replace(" " * width, "\t")
        if set(theirs) == {"\t"} and set(ours) == {" "} and len(ours) % len(theirs) == 0:
            return more.replace("\t", " " * (len(ours) // len(theirs)))
    return more


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _width(indent: str) -> int:
    return len(indent.expandtabs(8))


SHOWN = 12
"""Lines of the nearest place that are shown."""
WIDTH = 200
LOOKED_AT, WEIGHED = 5_000, 30
"""Different lines that are compared by their letters, and the best of them that are compared in full."""
ALIKE = 0.6


def nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """A sentence and the region of the text that is most like `wanted`."""
    if not any(line.strip() for line in lines):
        return "The file is empty."
    start = _start(lines, wanted)
    if start is None:
        return "Nothing in the file is like it; read the file again."
    start = max(0, min(start, len(lines) - 1))
    end = min(len(lines), start + len(wanted))
    differing = [
        (n, line, want)
        for n, (line, want) in enumerate(zip(lines[start:end], wanted, strict=False), start + 1)
        if line != want
    ]
    region = "\n".join(f"{n}: {_cut(lines[n - 1])}" for n in range(start + 1, min(end, start + SHOWN) + 1))
    more = f"\n... to line {end}" if end - start > SHOWN else ""
    told = [_difference(*each) for each in differing[:3]]
    if len(differing) > 3:
        told.append(f"and {len(differing) - 3} more lines")
    return "\n".join([f"The nearest is\n{region}{more}", *(["which differs:"] if told else []), *told])


def _start(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Where most of the wanted lines stand as they should to each other; else where one is alike."""
    places: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        if bare := plain(line).strip():
            places.setdefault(bare, []).append(n)
    votes: Counter[int] = Counter()
    for n, line in enumerate(wanted):
        for at in places.get(plain(line).strip(), [])[:100]:
            votes[at - n] += 1
    if votes:
        most = max(votes.values())
        return min(start for start, count in votes.items() if count == most)
    return _alike(lines, wanted)


def _alike(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    number, line = max(enumerate(wanted), key=lambda each: len(each[1].strip()), default=(0, ""))
    matcher = SequenceMatcher(None, b=line.strip()[:WIDTH])
    weighed: list[tuple[float, str]] = []
    for other in islice(dict.fromkeys(lines), LOOKED_AT):
        matcher.set_seq1(other.strip()[:WIDTH])
        if matcher.real_quick_ratio() > ALIKE and (ratio := matcher.quick_ratio()) > ALIKE:
            weighed.append((ratio, other))
    best, place = ALIKE, None
    for _, other in nlargest(WEIGHED, weighed):
        matcher.set_seq1(other.strip()[:WIDTH])
        if (ratio := matcher.ratio()) > best:
            best, place = ratio, lines.index(other) - number
    return place


def _difference(number: int, line: str, want: str) -> str:
    if line.strip() == want.strip():
        return f"line {number}: only in its blanks: {_cut(line)!r} instead of {_cut(want)!r}"
    if plain(line).strip() == plain(want).strip():
        odd = sorted({each for each in line + want if not each.isascii()})
        names = ", ".join(f"U+{ord(each):04X}" for each in odd)
        return f"line {number}: only in characters that look alike ({names})"
    return f"line {number} is not {_cut(want)!r}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
