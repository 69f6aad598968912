"""What changed between two texts: how many lines, and the unified diff of them. It reads no files."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from msgspec import Struct

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
