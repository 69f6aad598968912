"""`write_file`, and atomic writes of several files: all of them or none."""

import logging
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolSpec
from alipes.tools.common import CommitGate, Places, make_schema, run_in_thread
from alipes.tools.files.text_file import (
    MAX_TEXT_BYTES,
    FileTarget,
    TextDocument,
    diff_texts,
    display_path,
    error_reason,
    read_document,
    resolve_target,
)

log = logging.getLogger(__name__)


class FileChange(Struct, frozen=True):
    target: FileTarget
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
    """One change: staged beside its target, then renamed over it."""

    def __init__(self, change: FileChange) -> None:
        self.change, self.target = change, change.target
        self._folder = os.path.dirname(change.target.real)
        self._created_folders: list[str] = []
        """Folders we created, outermost first."""
        self._temporary = self._backup = ""
        self._is_committed = False

    def stage(self) -> None:
        if self.change.content is None:
            return
        self._make_folders()
        self._temporary = self._temporary_name()
        mode = self.change.mode_from or self.target.stat
        with open(self._temporary, "xb", opener=partial(_open, mode=0o600 if mode else 0o666)) as file:
            if mode is not None:
                _copy_owner_and_mode(file.fileno(), mode)
            file.write(self.change.content)
            file.flush()
            os.fsync(file.fileno())

    def check_unchanged(self) -> None:
        if _version(_stat(self.target.real)) != _version(self.target.stat):
            raise ToolError(f"{self.target.path} changed on disk; read it again")

    def commit(self, *, keep: bool) -> None:
        if self.target.stat is not None and (keep or self.change.content is None):
            kept = self._temporary_name()
            if self.change.content is None or not _try_link(self.target.real, kept):
                os.rename(self.target.real, kept)
            self._backup = kept
        if self.change.content is not None:
            os.replace(self._temporary, self.target.real)
            self._temporary = ""
        self._is_committed = True

    def undo(self) -> None:
        try:
            if self._backup:
                os.replace(self._backup, self.target.real)
                self._backup = ""
            elif self._is_committed:
                os.unlink(self.target.real)
        except OSError as error:
            kept = f"; the old content is in {self._backup}" if self._backup else ""
            log.error("%s could not be restored: %s%s", self.target.real, error, kept)
            self._backup = ""
        self._is_committed = False

    def clean_up(self) -> None:
        for path in (self._temporary, self._backup):
            if path:
                with _log_leftover(path):
                    os.unlink(path)
        if not self._is_committed:
            for folder in reversed(self._created_folders):
                with _log_leftover(folder):
                    os.rmdir(folder)

    def _make_folders(self) -> None:
        missing, folder = [], self._folder
        while not os.path.lexists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for folder in reversed(missing):
            os.mkdir(folder)
            self._created_folders.append(folder)

    def _temporary_name(self) -> str:
        return os.path.join(self._folder, f".alipes-{secrets.token_hex(6)}.tmp")


def _try_link(path: str, other: str) -> bool:
    """Back up with a hard link, so that the target is never missing. False if that is not supported."""
    try:
        os.link(path, other)
    except OSError:
        return False
    return True


def _open(path: str, flags: int, *, mode: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)


def _copy_owner_and_mode(handle: int, facts: os.stat_result) -> None:
    """Copy owner and mode of the replaced file; the mode last, because chown resets it."""
    ours = os.fstat(handle)
    if (ours.st_uid, ours.st_gid) != (facts.st_uid, facts.st_gid):
        try:
            os.fchown(handle, facts.st_uid, facts.st_gid)
        except PermissionError:
            log.info("cannot keep owner %d of a file; it now belongs to %d", facts.st_uid, ours.st_uid)
    os.fchmod(handle, stat.S_IMODE(facts.st_mode))


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except OSError:
        return None


def _version(facts: os.stat_result | None) -> tuple[int, int, int] | None:
    """Changes when another process writes the file."""
    return None if facts is None else (facts.st_ino, facts.st_mtime_ns, facts.st_size)


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

    spec = ToolSpec(
        name="write_file",
        description="Create or overwrite a text file, with its directories.",
        schema=make_schema("path content", path="string", content="string"),
    )

    def __init__(self, places: Places, *, mask: Callable[[str], str] = str) -> None:
        """`mask` removes secrets from what is shown."""
        self._places, self._mask = places, mask

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        path, content = str(args["path"]), str(args["content"])
        summary, diff = await run_in_thread(partial(self._write, path, content, act.workdir))
        if diff:
            await act.progress(self._mask(diff))
        return summary

    def _write(self, path: str, content: str, workdir: str, gate: CommitGate) -> tuple[str, str]:
        """Write the file; returns a summary and the diff."""
        target = resolve_target(self._places, path, workdir)
        old, note = _read_old(target)
        new, data, reencoded = _encode_content(old, content, target)
        name = display_path(target.path, workdir)
        diff = diff_texts(old.text if old else "", new, before="" if target.stat is None else name, after=name)
        same = old is not None and new == old.text and not reencoded
        if not same:
            write_files([FileChange(target, data)], gate)
        notes = [f"through a link to {target.real}"] if target.is_link else []
        notes += [] if old is None or reencoded else [f"{trait} kept" for trait in old.unusual_traits]
        notes += [each for each in (note, reencoded) if each]
        if target.stat is not None and target.stat.st_nlink > 1 and not same:
            notes.append("its other hard links keep the old content")
        verb = "unchanged" if same else "created" if target.stat is None else "updated"
        lines = "" if same else f", {diff.summary} lines"
        return "; ".join([f"{verb} {name} ({len(data):,} bytes{lines})", *notes]), diff.text


def preview_write(path: str, content: str, places: Places, workdir: str) -> str:
    """The whole diff that writing `content` would make. Raises `ToolError` if the file cannot be shown as text."""
    target = resolve_target(places, path, workdir)
    old = None if target.stat is None else read_document(target)
    new, _, _ = _encode_content(old, content, target)
    name = display_path(target.path, workdir)
    before = "" if target.stat is None else name
    return diff_texts(old.text if old else "", new, before=before, after=name, whole=True).text


def _read_old(target: FileTarget) -> tuple[TextDocument | None, str]:
    """The old content, or a note why it cannot be read; such a file may still be replaced."""
    if target.stat is None:
        return None, ""
    if target.stat.st_size > MAX_TEXT_BYTES:
        return None, f"replaced {target.stat.st_size:,} bytes"
    try:
        return read_document(target), ""
    except ToolError:
        return None, "replaced a file that was not readable text"


def _encode_content(old: TextDocument | None, content: str, target: FileTarget) -> tuple[str, bytes, str]:
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


def _surrogate_error(target: FileTarget) -> ToolError:
    return ToolError(f"the content for {target.path} contains a lone surrogate (invalid Unicode)")
