"""Hunks: lines that go, lines that come, and the lines around them by which their place is found. Pure."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.tools.files.fuzzy_match import LOOK_ALIKES, Found, find_lines, nearest, plain

NAMED = 10
"""Places that are named when there are too many."""
Op: TypeAlias = tuple[Literal[" ", "-", "+"], str]


class Hunk(Struct, frozen=True):
    ops: tuple[Op, ...]
    anchors: tuple[str, ...] = ()
    """Lines before it, outermost first, not necessarily right before it."""
    line: int = 0
    """Where it is said to begin, from 1; a hint that settles a tie, no more. 0: not said."""
    at_end: bool = False
    newline: bool | None = None
    """Whether the text ends with a line break afterwards; None: as before."""

    @property
    def old(self) -> list[str]:
        return [line for sign, line in self.ops if sign != "+"]


class Placed(Struct, frozen=True):
    hunk: Hunk
    found: Found

    @property
    def end(self) -> int:
        return self.found.start + len(self.hunk.old)

    def rewrite(self, lines: Sequence[str]) -> list[str]:
        """What stands in its place afterwards. Lines that stay are the text's own, not as remembered."""
        at, result, old = self.found.start, [], self.hunk.old
        # a text that mixes line endings keeps the carriage return of the place
        ending = "\r" if old and lines[at].endswith("\r") and not old[0].endswith("\r") else ""
        for sign, line in self.hunk.ops:
            if sign == "+":
                result.append(self.found.indented(line) + ending)
                continue
            if sign == " ":
                result.append(lines[at])
            at += 1
        return result


def hunk_between(old: Sequence[str], new: Sequence[str]) -> Hunk:
    """The hunk that makes `new` out of `old`."""
    ops: list[Op] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            ops += [(" ", line) for line in old[i1:i2]]
            continue
        ops += [("-", line) for line in old[i1:i2]]
        ops += [("+", line) for line in new[j1:j2]]
    return Hunk(tuple(ops))


def find_hunk(lines: Sequence[str], hunk: Hunk) -> tuple[list[Placed], str]:
    """Where it may go, and what had to be overlooked; empty when nowhere."""
    for each in (hunk, _trimmed(hunk)):
        found, overlooked = find_lines(lines, each.old)
        if found:
            return [Placed(each, one) for one in found], overlooked
    return [], ""


def apply_hunks(text: str, hunks: Sequence[Hunk]) -> tuple[str, list[str]]:
    """The text with all hunks in their places, and what had to be overlooked.

    Raises ToolError when one has no place, or when it could be more than one.
    """
    lines = text.split("\n")
    ended = not lines[-1]
    if ended:
        lines.pop()
    overlooked: list[str] = []
    choices: list[list[Placed]] = []
    for number, hunk in enumerate(hunks, 1):
        places, how = _places(lines, hunk)
        if not places:
            raise ToolError(
                f"{_name(number, hunks)} fits nowhere. {nearest(lines, hunk.old or hunk.anchors)}"
            )
        choices.append(places)
        if how and how not in overlooked:
            overlooked.append(how)
    for placed in reversed(sorted(_settled(choices, hunks), key=lambda each: (each.found.start, each.end))):
        lines[placed.found.start : placed.end] = placed.rewrite(lines)
    ended = next((hunk.newline for hunk in reversed(hunks) if hunk.newline is not None), ended)
    return "\n".join(lines) + ("\n" if ended and lines else ""), overlooked


def _places(lines: Sequence[str], hunk: Hunk) -> tuple[list[Placed], str]:
    if not hunk.old:
        return [Placed(hunk, Found(at)) for at in _insertions(lines, hunk)], ""
    places, overlooked = find_hunk(lines, hunk)
    if len(places) > 1 and hunk.anchors:
        places = _after_anchors(lines, hunk, places)
    if len(places) > 1 and hunk.at_end:
        places = [each for each in places if not any(lines[each.end :])] or places
    if len(places) > 1 and hunk.line:
        places = [each for each in places if each.found.start + 1 == hunk.line] or places
    return places, overlooked


def _insertions(lines: Sequence[str], hunk: Hunk) -> list[int]:
    """Places for lines that come without any that were there."""
    if hunk.anchors:
        return [at + 1 for at in _anchored(lines, hunk.anchors)]
    return [min(hunk.line, len(lines))] if hunk.line else [len(lines)]


def _after_anchors(lines: Sequence[str], hunk: Hunk, places: list[Placed]) -> list[Placed]:
    """The first place after each occurrence of the anchors."""
    starts = {
        next((n for n, each in enumerate(places) if each.found.start >= anchor), None)
        for anchor in _anchored(lines, hunk.anchors)
    }
    return [places[n] for n in sorted(start for start in starts if start is not None)] or places


def _anchored(lines: Sequence[str], anchors: Sequence[str]) -> list[int]:
    """The lines that are the last of `anchors` and come after the others."""
    starts = [-1]
    for anchor in anchors:
        wanted = plain(anchor).strip()
        after = starts[0] + 1 if starts else len(lines)
        same = [n for n, line in enumerate(lines) if n >= after and plain(line).strip() == wanted]
        starts = same or [n for n, line in enumerate(lines) if n >= after and wanted in plain(line)]
    return starts


def _settled(choices: Sequence[Sequence[Placed]], hunks: Sequence[Hunk]) -> list[Placed]:
    """One place for each hunk; hunks with several places are told apart by their order, if that does it."""
    if all(len(places) == 1 for places in choices):
        settled = [places[0] for places in choices]
        _refuse_overlaps(settled, hunks)
        return settled
    first, last = _in_order(choices), _from_behind(choices)
    for number, (early, late) in enumerate(zip(first, last, strict=True), 1):
        if early is None or late is None or early.found.start != late.found.start:
            numbers = [each.found.start + 1 for each in choices[number - 1]]
            if len(numbers) == 1:
                continue
            raise ToolError(
                f"{_name(number, hunks)} fits in {len(numbers)} places, at {at_lines(numbers, len(numbers))};"
                " give more lines around it, or a line of context after @@"
            )
    settled = [each for each in first if each is not None]
    if len(settled) < len(hunks):
        raise ToolError("the hunks of this file do not fit in their order; give them from top to bottom")
    return settled


def _in_order(choices: Sequence[Sequence[Placed]]) -> list[Placed | None]:
    """For each hunk the earliest place after the hunks before it."""
    end, chosen = 0, []
    for places in choices:
        place = next((each for each in places if each.found.start >= end), None)
        chosen.append(place)
        end = place.end if place else end
    return chosen


def _from_behind(choices: Sequence[Sequence[Placed]]) -> list[Placed | None]:
    """For each hunk the latest place before the hunks after it."""
    start, chosen = float("inf"), []
    for places in reversed(choices):
        place = next((each for each in reversed(places) if each.end <= start), None)
        chosen.append(place)
        start = place.found.start if place else start
    return chosen[::-1]


def _refuse_overlaps(settled: Sequence[Placed], hunks: Sequence[Hunk]) -> None:
    order = sorted(range(len(settled)), key=lambda n: (settled[n].found.start, settled[n].end))
    for one, other in pairwise(order):
        if settled[one].end > settled[other].found.start:
            raise ToolError(
                f"{_name(one + 1, hunks)} and {_name(other + 1, hunks)} both change line"
                f" {settled[other].found.start + 1}; make one hunk of them"
            )


def _trimmed(hunk: Hunk) -> Hunk:
    """Without blank lines of context at its edges: those are the first to be remembered wrongly."""
    ops = list(hunk.ops)
    while ops and ops[0][0] == " " and not ops[0][1].strip():
        ops.pop(0)
    while ops and ops[-1][0] == " " and not ops[-1][1].strip():
        ops.pop()
    return Hunk(tuple(ops), hunk.anchors, hunk.line, hunk.at_end, hunk.newline)


def _name(number: int, hunks: Sequence[Hunk]) -> str:
    return f"hunk {number} of {len(hunks)}" if len(hunks) > 1 else "the hunk"


def at_lines(numbers: Sequence[int], count: int) -> str:
    """`line 4`, or `lines 4, 9 and 20`: the first few of `count`."""
    names = [str(number) for number in numbers[:NAMED]]
    if count > len(names):
        return f"lines {', '.join(names)} and {count - len(names):,} more"
    *first, last = names
    return f"lines {', '.join(first)} and {last}" if first else f"line {last}"


_ESCAPE = re.compile(r"\\([nrt\"'\\])")
_MEANT = {"n": "\n", "r": "\r", "t": "\t"}


class Replaced(Struct, frozen=True):
    text: str
    count: int
    overlooked: str = ""
    """The difference that did not count; empty when there was none."""


def replace(text: str, old: str, new: str, *, everywhere: bool = False) -> Replaced:
    """`text` with `new` for `old`.

    Raises ToolError when `old` is nowhere, or in several places and not `everywhere` is wished.
    """
    if not old:
        raise ToolError("old_string is empty; use write_file to write a whole file")
    if old == new:
        raise ToolError("old_string and new_string are the same: nothing would change")
    for wanted, wished, spoken in _readings(old, new):
        done = _replaced(text, wanted, wished, everywhere)
        if done is not None:
            return Replaced(done.text, done.count, spoken or done.overlooked)
    near = nearest(text.split("\n"), _whole_lines(old))
    raise ToolError(f"old_string is not in the file.{_there_already(text, new)} {near}")


def _readings(old: str, new: str) -> Iterator[tuple[str, str, str]]:
    """What may have been meant: what was said, or else that without one layer of escapes."""
    yield old, new, ""
    if _ESCAPE.search(old):
        yield _unescaped(old, "nrt\"'\\"), _unescaped(new, "nrt\"'\\"), "escaping"
        yield _unescaped(old, "\"'"), _unescaped(new, "\"'"), "escaping"


def _replaced(text: str, old: str, new: str, everywhere: bool) -> Replaced | None:
    if starts := _occurrences(text, old):
        _refuse_several(text, starts, everywhere)
        return Replaced(text.replace(old, new), text.count(old))
    lines = text.split("\n")
    places, overlooked = find_hunk(lines, hunk_between(_whole_lines(old), _whole_lines(new)))
    if places:
        if len(places) > 1 and not everywhere:
            raise _ambiguous([each.found.start + 1 for each in places], len(places))
        places = _apart(places)
        for placed in reversed(places):
            lines[placed.found.start : placed.end] = placed.rewrite(lines)
        return Replaced("\n".join(lines), len(places), overlooked)
    return _look_alike(text, old, new, everywhere)


def _look_alike(text: str, old: str, new: str, everywhere: bool) -> Replaced | None:
    """Part of a line, spelt with other quotes, dashes or blanks. What stays keeps the text's own."""
    plain = old.translate(LOOK_ALIKES)
    starts = _occurrences(text.translate(LOOK_ALIKES), plain)
    if not starts:
        return None
    _refuse_several(text, starts, everywhere)
    head = _common(old, new)
    tail = min(_common(old[::-1], new[::-1]), min(len(old), len(new)) - head)
    middle = new[head : len(new) - tail]
    pieces, at = [], 0
    for start in starts:
        if start >= at:
            pieces += [text[at : start + head], middle]
            at = start + len(old) - tail
    return Replaced("".join(pieces) + text[at:], len(pieces) // 2, "look-alike characters")


def _occurrences(text: str, old: str) -> list[int]:
    """Every place, also where two overlap: then it is not clear which one is meant."""
    starts, at = [], text.find(old)
    while at >= 0:
        starts.append(at)
        at = text.find(old, at + 1)
    return starts


def _refuse_several(text: str, starts: list[int], everywhere: bool) -> None:
    if len(starts) > 1 and not everywhere:
        numbers = [text.count("\n", 0, start) + 1 for start in starts[:NAMED]]
        raise _ambiguous(numbers, len(starts))


def _ambiguous(numbers: list[int], count: int) -> ToolError:
    return ToolError(
        f"old_string is there {count:,} times, at {at_lines(numbers, count)}; add lines around it that are"
        " there once, or set replace_all"
    )


def _apart(places: list[Placed]) -> list[Placed]:
    chosen: list[Placed] = []
    for each in places:
        if not chosen or each.found.start >= chosen[-1].end:
            chosen.append(each)
    return chosen


def _whole_lines(piece: str) -> list[str]:
    return piece.removesuffix("\n").split("\n") if piece else []


def _unescaped(text: str, kinds: str) -> str:
    return _ESCAPE.sub(lambda m: _MEANT.get(m[1], m[1]) if m[1] in kinds else m[0], text)


def _there_already(text: str, new: str) -> str:
    if len(new.strip()) < 8 or new not in text:
        return ""
    return f" But new_string is, at line {text.count(chr(10), 0, text.index(new)) + 1}: was this done before?"


def _common(one: str, other: str) -> int:
    for n, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return n
    return min(len(one), len(other))
