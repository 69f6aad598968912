"""What to say when lines are not found: the place that comes nearest, and what differs there. Pure."""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from heapq import nlargest
from itertools import islice

from alipes.tools.matching import plain

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
