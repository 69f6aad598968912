"""Puts one piece of text in the place of another, also where it is remembered almost right. Pure."""

import re
from collections.abc import Iterator

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.tools.hunks import NAMED, Placed, at_lines, find_hunk, hunk_between
from alipes.tools.matching import LOOK_ALIKES
from alipes.tools.nearest import nearest

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
