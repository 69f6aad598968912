"""Applies hunks and string replacements to a text, tolerating small differences in the old lines."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import join_names
from alipes.kernel.lazy import lazy_pattern
from alipes.tools.common import common_prefix
from alipes.tools.files.fuzzy_match import LOOK_ALIKES, LineMatch, describe_nearest, find_lines, normalize_line

MAX_NAMED_LINES = 10
DiffLine: TypeAlias = tuple[Literal[" ", "-", "+"], str]
_ESCAPE = lazy_pattern(r"\\([nrt\"'\\])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}


class Hunk(Struct, frozen=True):
    ops: tuple[DiffLine, ...]
    anchors: tuple[str, ...] = ()
    """Lines somewhere before it, outermost first."""
    line: int = 0
    """Line number in the patch, from 1; only a hint between several places. 0: none."""
    at_end: bool = False
    newline: bool | None = None
    """Whether the new text ends with a line break; None: as before."""

    @property
    def old(self) -> list[str]:
        return [line for sign, line in self.ops if sign != "+"]


class PlacedHunk(Struct, frozen=True):
    hunk: Hunk
    match: LineMatch

    @property
    def end(self) -> int:
        return self.match.start + len(self.hunk.old)

    def apply(self, lines: Sequence[str]) -> list[str]:
        """The new lines. Context lines are taken from the text, not from the hunk."""
        at, result, old = self.match.start, [], self.hunk.old
        # in a text with mixed line endings, keep the carriage return of this place
        ending = "\r" if old and lines[at].endswith("\r") and not old[0].endswith("\r") else ""
        for sign, line in self.hunk.ops:
            if sign == "+":
                result.append(self.match.indent(line) + ending)
                continue
            if sign == " ":
                result.append(lines[at])
            at += 1
        return result


def diff_hunk(old: Sequence[str], new: Sequence[str]) -> Hunk:
    """The hunk that changes `old` into `new`."""
    from difflib import SequenceMatcher  # noqa: PLC0415

    ops: list[DiffLine] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            ops += [(" ", line) for line in old[i1:i2]]
            continue
        ops += [("-", line) for line in old[i1:i2]]
        ops += [("+", line) for line in new[j1:j2]]
    return Hunk(tuple(ops))


def find_hunk(lines: Sequence[str], hunk: Hunk) -> tuple[list[PlacedHunk], str]:
    """Possible places, and the kind of difference that was ignored; empty if there is none."""
    for each in (hunk, _trim_context(hunk)):
        found, ignored = find_lines(lines, each.old)
        if found:
            return [PlacedHunk(each, one) for one in found], ignored
    return [], ""


def apply_hunks(text: str, hunks: Sequence[Hunk]) -> tuple[str, list[str]]:
    """The text with all hunks applied, and the kinds of differences that were ignored.

    Raises ToolError if a hunk fits nowhere or in several places.
    """
    lines = text.split("\n")
    ends_with_newline = not lines[-1]
    if ends_with_newline:
        lines.pop()
    ignored: list[str] = []
    choices: list[list[PlacedHunk]] = []
    for number, hunk in enumerate(hunks, 1):
        places, how = _find_places(lines, hunk)
        if not places:
            near = describe_nearest(lines, hunk.old or hunk.anchors)
            raise ToolError(f"{_hunk_name(number, hunks)} does not match the file. {near}")
        choices.append(places)
        if how and how not in ignored:
            ignored.append(how)
    for placed in reversed(sorted(_choose_places(choices, hunks), key=lambda each: (each.match.start, each.end))):
        lines[placed.match.start : placed.end] = placed.apply(lines)
    ends_with_newline = next((hunk.newline for hunk in reversed(hunks) if hunk.newline is not None), ends_with_newline)
    return "\n".join(lines) + ("\n" if ends_with_newline and lines else ""), ignored


def _find_places(lines: Sequence[str], hunk: Hunk) -> tuple[list[PlacedHunk], str]:
    if not hunk.old:  # it only adds lines
        points = [min(hunk.line or len(lines), len(lines))]
        if hunk.anchors:
            points = [at + 1 for at in _find_anchors(lines, hunk.anchors)]
        return [PlacedHunk(hunk, LineMatch(at)) for at in points], ""
    places, ignored = find_hunk(lines, hunk)
    if len(places) > 1 and hunk.anchors:
        places = _after_anchors(lines, hunk, places)
    if len(places) > 1 and hunk.at_end:
        places = [each for each in places if not any(lines[each.end :])] or places
    if len(places) > 1 and hunk.line:
        places = [each for each in places if each.match.start + 1 == hunk.line] or places
    return places, ignored


def _after_anchors(lines: Sequence[str], hunk: Hunk, places: list[PlacedHunk]) -> list[PlacedHunk]:
    """The first place after each occurrence of the anchors."""
    starts = {
        next((n for n, each in enumerate(places) if each.match.start >= anchor), None)
        for anchor in _find_anchors(lines, hunk.anchors)
    }
    return [places[n] for n in sorted(start for start in starts if start is not None)] or places


def _find_anchors(lines: Sequence[str], anchors: Sequence[str]) -> list[int]:
    """Line numbers of the last anchor, each after the anchors before it."""
    starts = [-1]
    for anchor in anchors:
        wanted = normalize_line(anchor).strip()
        after = starts[0] + 1 if starts else len(lines)
        same = [n for n, line in enumerate(lines) if n >= after and normalize_line(line).strip() == wanted]
        starts = same or [n for n, line in enumerate(lines) if n >= after and wanted in normalize_line(line)]
    return starts


def _choose_places(choices: Sequence[Sequence[PlacedHunk]], hunks: Sequence[Hunk]) -> list[PlacedHunk]:
    """Choose one place per hunk. Ambiguous hunks are resolved by the order of the hunks if possible."""
    if all(len(places) == 1 for places in choices):
        chosen = [places[0] for places in choices]
        _check_overlaps(chosen, hunks)
        return chosen
    first, last = _first_fit(choices), _last_fit(choices)
    for number, (early, late) in enumerate(zip(first, last, strict=True), 1):
        if early is None or late is None or early.match.start != late.match.start:
            numbers = [each.match.start + 1 for each in choices[number - 1]]
            if len(numbers) == 1:
                continue
            at = format_line_numbers(numbers, len(numbers))
            raise ToolError(
                f"{_hunk_name(number, hunks)} matches {len(numbers)} places, at {at};"
                " add more context lines, or a context line after @@"
            )
    chosen = [each for each in first if each is not None]
    if len(chosen) < len(hunks):
        raise ToolError("the hunks are not in file order; list them from top to bottom")
    return chosen


def _first_fit(choices: Sequence[Sequence[PlacedHunk]]) -> list[PlacedHunk | None]:
    """For each hunk the earliest place after the previous hunks."""
    end, chosen = 0, []
    for places in choices:
        place = next((each for each in places if each.match.start >= end), None)
        chosen.append(place)
        end = place.end if place else end
    return chosen


def _last_fit(choices: Sequence[Sequence[PlacedHunk]]) -> list[PlacedHunk | None]:
    """For each hunk the latest place before the following hunks."""
    start, chosen = float("inf"), []
    for places in reversed(choices):
        place = next((each for each in reversed(places) if each.end <= start), None)
        chosen.append(place)
        start = place.match.start if place else start
    return chosen[::-1]


def _check_overlaps(chosen: Sequence[PlacedHunk], hunks: Sequence[Hunk]) -> None:
    order = sorted(range(len(chosen)), key=lambda n: (chosen[n].match.start, chosen[n].end))
    for one, other in pairwise(order):
        if chosen[one].end > chosen[other].match.start:
            raise ToolError(
                f"{_hunk_name(one + 1, hunks)} and {_hunk_name(other + 1, hunks)} both change line"
                f" {chosen[other].match.start + 1}; combine them into one hunk"
            )


def _trim_context(hunk: Hunk) -> Hunk:
    """Without blank context lines at the edges, which models often get wrong."""
    ops = list(hunk.ops)
    while ops and ops[0][0] == " " and not ops[0][1].strip():
        ops.pop(0)
    while ops and ops[-1][0] == " " and not ops[-1][1].strip():
        ops.pop()
    return structs.replace(hunk, ops=tuple(ops))


def _hunk_name(number: int, hunks: Sequence[Hunk]) -> str:
    return f"hunk {number} of {len(hunks)}" if len(hunks) > 1 else "the hunk"


def format_line_numbers(numbers: Sequence[int], count: int) -> str:
    """`line 4`, or `lines 4, 9 and 20`; only the first few of `count`."""
    names = [str(number) for number in numbers[:MAX_NAMED_LINES]]
    if count > len(names):
        return f"lines {', '.join(names)} and {count - len(names):,} more"
    return f"{'lines' if len(names) > 1 else 'line'} {join_names(names)}"


class Replacement(Struct, frozen=True):
    text: str
    count: int
    ignored: str = ""
    """The kind of difference that was ignored; empty if none."""


def replace_text(text: str, old: str, new: str, *, everywhere: bool = False) -> Replacement:
    """Replace `old` by `new` in `text`.

    Raises ToolError if `old` is not found, or found several times without `everywhere`.
    """
    if not old:
        raise ToolError("old_string is empty; use write_file to write a whole file")
    if old == new:
        raise ToolError("old_string and new_string are identical")
    for wanted, replacement, unescaped in _interpretations(old, new):
        done = _try_replace(text, wanted, replacement, everywhere)
        if done is not None:
            return Replacement(done.text, done.count, unescaped or done.ignored)
    near = describe_nearest(text.split("\n"), _split_lines(old))
    raise ToolError(f"old_string was not found.{_already_applied(text, new)} {near}")


def _interpretations(old: str, new: str) -> Iterator[tuple[str, str, str]]:
    """The strings as given, and with one layer of escapes removed."""
    yield old, new, ""
    if _ESCAPE.search(old):
        yield _unescape(old, "nrt\"'\\"), _unescape(new, "nrt\"'\\"), "escaping"
        yield _unescape(old, "\"'"), _unescape(new, "\"'"), "escaping"


def _try_replace(text: str, old: str, new: str, everywhere: bool) -> Replacement | None:
    if starts := _occurrences(text, old):
        _check_single(text, starts, everywhere)
        return Replacement(text.replace(old, new), text.count(old))
    lines = text.split("\n")
    places, ignored = find_hunk(lines, diff_hunk(_split_lines(old), _split_lines(new)))
    if places:
        if len(places) > 1 and not everywhere:
            raise _ambiguous([each.match.start + 1 for each in places], len(places))
        places = _without_overlaps(places)
        for placed in reversed(places):
            lines[placed.match.start : placed.end] = placed.apply(lines)
        return Replacement("\n".join(lines), len(places), ignored)
    return _replace_look_alikes(text, old, new, everywhere)


def _replace_look_alikes(text: str, old: str, new: str, everywhere: bool) -> Replacement | None:
    """Replace part of a line, ignoring typographic quotes, dashes and spaces; unchanged parts stay."""
    plain = old.translate(LOOK_ALIKES)
    starts = _occurrences(text.translate(LOOK_ALIKES), plain)
    if not starts:
        return None
    _check_single(text, starts, everywhere)
    head = common_prefix(old, new)
    tail = min(common_prefix(old[::-1], new[::-1]), min(len(old), len(new)) - head)
    middle = new[head : len(new) - tail]
    pieces, at = [], 0
    for start in starts:
        if start >= at:
            pieces += [text[at : start + head], middle]
            at = start + len(old) - tail
    return Replacement("".join(pieces) + text[at:], len(pieces) // 2, "look-alike characters")


def _occurrences(text: str, old: str) -> list[int]:
    """All positions, including overlapping ones, which are ambiguous."""
    starts, at = [], text.find(old)
    while at >= 0:
        starts.append(at)
        at = text.find(old, at + 1)
    return starts


def _check_single(text: str, starts: list[int], everywhere: bool) -> None:
    if len(starts) > 1 and not everywhere:
        numbers = [text.count("\n", 0, start) + 1 for start in starts[:MAX_NAMED_LINES]]
        raise _ambiguous(numbers, len(starts))


def _ambiguous(numbers: list[int], count: int) -> ToolError:
    at = format_line_numbers(numbers, count)
    return ToolError(
        f"old_string occurs {count:,} times, at {at}; add surrounding lines to make it unique, or set replace_all"
    )


def _without_overlaps(places: list[PlacedHunk]) -> list[PlacedHunk]:
    chosen: list[PlacedHunk] = []
    for each in places:
        if not chosen or each.match.start >= chosen[-1].end:
            chosen.append(each)
    return chosen


def _split_lines(piece: str) -> list[str]:
    return piece.removesuffix("\n").split("\n") if piece else []


def _unescape(text: str, kinds: str) -> str:
    return _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[1]) if m[1] in kinds else m[0], text)


def _already_applied(text: str, new: str) -> str:
    if len(new.strip()) < 8 or new not in text:
        return ""
    line = text.count("\n", 0, text.index(new)) + 1
    return f" new_string is already at line {line}; was this edit already made?"
