"""Reads a patch: which files it adds, deletes, moves and changes, and how. It looks at no file.

Two forms are understood: the one between `*** Begin Patch` and `*** End Patch`, and unified diffs.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.tools.hunks import Hunk, Op

_HEADER = re.compile(r"\*\*\* (Update|Add|Delete) File: *(.*\S)\s*$")
_MOVE = re.compile(r"\*\*\* Move to: *(.*\S)\s*$")
_FENCE = re.compile(r"\s*(?:```\w*|(?:apply_patch\s+)?<<\s*['\"]?EOF['\"]?|EOF)?\s*$")


class FileEdit(Struct, frozen=True):
    kind: Literal["update", "add", "delete"]
    path: str
    hunks: tuple[Hunk, ...] = ()
    content: str = ""
    """Of a file that is added."""
    to: str = ""
    """Where an updated file goes; empty when it stays."""


def is_envelope(text: str) -> bool:
    return any(line.startswith("*** ") and _HEADER.match(line) for line in text.split("\n")) or (
        "*** Begin Patch" in text
    )


def read_envelope(text: str) -> list[FileEdit]:
    """The edits of a patch in the `*** Begin Patch` form. Raises ToolError naming the line that is wrong."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    start, end = _bounds(lines)
    heads = [n for n in range(start, end) if _HEADER.match(lines[n])]
    if not heads:
        raise ToolError(
            "the patch names no file: *** Update File, *** Add File or *** Delete File is missing"
        )
    for n in range(start, heads[0]):
        if lines[n].strip():
            raise _wrong(n, lines[n], "a line like *** Update File: path")
    return [_edit(lines, first, after) for first, after in zip(heads, [*heads[1:], end], strict=True)]


def _bounds(lines: Sequence[str]) -> tuple[int, int]:
    """The lines between begin and end, without what a quoted patch is wrapped in."""
    begin = next((n for n, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None)
    end = next((n for n, line in enumerate(lines) if line.strip() == "*** End Patch"), None)
    if begin is not None and end is None:
        raise ToolError("the patch has no line *** End Patch; send it whole")
    start, stop = (0 if begin is None else begin + 1), (len(lines) if end is None else end)
    while begin is None and start < stop and _FENCE.match(lines[start]):
        start += 1
    while end is None and stop > start and _FENCE.match(lines[stop - 1]):
        stop -= 1
    return start, stop


def _edit(lines: Sequence[str], head: int, end: int) -> FileEdit:
    header = _HEADER.match(lines[head])
    assert header is not None
    kind, path = header[1], header[2]
    body = range(head + 1, end)
    if kind == "Add":
        return FileEdit("add", path, content=_added(lines, body))
    if kind == "Delete":
        for n in body:
            if lines[n].strip():
                raise _wrong(n, lines[n], "nothing after *** Delete File")
        return FileEdit("delete", path)
    to = ""
    if body and (move := _MOVE.match(lines[body[0]])):
        to, body = move[1], body[1:]
    hunks = tuple(_hunks(lines, body))
    if not hunks and not to:
        raise ToolError(f"the patch changes nothing in {path}: its hunks are missing")
    return FileEdit("update", path, hunks, to=to)


def _added(lines: Sequence[str], body: range) -> str:
    rows = []
    for n in body:
        if lines[n].startswith("+"):
            rows.append(lines[n][1:])
        elif lines[n].strip():
            raise _wrong(n, lines[n], "a line of the new file, which begins with +")
    return "".join(f"{row}\n" for row in rows)


def _hunks(lines: Sequence[str], body: range) -> Iterator[Hunk]:
    anchors: list[str] = []
    ops: list[Op] = []
    for n in body:
        line = lines[n]
        if line.startswith("@@"):
            if ops:
                yield from _finished(ops, anchors, at_end=False)
                anchors, ops = [], []
            if anchor := _anchor(line):
                anchors.append(anchor)
        elif line.strip() == "*** End of File":
            yield from _finished(ops, anchors, at_end=True)
            anchors, ops = [], []
        else:
            ops.append(_op(n, line))
    yield from _finished(ops, anchors, at_end=False)


def _finished(ops: list[Op], anchors: list[str], *, at_end: bool) -> Iterator[Hunk]:
    while ops and ops[-1] == (" ", ""):  # empty lines before the next header are no lines of the file
        ops.pop()
    if any(sign != " " for sign, _ in ops):
        yield Hunk(tuple(ops), tuple(anchors), at_end=at_end)


def _anchor(line: str) -> str:
    """`@@ def f():` with or without a second `@@`; line numbers, as in unified diffs, say nothing here."""
    text = re.sub(r"^@@\s?(?:-\d+(?:,\d+)? \+\d+(?:,\d+)? )?", "", line).strip()
    return re.sub(r"\s*@@\s*$", "", text)


def _op(number: int, line: str) -> Op:
    match line[:1]:
        case "+":
            return "+", line[1:]
        case "-":
            return "-", line[1:]
        case " ":
            return " ", line[1:]
        case "":
            return " ", ""
    raise _wrong(number, line, "a line that begins with a blank, + or -")


def _wrong(number: int, line: str, expected: str) -> ToolError:
    return ToolError(f"line {number + 1} of the patch is {line[:100]!r}; expected {expected}")
