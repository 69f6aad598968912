"""Write a whole file. Changing a part of one is the business of `patch`."""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec
from alipes.tools.aside import Gate, aside
from alipes.tools.diffs import Diff, compare
from alipes.tools.documents import LARGEST, Document, Target, find, read, shown
from alipes.tools.paths import Places
from alipes.tools.writing import Change, write


class WriteFile:
    """The `write_file` tool: the file has all of the new content or all of the old, at every moment."""

    spec = ToolSpec(
        name="write_file",
        description="Create or replace a whole text file; missing folders are made.",
        schema={
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
    )

    def __init__(self, places: Places, *, mask: Callable[[str], str] = str) -> None:
        """`mask` takes secrets out of what is shown."""
        self._places, self._mask = places, mask

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        path, content = str(args["path"]), str(args["content"])
        written = await aside(partial(self._write, path, content, act.workdir))
        if written.diff.text:
            await act.progress(self._mask(written.diff.text))
        return _told(written, act.workdir)

    def _write(self, path: str, content: str, workdir: str, gate: Gate) -> "_Written":
        target = find(self._places, path, workdir)
        old, note = _before(target)
        new, data, reencoded = _bytes(old, content, target)
        name = shown(target.named, workdir)
        before = "/dev/null" if target.facts is None else f"a/{name.lstrip('/')}"
        diff = compare(old.text if old else "", new, before=before, after=f"b/{name.lstrip('/')}")
        same = old is not None and new == old.text and not reencoded
        if not same:
            write([Change(target, data)], gate)
        traits = [] if old is None or reencoded else [f"{trait} kept" for trait in old.traits]
        return _Written(target, data, diff, [*traits, *(n for n in (note, reencoded) if n)], same)


class _Written(Struct, frozen=True):
    target: Target
    data: bytes
    diff: Diff
    notes: list[str]
    same: bool


def _before(target: Target) -> tuple[Document | None, str]:
    """What was there, or why that is not known: a file may be replaced that cannot be compared."""
    if target.facts is None:
        return None, ""
    if target.facts.st_size > LARGEST:
        return None, f"{target.facts.st_size:,} bytes were there before"
    try:
        return read(target), ""
    except ToolError:
        return None, "what was there before was no readable text"


def _bytes(old: Document | None, content: str, target: Target) -> tuple[str, bytes, str]:
    """The text as it is compared, its bytes, and a remark when they cannot be those of the old file."""
    if old is not None:
        new = old.accept(content) if old.crlf else content
        try:
            return new, old.encode(new), ""
        except UnicodeEncodeError:
            if old.codec.startswith("utf"):
                raise _unsayable(target) from None
    try:
        remark = "" if old is None else f"now UTF-8, was {old.codec}"
        return content, content.encode(), remark
    except UnicodeEncodeError:
        raise _unsayable(target) from None


def _unsayable(target: Target) -> ToolError:
    return ToolError(f"the content for {target.named} has half a character in it (a lone surrogate)")


def _told(written: _Written, workdir: str) -> str:
    target, notes = written.target, list(written.notes)
    if target.link:
        notes.insert(0, f"through the link, into {target.real}")
    if target.facts is not None and target.facts.st_nlink > 1 and not written.same:
        notes.append("its other hard links keep the old content")
    verb = "unchanged" if written.same else "created" if target.facts is None else "updated"
    size = f"{len(written.data):,} bytes"
    what = size if written.same else f"{size}, {written.diff.summary} lines"
    return "; ".join([f"{verb} {shown(target.named, workdir)} ({what})", *notes])
