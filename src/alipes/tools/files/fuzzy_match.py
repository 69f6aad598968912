"""Finds lines in a text that a model remembers almost correctly, and the nearest miss for errors.

Levels of tolerance are tried in order, and the first with a match decides: a loose match never competes
with a better one.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import nlargest
from itertools import islice

from msgspec import Struct

_LOOK_ALIKES = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u02bc\uff07",
    '"': "\u201c\u201d\u201e\u201f\u2033\uff02",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d",
    " ": "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
}
LOOK_ALIKES = str.maketrans({each: plain for plain, many in _LOOK_ALIKES.items() for each in many})
"""One character for one, so that positions stay valid."""
_INVISIBLE = str.maketrans(dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad"))
_INDENTATION = "indentation"
MAX_SHOWN_LINES = 12
"""Lines shown of the nearest place."""
MAX_LINE_CHARS = 200
MAX_CANDIDATES, MAX_COMPARED = 5_000, 30
"""Lines compared roughly, and the best of them compared in full."""
MIN_RATIO = 0.6


class LineMatch(Struct, frozen=True):
    """Where the wanted lines start, and how they are indented there."""

    start: int
    indents: dict[str, str] = {}
    """Indentation in the wanted lines to indentation in the text; empty if they are the same."""

    def indent(self, line: str) -> str:
        """A new line with the indentation that fits the matched lines."""
        if not self.indents or not line.strip():
            return line
        indent = _indent(line)
        return _translate_indent(indent, self.indents) + line[len(indent) :]


def find_lines(lines: Sequence[str], wanted: Sequence[str]) -> tuple[list[LineMatch], str]:
    """All matches of `wanted` in `lines`, and the kind of difference that was ignored; empty if none."""
    if not wanted:
        return [], ""
    for ignored, plain in _LEVELS:
        ours, theirs = [plain(line) for line in lines], [plain(line) for line in wanted]
        starts = list(_find_windows(ours, theirs))
        if ignored == _INDENTATION:
            shifted = (_map_indents(lines[start : start + len(wanted)], wanted) for start in starts)
            found = [LineMatch(s, indents) for s, indents in zip(starts, shifted, strict=True) if indents]
        else:
            found = [LineMatch(start) for start in starts]
        if found:
            return found, ignored
    return [], ""


def normalize_line(line: str) -> str:
    """The line with plain quotes, dashes and spaces, and without trailing whitespace."""
    if not line.isascii():
        line = unicodedata.normalize("NFC", line).translate(_INVISIBLE).translate(LOOK_ALIKES)
        line = line.replace("\u2026", "...")
    return line.rstrip()


_LEVELS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", str),
    ("trailing whitespace", str.rstrip),
    ("look-alike characters", normalize_line),
    (_INDENTATION, lambda line: normalize_line(line).lstrip()),
)


def _find_windows(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    """Starts of `wanted` in `lines`; searches for the rarest wanted line first."""
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


def _map_indents(lines: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """Indentation in the text for each one in `wanted`; empty if it is not consistent."""
    indents: dict[str, str] = {}
    for line, want in zip(lines, wanted, strict=True):
        if want.strip():
            theirs, ours = _indent(want), _indent(line)
            if indents.setdefault(theirs, ours) != ours:
                return {}
    deeper = [indents[each] for each in sorted(indents, key=_width)]
    return indents if deeper == sorted(deeper, key=_width) else {}


def _translate_indent(indent: str, indents: dict[str, str]) -> str:
    if indent in indents:
        return indents[indent]
    known = [each for each in indents if indent.startswith(each)]
    if known:
        base = max(known, key=len)
        return indents[base] + _convert_indent(indent[len(base) :], indents)
    base = min(indents, key=_width)
    rest = _convert_indent(base[len(indent) :], indents) if base.startswith(indent) else ""
    return indents[base].removesuffix(rest)


def _convert_indent(more: str, indents: dict[str, str]) -> str:
    """Convert additional indentation to the tabs or spaces that the text uses."""
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


def describe_nearest(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """Describe the region of the text that is most similar to `wanted`."""
    if not any(line.strip() for line in lines):
        return "The file is empty."
    start = _best_start(lines, wanted)
    if start is None:
        return "Nothing similar is in the file; read it again."
    start = max(0, min(start, len(lines) - 1))
    end = min(len(lines), start + len(wanted))
    differing = [
        (n, line, want)
        for n, (line, want) in enumerate(zip(lines[start:end], wanted, strict=False), start + 1)
        if line != want
    ]
    region = "\n".join(
        f"{n}: {_truncate(lines[n - 1])}" for n in range(start + 1, min(end, start + MAX_SHOWN_LINES) + 1)
    )
    more = f"\n... to line {end}" if end - start > MAX_SHOWN_LINES else ""
    notes = [_describe_difference(*each) for each in differing[:3]]
    if len(differing) > 3:
        notes.append(f"and {len(differing) - 3} more lines")
    return "\n".join([f"The most similar part:\n{region}{more}", *(["Differences:"] if notes else []), *notes])


def _best_start(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Start where most wanted lines are at their relative positions; else where one is similar."""
    places: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        if bare := normalize_line(line).strip():
            places.setdefault(bare, []).append(n)
    votes: Counter[int] = Counter()
    for n, line in enumerate(wanted):
        for at in places.get(normalize_line(line).strip(), [])[:100]:
            votes[at - n] += 1
    if votes:
        most = max(votes.values())
        return min(start for start, count in votes.items() if count == most)
    return _most_similar(lines, wanted)


def _most_similar(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    from difflib import SequenceMatcher  # noqa: PLC0415

    number, line = max(enumerate(wanted), key=lambda each: len(each[1].strip()), default=(0, ""))
    matcher = SequenceMatcher(None, b=line.strip()[:MAX_LINE_CHARS])
    weighed: list[tuple[float, str]] = []
    for other in islice(dict.fromkeys(lines), MAX_CANDIDATES):
        matcher.set_seq1(other.strip()[:MAX_LINE_CHARS])
        if matcher.real_quick_ratio() > MIN_RATIO and (ratio := matcher.quick_ratio()) > MIN_RATIO:
            weighed.append((ratio, other))
    best, place = MIN_RATIO, None
    for _, other in nlargest(MAX_COMPARED, weighed):
        matcher.set_seq1(other.strip()[:MAX_LINE_CHARS])
        if (ratio := matcher.ratio()) > best:
            best, place = ratio, lines.index(other) - number
    return place


def _describe_difference(number: int, line: str, want: str) -> str:
    if line.strip() == want.strip():
        return f"line {number}: whitespace only: {_truncate(line)!r}, not {_truncate(want)!r}"
    if normalize_line(line).strip() == normalize_line(want).strip():
        odd = sorted({each for each in line + want if not each.isascii()})
        names = ", ".join(f"U+{ord(each):04X}" for each in odd)
        return f"line {number}: look-alike characters only ({names})"
    return f"line {number} is not {_truncate(want)!r}"


def _truncate(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1] + "…"
