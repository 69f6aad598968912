"""Parses the `*** Begin Patch` format and unified diffs, also slightly malformed ones."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.lazy import lazy_pattern
from alipes.tools.files.hunks import DiffLine, Hunk

_HEADER = lazy_pattern(r"\*\*\* (Update|Add|Delete) File: *(.*\S)\s*$")
_MOVE = lazy_pattern(r"\*\*\* Move to: *(.*\S)\s*$")
_FENCE = lazy_pattern(r"\s*(?:```\w*|(?:apply_patch\s+)?<<\s*['\"]?EOF['\"]?|EOF)?\s*$")
_RANGE = lazy_pattern(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_BINARY = ("GIT binary patch", "Binary files ")
_QUOTED = lazy_pattern(rb"\\([0-7]{3}|.)")
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
DEV_NULL = "/dev/null"


class FileEdit(Struct, frozen=True):
    kind: Literal["update", "add", "delete"]
    path: str
    hunks: tuple[Hunk, ...] = ()
    content: str = ""
    move_to: str = ""
    """New path of an updated file; empty if it is not moved."""


def is_envelope(text: str) -> bool:
    return any(line.startswith("*** ") and _HEADER.match(line) for line in text.split("\n")) or (
        "*** Begin Patch" in text
    )


def parse_envelope(text: str) -> list[FileEdit]:
    """Parse a patch in the `*** Begin Patch` format. Raises ToolError with the wrong line."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    start, end = _bounds(lines)
    heads = [n for n in range(start, end) if _HEADER.match(lines[n])]
    if not heads:
        raise ToolError("the patch has no *** Update File, *** Add File or *** Delete File line")
    for n in range(start, heads[0]):
        if lines[n].strip():
            raise _syntax_error(n, lines[n], "a line like *** Update File: path")
    return [_parse_edit(lines, first, after) for first, after in zip(heads, [*heads[1:], end], strict=True)]


def _bounds(lines: Sequence[str]) -> tuple[int, int]:
    """Range of the lines between begin and end, without code fences or here-documents around them."""
    begin = next((n for n, line in enumerate(lines) if line.strip() == "*** Begin Patch"), None)
    end = next((n for n, line in enumerate(lines) if line.strip() == "*** End Patch"), None)
    if begin is not None and end is None:
        raise ToolError("the patch has no *** End Patch line; send the complete patch")
    start, stop = (0 if begin is None else begin + 1), (len(lines) if end is None else end)
    while begin is None and start < stop and _FENCE.match(lines[start]):
        start += 1
    while end is None and stop > start and _FENCE.match(lines[stop - 1]):
        stop -= 1
    return start, stop


def _parse_edit(lines: Sequence[str], head: int, end: int) -> FileEdit:
    header = _HEADER.match(lines[head])
    assert header is not None
    kind, path = header[1], header[2]
    body = range(head + 1, end)
    if kind == "Add":
        return FileEdit("add", path, content=_parse_added(lines, body))
    if kind == "Delete":
        for n in body:
            if lines[n].strip():
                raise _syntax_error(n, lines[n], "nothing after *** Delete File")
        return FileEdit("delete", path)
    to = ""
    if body and (move := _MOVE.match(lines[body[0]])):
        to, body = move[1], body[1:]
    hunks = tuple(_parse_hunks(lines, body))
    if not hunks and not to:
        raise ToolError(f"the patch changes nothing in {path}: its hunks are missing")
    return FileEdit("update", path, hunks, move_to=to)


def _parse_added(lines: Sequence[str], body: range) -> str:
    rows = []
    for n in body:
        if lines[n].startswith("+"):
            rows.append(lines[n][1:])
        elif lines[n].strip():
            raise _syntax_error(n, lines[n], "a line of the new file, starting with +")
    return "".join(f"{row}\n" for row in rows)


def _parse_hunks(lines: Sequence[str], body: range) -> Iterator[Hunk]:
    anchors: list[str] = []
    ops: list[DiffLine] = []
    for n in body:
        line = lines[n]
        if line.startswith("@@"):
            if ops:
                yield from _finish_hunk(ops, anchors, at_end=False)
                anchors, ops = [], []
            if anchor := _parse_anchor(line):
                anchors.append(anchor)
        elif line.strip() == "*** End of File":
            yield from _finish_hunk(ops, anchors, at_end=True)
            anchors, ops = [], []
        else:
            op = _parse_line(line)
            if op is None:
                raise _syntax_error(n, line, "a line starting with a space, + or -")
            ops.append(op)
    yield from _finish_hunk(ops, anchors, at_end=False)


def _finish_hunk(ops: list[DiffLine], anchors: list[str], *, at_end: bool) -> Iterator[Hunk]:
    while ops and ops[-1] == (" ", ""):  # empty lines before the next header are not part of the file
        ops.pop()
    if any(sign != " " for sign, _ in ops):
        yield Hunk(tuple(ops), tuple(anchors), at_end=at_end)


def _parse_anchor(line: str) -> str:
    """Context of `@@ def f():`, with or without a second `@@`; line numbers are ignored."""
    text = re.sub(r"^@@\s?(?:-\d+(?:,\d+)? \+\d+(?:,\d+)? )?", "", line).strip()
    return re.sub(r"\s*@@\s*$", "", text)


def _syntax_error(number: int, line: str, expected: str) -> ToolError:
    return ToolError(f"line {number + 1} of the patch is {line[:100]!r}; expected {expected}")


def is_unified(text: str) -> bool:
    lines = text.split("\n")
    return any(_starts_file(lines, n) or line.startswith("rename from ") for n, line in enumerate(lines))


def parse_unified(text: str) -> list[FileEdit]:
    """Parse a unified diff. Line numbers are only hints, and counts may be wrong."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    edits: list[FileEdit] = []
    moved, n = "", 0
    while n < len(lines):
        line = lines[n]
        if line.startswith(_BINARY):
            raise ToolError("the patch contains a binary file; only text can be patched")
        if line.startswith("rename from "):
            moved = _parse_path(line.removeprefix("rename from "), "")
        elif line.startswith("rename to ") and moved:
            edits.append(FileEdit("update", moved, move_to=_parse_path(line.removeprefix("rename to "), "")))
            moved = ""
        elif _starts_file(lines, n):
            edit, n = _parse_file(lines, n)
            if edits and edits[-1].move_to and not edits[-1].hunks and edit.move_to == edits[-1].move_to:
                edits.pop()  # the rename that came before its hunks
            edits.append(edit)
            continue
        n += 1
    return edits


def parse_bare_hunks(text: str, path: str) -> list[FileEdit]:
    """Parse hunks without a file header, for the file at `path`."""
    hunks, _ = _parse_unified_hunks([line.removesuffix("\r") for line in text.split("\n")], 0)
    return [FileEdit("update", path, tuple(hunks))]


def _starts_file(lines: Sequence[str], n: int) -> bool:
    return (
        lines[n].startswith("--- ")
        and n + 1 < len(lines)
        and lines[n + 1].startswith("+++ ")
        and (n + 2 >= len(lines) or lines[n + 2].startswith("@@") or not lines[n + 2].strip())
    )


def _parse_file(lines: Sequence[str], n: int) -> tuple[FileEdit, int]:
    old, new = _parse_path(lines[n][4:], "a/"), _parse_path(lines[n + 1][4:], "b/")
    hunks, after = _parse_unified_hunks(lines, n + 2)
    if old == DEV_NULL:
        rows = [line for hunk in hunks for sign, line in hunk.ops if sign == "+"]
        open_ended = any(hunk.newline is False for hunk in hunks) or not rows
        return FileEdit("add", new, content="\n".join(rows) + ("" if open_ended else "\n")), after
    if new == DEV_NULL:
        return FileEdit("delete", old), after
    if not hunks and old == new:
        raise ToolError(f"the patch changes nothing in {old}: its hunks are missing")
    return FileEdit("update", old, tuple(hunks), move_to=new if new != old else ""), after


def _parse_unified_hunks(lines: Sequence[str], n: int) -> tuple[list[Hunk], int]:
    hunks: list[Hunk] = []
    while n < len(lines):
        if lines[n].startswith("@@"):
            body = _HunkParser(_RANGE.match(lines[n]))
            n = body.read(lines, n + 1)
            hunks += body.hunks()
        elif lines[n].startswith(("diff ", "index ", "--- ", "rename ", *_BINARY)):
            break
        else:
            n += 1
    return hunks, n


class _HunkParser(Struct):
    """Parser of one hunk. The counts in its header are used only to find its end."""

    span: "re.Match[str] | None"
    ops: list[DiffLine] = []
    old_left: int = 0
    """Old lines still expected by the header; likewise `new_left`."""
    new_left: int = 0
    newline: bool | None = None

    def read(self, lines: Sequence[str], n: int) -> int:
        """Read the lines from `n`; returns the index after the hunk."""
        if self.span:
            self.old_left, self.new_left = int(self.span[2] or 1), int(self.span[4] or 1)
        while n < len(lines) and not self._ends(lines, n):
            line = lines[n]
            n += 1
            if line.startswith("\\"):
                self.newline = self.ops[-1][0] == "-" if self.ops else None
                continue
            op = _parse_line(line)
            if op is None:
                raise ToolError(f"line {n} of the patch is {line[:80]!r}; it must start with ' ', + or -")
            self.ops.append(op)
            self.old_left -= op[0] != "+"
            self.new_left -= op[0] != "-"
        return n

    def hunks(self) -> list[Hunk]:
        """The hunk, or nothing if it has no changes."""
        while self.ops and self.ops[-1] == (" ", "") and (self.old_left < 0 or self.new_left < 0):
            self.ops.pop()  # the final line break of the message, not of the file
            self.old_left, self.new_left = self.old_left + 1, self.new_left + 1
        if all(sign == " " for sign, _ in self.ops):
            return []
        return [Hunk(tuple(self.ops), line=int(self.span[1]) if self.span else 0, newline=self.newline)]

    def _ends(self, lines: Sequence[str], n: int) -> bool:
        if lines[n].startswith(("@@", "diff --git ")):
            return True
        if self.old_left > 0 or self.new_left > 0 or lines[n].startswith("\\"):
            return False
        # a mail signature, the next file, or text after the last hunk
        return lines[n] == "-- " or _starts_file(lines, n) or (self.span is not None and not _parse_line(lines[n]))


def _parse_line(line: str) -> DiffLine | None:
    signs: dict[str, DiffLine] = {"+": ("+", line[1:]), "-": ("-", line[1:]), " ": (" ", line[1:]), "": (" ", "")}
    return signs.get(line[:1])


def _parse_path(name: str, prefix: str) -> str:
    name = name.split("\t")[0].strip()
    if name.startswith('"') and name.endswith('"') and len(name) > 1:
        name = _unquote(name[1:-1])
    return name if name == DEV_NULL else name.removeprefix(prefix)


def _unquote(name: str) -> str:
    raw = _QUOTED.sub(
        lambda m: bytes([int(m[1], 8) & 255]) if m[1].isdigit() else _LETTERS.get(m[1], m[1]), name.encode()
    )
    return raw.decode("utf-8", "surrogateescape")
