"""`write_file`, and atomic writes of several files: all of them or none."""

import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext
from alipes.runtime.beneath import create_file, facts_of, make_folders, replace_file, temporary_name
from alipes.tools.boundary import CallScope, FileBoundary, OpenedPath
from alipes.tools.common import CommitGate, run_in_thread
from alipes.tools.file_specs import WRITE_FILE
from alipes.tools.files.text_file import (
    MAX_TEXT_BYTES,
    TextDocument,
    diff_texts,
    display_path,
    error_reason,
    open_target,
    read_document,
)

log = logging.getLogger(__name__)


class FileChange(Struct, frozen=True):
    target: OpenedPath
    content: bytes | None
    """None: delete the file."""
    mode_from: os.stat_result | None = None
    """Take owner and mode from this file, as for a moved one."""


def write_files(changes: Sequence[FileChange], gate: CommitGate) -> None:
    """Write all changes or none. Raises `ToolError` if one fails; then nothing was changed.

    Everything slow, or that can fail for lack of space, happens before the gate. After it there are
    only renames, which are undone if one fails.
    """
    steps = [_PendingChange(change) for change in changes]
    whole = False
    try:
        for step in steps:
            with _translate_errors(step):
                step.stage()
        gate.enter()
        for step in steps:
            step.check_unchanged()
        for step in steps:
            with _translate_errors(step):
                step.commit(keep=len(steps) > 1)
        whole = True
    finally:
        for step in reversed(steps):
            if not whole:
                step.undo()
            step.clean_up()


class _PendingChange:
    """One change: staged beside its target, then renamed over it. Everything by the descriptor of the folder."""

    def __init__(self, change: FileChange) -> None:
        self.change, self.target = change, change.target
        self._made: list[tuple[int, str]] = []
        """Folders we created, outermost first: the folder around each, and its name."""
        self._folder = -1
        self._temporary = self._backup = ""
        self._is_committed = False

    def stage(self) -> None:
        self._folder = self._make_folders()
        if self.change.content is None:
            return
        self._temporary = temporary_name()
        mode = self.change.mode_from or self.target.facts
        with open(create_file(self._folder, self._temporary, 0o600 if mode else 0o666), "wb") as file:
            if mode is not None:
                _copy_owner_and_mode(file.fileno(), mode)
            file.write(self.change.content)
            file.flush()
            os.fsync(file.fileno())

    def check_unchanged(self) -> None:
        if _version(facts_of(self._folder, self.target.name)) != _version(self.target.facts):
            raise ToolError(f"{self.target.path} changed on disk; read it again")

    def commit(self, *, keep: bool) -> None:
        if self.target.facts is not None and (keep or self.change.content is None):
            kept = temporary_name()
            if self.change.content is None or not _try_link(self._folder, self.target.name, kept):
                replace_file(self._folder, self.target.name, kept)
            self._backup = kept
        if self.change.content is not None:
            replace_file(self._folder, self._temporary, self.target.name)
            self._temporary = ""
        self._is_committed = True

    def undo(self) -> None:
        try:
            if self._backup:
                replace_file(self._folder, self._backup, self.target.name)
                self._backup = ""
            elif self._is_committed:
                os.unlink(self.target.name, dir_fd=self._folder)
        except OSError as error:
            kept = f"; the old content is in {self._backup} beside it" if self._backup else ""
            log.error("%s could not be restored: %s%s", self.target.real, error, kept)
            self._backup = ""
        self._is_committed = False

    def clean_up(self) -> None:
        for name in (self._temporary, self._backup):
            if name:
                with _log_leftover(name):
                    os.unlink(name, dir_fd=self._folder)
        for folder, name in reversed(self._made):
            if not self._is_committed:
                with _log_leftover(name):
                    os.rmdir(name, dir_fd=folder)
            os.close(folder)
        if self._folder >= 0:
            os.close(self._folder)

    def _make_folders(self) -> int:
        """The folder of the file, made if needed."""
        folder = os.dup(self.target.folder)
        for name in self.target.missing:
            is_new = facts_of(folder, name) is None
            try:
                inner = make_folders(folder, (name,))
            except OSError:
                os.close(folder)
                raise
            if is_new:
                self._made.append((folder, name))
            else:
                os.close(folder)
            folder = inner
        return folder


def _try_link(folder: int, name: str, other: str) -> bool:
    """Back up with a hard link, so that the target is never missing. False if that is not supported."""
    try:
        os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _copy_owner_and_mode(handle: int, facts: os.stat_result) -> None:
    """Copy owner and mode of the replaced file; the mode last, because chown resets it."""
    ours = os.fstat(handle)
    if (ours.st_uid, ours.st_gid) != (facts.st_uid, facts.st_gid):
        try:
            os.fchown(handle, facts.st_uid, facts.st_gid)
        except PermissionError:
            log.info("cannot keep owner %d of a file; it now belongs to %d", facts.st_uid, ours.st_uid)
    os.fchmod(handle, stat.S_IMODE(facts.st_mode))


def _version(facts: os.stat_result | None) -> tuple[int, int, int, int] | None:
    """Changes when another process writes the file."""
    return None if facts is None else (facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size)


@contextmanager
def _translate_errors(step: _PendingChange) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        verb = "written" if step.change.content is not None else "deleted"
        raise ToolError(f"{step.target.path} cannot be {verb}: {error_reason(error)}. Nothing was changed.") from error


@contextmanager
def _log_leftover(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("cannot remove %s: %s", path, error)


class WriteFile:
    """The `write_file` tool. Readers always see the complete old or the complete new content."""

    spec = WRITE_FILE

    def __init__(self, boundary: FileBoundary, *, mask: Callable[[str], str] = str) -> None:
        """`mask` removes secrets from what is shown."""
        self._boundary, self._mask = boundary, mask

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        path, content = str(args["path"]), str(args["content"])
        summary, diff = await run_in_thread(partial(self._write, path, content, act))
        if diff:
            await act.progress(self._mask(diff))
        return summary

    def _write(self, path: str, content: str, act: CallScope, gate: CommitGate) -> tuple[str, str]:
        """Write the file; returns a summary and the diff."""
        with open_target(self._boundary, path, act) as target:
            return _write_target(target, content, act.workdir, gate)


def _write_target(target: OpenedPath, content: str, workdir: str, gate: CommitGate) -> tuple[str, str]:
    old, note = _read_old(target)
    new, data, reencoded = _encode_content(old, content, target)
    name = display_path(target.path, workdir)
    diff = diff_texts(old.text if old else "", new, before="" if target.facts is None else name, after=name)
    same = old is not None and new == old.text and not reencoded
    if not same:
        write_files([FileChange(target, data)], gate)
    notes = [f"through a link to {target.real}"] if target.is_link else []
    notes += [] if old is None or reencoded else [f"{trait} kept" for trait in old.unusual_traits]
    notes += [each for each in (note, reencoded) if each]
    if target.facts is not None and target.facts.st_nlink > 1 and not same:
        notes.append("its other hard links keep the old content")
    verb = "unchanged" if same else "created" if target.facts is None else "updated"
    lines = "" if same else f", {diff.summary} lines"
    return "; ".join([f"{verb} {name} ({len(data):,} bytes{lines})", *notes]), diff.text


def preview_write(path: str, content: str, boundary: FileBoundary, act: CallScope) -> str:
    """The whole diff that writing `content` would make. Raises `ToolError` if the file cannot be shown as text."""
    with open_target(boundary, path, act) as target:
        old = None if target.facts is None else read_document(target)
        new, _, _ = _encode_content(old, content, target)
        name = display_path(target.path, act.workdir)
        before = "" if target.facts is None else name
        return diff_texts(old.text if old else "", new, before=before, after=name, whole=True).text


def _read_old(target: OpenedPath) -> tuple[TextDocument | None, str]:
    """The old content, or a note why it cannot be read; such a file may still be replaced."""
    if target.facts is None:
        return None, ""
    if target.facts.st_size > MAX_TEXT_BYTES:
        return None, f"replaced {target.facts.st_size:,} bytes"
    try:
        return read_document(target), ""
    except ToolError:
        return None, "replaced a file that was not readable text"


def _encode_content(old: TextDocument | None, content: str, target: OpenedPath) -> tuple[str, bytes, str]:
    """Text to compare, its bytes, and a note if the encoding changed."""
    if old is not None:
        new = old.normalize_newlines(content) if old.crlf else content
        try:
            return new, old.encode(new), ""
        except UnicodeEncodeError:
            if old.codec.startswith("utf"):
                raise _surrogate_error(target) from None
    try:
        remark = "" if old is None else f"now UTF-8, was {old.codec}"
        return content, content.encode(), remark
    except UnicodeEncodeError:
        raise _surrogate_error(target) from None


def _surrogate_error(target: OpenedPath) -> ToolError:
    return ToolError(f"the content for {target.path} contains a lone surrogate (invalid Unicode)")
