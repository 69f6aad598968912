"""`patch`: edits text files by replacing a string or by applying a patch, all or nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Self

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext
from alipes.tools.boundary import CallScope, FileBoundary, OpenedPath, suggest_name
from alipes.tools.common import CommitGate, run_in_thread
from alipes.tools.file_specs import PATCH
from alipes.tools.files import patch_formats, text_file
from alipes.tools.files.hunks import apply_hunks, replace_text
from alipes.tools.files.write_file import FileChange, write_files


class EditedFile:
    """One file before and after the edit. Text None: the file does not exist."""

    def __init__(self, target: OpenedPath, name: str) -> None:
        self.target, self.name = target, name
        self.document = text_file.TextDocument() if target.facts is None else text_file.read_document(target)
        self.before = None if target.facts is None else self.document.text
        self.text = self.before
        self.moved_from: EditedFile | None = None
        self.notes: list[str] = [f"through a link to {target.real}"] if target.is_link else []

    @property
    def is_unchanged(self) -> bool:
        return self.text == self.before and (self.text is None or self.moved_from is None)

    def diff(self, *, whole: bool = False) -> text_file.FileDiff:
        source = self.moved_from or self
        before, after = source.name if source.before is not None else "", self.name if self.text is not None else ""
        return text_file.diff_texts(source.before or "", self.text or "", before=before, after=after, whole=whole)

    def summarize(self, diff: text_file.FileDiff) -> str:
        """One line for the model: what happened to the file."""
        line = f", line {diff.line}" if self.text is not None and self.before is not None else ""
        verb = "created" if self.before is None else "deleted" if self.text is None else "updated"
        action = f"moved {self.moved_from.name} to {self.name}" if self.moved_from else f"{verb} {self.name}"
        return "; ".join([f"{action} ({diff.summary}{line})", *self.notes])

    def to_change(self) -> FileChange:
        if self.text is None:
            return FileChange(self.target, None)
        like = self.moved_from.target.facts if self.moved_from else None
        try:
            return FileChange(self.target, self.document.encode(self.text), like)
        except UnicodeEncodeError:
            codec = self.document.codec
            why = "a lone surrogate" if codec.startswith("utf") else "characters it cannot encode"
            raise ToolError(f"{self.name} is encoded as {codec} and the new text contains {why}") from None


class PatchSession:
    """The files of one call, in memory, by real path: two names of one file are one entry."""

    def __init__(self, boundary: FileBoundary, act: CallScope) -> None:
        self._boundary, self._act = boundary, act
        self._files: dict[str, EditedFile] = {}
        self._named: dict[str, EditedFile] = {}
        """By path as it was written: what was opened first is what is changed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.target.close()

    def replace(self, path: str, old: str, new: str, *, everywhere: bool) -> None:
        file, text = self._open_existing(path)
        accept = file.document.normalize_newlines
        with _prefix_errors(file.name):
            done = replace_text(text, accept(old), accept(new), everywhere=everywhere)
        file.text = done.text
        if done.count > 1:
            file.notes.append(f"{done.count:,} replacements")
        if done.ignored:
            file.notes.append(f"matched ignoring {done.ignored}")

    def apply(self, edits: Sequence[patch_formats.FileEdit]) -> None:
        for edit in edits:
            match edit.kind:
                case "add":
                    file = self._open(edit.path)
                    if file.text is not None:
                        raise ToolError(f"{file.name} already exists; update it, or overwrite it with write_file")
                    file.text = edit.content
                case "delete":
                    file, _ = self._open_existing(edit.path)
                    _refuse_link(file)
                    file.text = None
                case "update":
                    self._update(edit)

    def changed_files(self) -> list[EditedFile]:
        return [file for file in self._files.values() if not file.is_unchanged]

    def _update(self, edit: patch_formats.FileEdit) -> None:
        file, text = self._open_existing(edit.path)
        if edit.hunks:
            with _prefix_errors(file.name):
                file.text, ignored = apply_hunks(text, edit.hunks)
            file.notes += [f"matched ignoring {each}" for each in ignored]
        if edit.move_to:
            self._move(file, edit.move_to)

    def _move(self, file: EditedFile, to: str) -> None:
        _refuse_link(file)
        destination = self._open(to)
        if destination.text is not None:
            raise ToolError(f"{file.name} cannot be moved: {destination.name} already exists")
        destination.text, destination.document, destination.notes = file.text, file.document, file.notes
        destination.moved_from = file.moved_from or file
        file.text = None

    def _open(self, path: str) -> EditedFile:
        if path not in self._named:
            target = text_file.open_target(self._boundary, path, self._act)
            if target.real in self._files:
                target.close()
            else:
                try:
                    self._files[target.real] = EditedFile(
                        target, text_file.display_path(target.path, self._act.workdir)
                    )
                except ToolError:
                    target.close()
                    raise
            self._named[path] = self._files[target.real]
        return self._named[path]

    def _open_existing(self, path: str) -> tuple[EditedFile, str]:
        file = self._open(path)
        if file.text is None:
            wanted = file.target.path
            missing = f" The directory {wanted.parent} does not exist." if file.target.missing else ""
            raise ToolError(f"{file.name} does not exist.{missing or suggest_name(file.target)}")
        return file, file.text


@contextmanager
def _prefix_errors(name: str) -> Iterator[None]:
    try:
        yield
    except ToolError as error:
        raise ToolError(f"{name}: {error}") from error


def _refuse_link(file: EditedFile) -> None:
    if file.target.is_link:
        raise ToolError(f"{file.name} is a link to {file.target.real}; use the terminal tool to move or delete it")


class Patch:
    """The `patch` tool. Tolerates small differences in the old text, but never ambiguity."""

    spec = PATCH

    def __init__(self, boundary: FileBoundary, *, mask: Callable[[str], str] = str) -> None:
        """`mask` removes secrets from what is shown."""
        self._boundary, self._mask = boundary, mask

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        fill = _build_replace(args) if args["mode"] == "replace" else _build_patch(args)
        try:
            session = PatchSession(self._boundary, act)
            summary, diff = await run_in_thread(partial(_apply_and_write, fill, session))
        except ToolError as error:  # it may quote the file
            raise ToolError(self._mask(str(error))) from error
        if diff:
            await act.progress(self._mask(diff))
        return summary


def patched_paths(args: Mapping[str, Json]) -> list[str]:
    """All paths that a call would write, move or delete; none if it is not a valid patch."""
    try:
        if args.get("mode") == "replace":
            return [str(args["path"])] if args.get("path") else []
        edits = _parse_edits(str(args.get("patch") or ""), str(args.get("path") or ""))
    except ToolError:
        return []
    return [path for edit in edits for path in (edit.path, edit.move_to) if path]


def preview_patch(args: Mapping[str, Json], boundary: FileBoundary, act: CallScope) -> str:
    """The whole diff that a call would make. Raises `ToolError` if it cannot be applied."""
    with PatchSession(boundary, act) as session:
        (_build_replace(args) if args.get("mode") == "replace" else _build_patch(args))(session)
        files = session.changed_files()
        moved = [file.moved_from for file in files if file.moved_from is not None]
        return "\n".join(file.diff(whole=True).text for file in files if file not in moved)


def _build_replace(args: Mapping[str, Json]) -> Callable[[PatchSession], None]:
    missing = [name for name in ("path", "old_string", "new_string") if not isinstance(args.get(name), str)]
    if missing:
        raise ToolError(f"mode replace needs {' and '.join(missing)}")
    old, new = str(args["old_string"]), str(args["new_string"])
    everywhere = args.get("replace_all") is True
    return lambda session: session.replace(str(args["path"]), old, new, everywhere=everywhere)


def _build_patch(args: Mapping[str, Json]) -> Callable[[PatchSession], None]:
    text = args.get("patch")
    if not isinstance(text, str) or not text.strip():
        raise ToolError("mode patch needs the parameter patch")
    edits = _parse_edits(text, str(args.get("path") or ""))

    def fill(session: PatchSession) -> None:
        try:
            session.apply(edits)
        except ToolError as error:
            raise ToolError(f"{error}\nNo file was changed.") from error

    return fill


def _parse_edits(text: str, path: str) -> list[patch_formats.FileEdit]:
    if patch_formats.is_envelope(text):
        return patch_formats.parse_envelope(text)
    if patch_formats.is_unified(text):
        return patch_formats.parse_unified(text)
    if path and any(line.startswith("@@") for line in text.split("\n")):
        return patch_formats.parse_bare_hunks(text, path)
    raise ToolError(
        "not a valid patch: use `*** Update File: path` between `*** Begin Patch` and `*** End Patch`,"
        " or a unified diff with `---`, `+++` and `@@` lines"
    )


def _apply_and_write(fill: Callable[[PatchSession], None], session: PatchSession, gate: CommitGate) -> tuple[str, str]:
    """Runs in a thread: apply and write all edits; returns the summary and the diff."""
    with session:
        fill(session)
        files = session.changed_files()
        if not files:
            raise ToolError("nothing to change: the files already have this content")
        moved = [file.moved_from for file in files if file.moved_from is not None]
        shown = [(file, file.diff()) for file in files if file not in moved]
        summary = "\n".join(file.summarize(diff) for file, diff in shown)
        write_files([file.to_change() for file in files], gate)
    return summary, "\n".join(diff.text for _, diff in shown if diff.text)
