"""Reads unified diffs, as `diff -u` and git write them and as models remember them. It looks at no file."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.tools.files.hunks import Hunk, Op

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


_RANGE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_BINARY = ("GIT binary patch", "Binary files ")
_QUOTED = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
NOWHERE = "/dev/null"


def is_unified(text: str) -> bool:
    lines = text.split("\n")
    return any(_starts_file(lines, n) or line.startswith("rename from ") for n, line in enumerate(lines))


def read_unified(text: str) -> list[FileEdit]:
    """The edits of a unified diff. Line numbers are hints: a wrong count harms nothing."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    edits: list[FileEdit] = []
    moved, n = "", 0
    while n < len(lines):
        line = lines[n]
        if line.startswith(_BINARY):
            raise ToolError("the patch has a binary file in it; only text can be patched")
        if line.startswith("rename from "):
            moved = _path(line.removeprefix("rename from "), "")
        elif line.startswith("rename to ") and moved:
            edits.append(FileEdit("update", moved, to=_path(line.removeprefix("rename to "), "")))
            moved = ""
        elif _starts_file(lines, n):
            edit, n = _file(lines, n)
            _add(edits, edit)
            continue
        n += 1
    return edits


def read_bare(text: str, path: str) -> list[FileEdit]:
    """Hunks without a header, for the file that was named beside them."""
    hunks, _ = _unified_hunks([line.removesuffix("\r") for line in text.split("\n")], 0)
    return [FileEdit("update", path, tuple(hunks))]


def _add(edits: list[FileEdit], edit: FileEdit) -> None:
    """A renamed file was announced before its hunks come."""
    last = edits[-1] if edits else None
    if last is not None and last.to and not last.hunks and edit.to == last.to:
        edits.pop()
    edits.append(edit)


def _starts_file(lines: Sequence[str], n: int) -> bool:
    return (
        lines[n].startswith("--- ")
        and n + 1 < len(lines)
        and lines[n + 1].startswith("+++ ")
        and (n + 2 >= len(lines) or lines[n + 2].startswith("@@") or not lines[n + 2].strip())
    )


def _file(lines: Sequence[str], n: int) -> tuple[FileEdit, int]:
    old, new = _path(lines[n][4:], "a/"), _path(lines[n + 1][4:], "b/")
    hunks, after = _unified_hunks(lines, n + 2)
    if old == NOWHERE:
        rows = [line for hunk in hunks for sign, line in hunk.ops if sign == "+"]
        open_ended = any(hunk.newline is False for hunk in hunks) or not rows
        return FileEdit("add", new, content="\n".join(rows) + ("" if open_ended else "\n")), after
    if new == NOWHERE:
        return FileEdit("delete", old), after
    if not hunks and old == new:
        raise ToolError(f"the patch changes nothing in {old}: its hunks are missing")
    return FileEdit("update", old, tuple(hunks), to=new if new != old else ""), after


def _unified_hunks(lines: Sequence[str], n: int) -> tuple[list[Hunk], int]:
    hunks: list[Hunk] = []
    while n < len(lines):
        if lines[n].startswith("@@"):
            body = _Body(_RANGE.match(lines[n]))
            n = body.read(lines, n + 1)
            hunks += body.hunks()
        elif lines[n].startswith(("diff ", "index ", "--- ", "rename ", *_BINARY)):
            break
        else:
            n += 1
    return hunks, n


class _Body(Struct):
    """The lines of one hunk. The counts of its header settle only where it ends, when that is not clear."""

    span: "re.Match[str] | None"
    ops: list[Op] = []
    gone: int = 0
    """Lines of the old text that are still to come, by the header; likewise `come`."""
    come: int = 0
    newline: bool | None = None

    def read(self, lines: Sequence[str], n: int) -> int:
        """Take the lines from `n`; where the next thing begins."""
        if self.span:
            self.gone, self.come = int(self.span[2] or 1), int(self.span[4] or 1)
        while n < len(lines) and not self._ends(lines, n):
            line = lines[n]
            n += 1
            if line.startswith("\\"):
                self.newline = self.ops[-1][0] == "-" if self.ops else None
                continue
            op = _unified_op(line)
            if op is None:
                raise ToolError(f"line {n} of the patch is {line[:80]!r}; it must begin with ' ', + or -")
            self.ops.append(op)
            self.gone -= op[0] != "+"
            self.come -= op[0] != "-"
        return n

    def hunks(self) -> list[Hunk]:
        """The hunk, or none when it changes nothing."""
        while self.ops and self.ops[-1] == (" ", "") and (self.gone < 0 or self.come < 0):
            self.ops.pop()  # the message's own last line break, not one of the file
            self.gone, self.come = self.gone + 1, self.come + 1
        if all(sign == " " for sign, _ in self.ops):
            return []
        return [Hunk(tuple(self.ops), line=int(self.span[1]) if self.span else 0, newline=self.newline)]

    def _ends(self, lines: Sequence[str], n: int) -> bool:
        if lines[n].startswith(("@@", "diff --git ")):
            return True
        if self.gone > 0 or self.come > 0 or lines[n].startswith("\\"):
            return False
        # a mail's signature, the next file, or words after the last hunk
        return (
            lines[n] == "-- "
            or _starts_file(lines, n)
            or (self.span is not None and not _unified_op(lines[n]))
        )


def _unified_op(line: str) -> Op | None:
    if not line:
        return " ", ""
    signs: dict[str, Op] = {"+": ("+", line[1:]), "-": ("-", line[1:]), " ": (" ", line[1:])}
    return signs.get(line[0])


def _path(name: str, prefix: str) -> str:
    name = name.split("\t")[0].strip()
    if name.startswith('"') and name.endswith('"') and len(name) > 1:
        name = _unquoted(name[1:-1])
    return name if name == NOWHERE else name.removeprefix(prefix)


def _unquoted(name: str) -> str:
    """Git writes odd names as in C, byte by byte."""
    raw = _QUOTED.sub(
        lambda m: bytes([int(m[1], 8) & 255]) if m[1].isdigit() else _LETTERS.get(m[1], m[1]), name.encode()
    )
    return raw.decode("utf-8", "surrogateescape")
