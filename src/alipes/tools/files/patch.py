"""Files on the desk: read once, changed in memory, compared at the end. What is on disk stays as it is."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, ToolSpec
from alipes.tools.common import Gate, Places, aside
from alipes.tools.files.hunks import apply_hunks, replace
from alipes.tools.files.patch_formats import (
    FileEdit,
    is_envelope,
    is_unified,
    read_bare,
    read_envelope,
    read_unified,
)
from alipes.tools.files.text_file import Diff, Document, Target, compare, find, read, shown
from alipes.tools.files.write_file import Change, write


class Sheet:
    """One file: as it was found, and as it shall be. Text None: no file."""

    def __init__(self, target: Target, name: str) -> None:
        self.target, self.name = target, name
        self.form = Document() if target.facts is None else read(target)
        self.before = None if target.facts is None else self.form.text
        self.text = self.before
        self.origin: Sheet | None = None
        """The file it was moved from."""
        self.remarks: list[str] = [f"through the link, into {target.real}"] if target.link else []

    @property
    def stays(self) -> bool:
        return self.text == self.before and (self.text is None or self.origin is None)

    @property
    def diff(self) -> Diff:
        source = self.origin or self
        before = "/dev/null" if source.before is None else f"a/{source.name.lstrip('/')}"
        after = "/dev/null" if self.text is None else f"b/{self.name.lstrip('/')}"
        return compare(source.before or "", self.text or "", before=before, after=after)

    def told(self, diff: Diff) -> str:
        """One line for the model: what happened to it."""
        line = f", line {diff.line}" if self.text is not None and self.before is not None else ""
        return "; ".join([f"{self._verb()} ({diff.summary}{line})", *self.remarks])

    def change(self) -> Change:
        if self.text is None:
            return Change(self.target, None)
        like = self.origin.target.facts if self.origin else None
        try:
            return Change(self.target, self.form.encode(self.text), like)
        except UnicodeEncodeError:
            codec = self.form.codec
            why = "half a character" if codec.startswith("utf") else f"characters that are not in {codec}"
            raise ToolError(f"{self.name} is written in {codec} and the new text has {why}") from None

    def _verb(self) -> str:
        if self.origin is not None:
            return f"moved {self.origin.name} to {self.name}"
        verb = "created" if self.before is None else "deleted" if self.text is None else "updated"
        return f"{verb} {self.name}"


class Desk:
    """The files of one call, by where they really are: two names of one file are one sheet."""

    def __init__(self, places: Places, workdir: str) -> None:
        self._places, self._workdir = places, workdir
        self._sheets: dict[str, Sheet] = {}

    def replace(self, path: str, old: str, new: str, *, everywhere: bool) -> None:
        sheet, text = self._present(path)
        accept = sheet.form.accept
        with _naming(sheet.name):
            done = replace(text, accept(old), accept(new), everywhere=everywhere)
        sheet.text = done.text
        if done.count > 1:
            sheet.remarks.append(f"{done.count:,} places")
        if done.overlooked:
            sheet.remarks.append(f"matched regardless of {done.overlooked}")

    def apply(self, edits: Sequence[FileEdit]) -> None:
        for edit in edits:
            match edit.kind:
                case "add":
                    self._add(edit)
                case "delete":
                    sheet, _ = self._present(edit.path)
                    _refuse_link(sheet)
                    sheet.text = None
                case "update":
                    self._update(edit)

    def changed(self) -> list[Sheet]:
        return [sheet for sheet in self._sheets.values() if not sheet.stays]

    def _add(self, edit: FileEdit) -> None:
        sheet = self._sheet(edit.path)
        if sheet.text is not None:
            raise ToolError(f"{sheet.name} is there already; update it, or use write_file to replace it")
        sheet.text = edit.content

    def _update(self, edit: FileEdit) -> None:
        sheet, text = self._present(edit.path)
        if edit.hunks:
            with _naming(sheet.name):
                sheet.text, overlooked = apply_hunks(text, edit.hunks)
            sheet.remarks += [f"matched regardless of {each}" for each in overlooked]
        if edit.to:
            self._move(sheet, edit.to)

    def _move(self, sheet: Sheet, to: str) -> None:
        _refuse_link(sheet)
        goal = self._sheet(to)
        if goal.text is not None:
            raise ToolError(f"{sheet.name} cannot be moved: {goal.name} is there already")
        goal.text, goal.form, goal.remarks = sheet.text, sheet.form, sheet.remarks
        goal.origin = sheet.origin or sheet
        sheet.text = None

    def _sheet(self, path: str) -> Sheet:
        target = find(self._places, path, self._workdir)
        if target.real not in self._sheets:
            self._sheets[target.real] = Sheet(target, shown(target.named, self._workdir))
        return self._sheets[target.real]

    def _present(self, path: str) -> tuple[Sheet, str]:
        sheet = self._sheet(path)
        if sheet.text is None:
            raise ToolError(f"there is no {sheet.name}.{_instead(sheet.target)}")
        return sheet, sheet.text


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except ToolError as error:
        raise ToolError(f"{name}: {error}") from error


def _refuse_link(sheet: Sheet) -> None:
    if sheet.target.link:
        raise ToolError(
            f"{sheet.name} is a link to {sheet.target.real}; use the terminal to move or delete it"
        )


def _instead(target: Target) -> str:
    try:
        return did_you_mean(target.named.name, os.listdir(target.named.parent))
    except OSError:
        return f" There is no folder {target.named.parent}."


class Patch:
    """The `patch` tool. Small lapses in remembering the text are forgiven, two meanings never."""

    spec = ToolSpec(
        name="patch",
        description="Edit text files. mode=replace: in path, old_string (there only once) becomes new_string."
        " mode=patch: apply a unified diff or `*** Begin Patch` to any number of files, all or nothing.",
        schema={
            "type": "object",
            "properties": {
                "mode": {"type": "string", "enum": ["replace", "patch"]},
                "path": {"type": "string"},
                "old_string": {"type": "string"},
                "new_string": {"type": "string"},
                "replace_all": {"type": "boolean"},
                "patch": {"type": "string"},
            },
            "required": ["mode"],
        },
    )

    def __init__(self, places: Places, *, mask: Callable[[str], str] = str) -> None:
        """`mask` takes secrets out of what is shown."""
        self._places, self._mask = places, mask

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        fill = _replacing(args) if args["mode"] == "replace" else _patching(args)
        try:
            told, diff = await aside(partial(_done, fill, Desk(self._places, act.workdir)))
        except ToolError as error:  # it may quote the file
            raise ToolError(self._mask(str(error))) from error
        if diff:
            await act.progress(self._mask(diff))
        return told


def touched(args: Mapping[str, Json]) -> list[str]:
    """Every path that a call would write, move or delete, for whoever has to allow it; none for no patch."""
    try:
        if args.get("mode") == "replace":
            return [str(args["path"])] if args.get("path") else []
        edits = _edits(str(args.get("patch") or ""), str(args.get("path") or ""))
    except ToolError:
        return []
    return [path for edit in edits for path in (edit.path, edit.to) if path]


def _replacing(args: Mapping[str, Json]) -> Callable[[Desk], None]:
    missing = [name for name in ("path", "old_string", "new_string") if not isinstance(args.get(name), str)]
    if missing:
        raise ToolError(f"mode replace needs {' and '.join(missing)}")
    old, new = str(args["old_string"]), str(args["new_string"])
    everywhere = args.get("replace_all") is True
    return lambda desk: desk.replace(str(args["path"]), old, new, everywhere=everywhere)


def _patching(args: Mapping[str, Json]) -> Callable[[Desk], None]:
    text = args.get("patch")
    if not isinstance(text, str) or not text.strip():
        raise ToolError("mode patch needs patch: the text of the patch")
    edits = _edits(text, str(args.get("path") or ""))

    def fill(desk: Desk) -> None:
        try:
            desk.apply(edits)
        except ToolError as error:
            raise ToolError(f"{error}\nNo file was changed.") from error

    return fill


def _edits(text: str, path: str) -> list[FileEdit]:
    if is_envelope(text):
        return read_envelope(text)
    if is_unified(text):
        return read_unified(text)
    if path and any(line.startswith("@@") for line in text.split("\n")):
        return read_bare(text, path)
    raise ToolError(
        "this is no patch: it needs lines like `*** Update File: path` between `*** Begin Patch` and"
        " `*** End Patch`, or the `---`, `+++` and `@@` lines of a unified diff"
    )


def _done(fill: Callable[[Desk], None], desk: Desk, gate: Gate) -> tuple[str, str]:
    """In a thread: do it all; what is to be said of it, and the diff."""
    fill(desk)
    sheets = desk.changed()
    if not sheets:
        raise ToolError("nothing would change: the files are already as they would become")
    moved = [sheet.origin for sheet in sheets if sheet.origin is not None]
    shown = [(sheet, sheet.diff) for sheet in sheets if sheet not in moved]
    told = "\n".join(sheet.told(diff) for sheet, diff in shown)
    write([sheet.change() for sheet in sheets], gate)
    return told, "\n".join(diff.text for _, diff in shown if diff.text)
