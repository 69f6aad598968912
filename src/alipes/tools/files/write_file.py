"""Puts files in their places, all of them or none. Whoever reads one sees the old bytes or the new, whole."""

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
from alipes.kernel.ports import Act, ToolSpec
from alipes.tools.common import Gate, Places, aside
from alipes.tools.files.text_file import LARGEST, Diff, Document, Target, compare, find, read, reason, shown

log = logging.getLogger(__name__)


class Change(Struct, frozen=True):
    target: Target
    content: bytes | None
    """None: the file goes."""
    like: os.stat_result | None = None
    """Whose mode a new file takes, as when it was moved."""


def write(changes: Sequence[Change], gate: Gate) -> None:
    """Do them all. A ToolError says what failed, and that nothing was changed.

    Everything that can take long or fail for want of space happens before the gate;
    after it there are only renames, and those already made are undone when one fails.
    """
    steps = [_Step(change) for change in changes]
    whole = False
    try:
        for step in steps:
            with _complaining(step):
                step.stage()
        gate.enter()
        for step in steps:
            step.refuse_stale()
        for step in steps:
            with _complaining(step):
                step.commit(keep=len(steps) > 1)
        whole = True
    finally:
        for step in reversed(steps):
            if not whole:
                step.undo()
            step.tidy()


class _Step:
    """One change on its way: staged beside its place, then renamed into it."""

    def __init__(self, change: Change) -> None:
        self.change, self.target = change, change.target
        self._folder = os.path.dirname(change.target.real)
        self._made: list[str] = []
        """Folders that are there only because of us, outermost first."""
        self._temp = self._kept = ""
        self._done = False

    def stage(self) -> None:
        if self.change.content is None:
            return
        self._make_folders()
        self._temp = self._name()
        mode = self.change.like or self.target.facts
        with open(self._temp, "xb", opener=_private if mode else _usual) as file:
            if mode is not None:
                _adopt(file.fileno(), mode)
            file.write(self.change.content)
            file.flush()
            os.fsync(file.fileno())

    def refuse_stale(self) -> None:
        now = Target(self.target.named, self.target.real, _facts(self.target.real), self.target.link)
        if now.stamp != self.target.stamp:
            raise ToolError(f"{self.target.named} was changed by somebody else meanwhile; read it again")

    def commit(self, *, keep: bool) -> None:
        if self.target.facts is not None and (keep or self.change.content is None):
            self._set_aside()
        if self.change.content is not None:
            os.replace(self._temp, self.target.real)
            self._temp = ""
        self._done = True

    def undo(self) -> None:
        try:
            if self._kept:
                os.replace(self._kept, self.target.real)
                self._kept = ""
            elif self._done:
                os.unlink(self.target.real)
        except OSError as error:
            kept = f"; its old content is in {self._kept}" if self._kept else ""
            log.error("%s could not be put back: %s%s", self.target.real, error, kept)
            self._kept = ""
        self._done = False

    def tidy(self) -> None:
        for path in (self._temp, self._kept):
            if path:
                with _unless_gone(path):
                    os.unlink(path)
        if not self._done:
            for folder in reversed(self._made):
                with _unless_gone(folder):
                    os.rmdir(folder)

    def _set_aside(self) -> None:
        kept = self._name()
        if self.change.content is None or not _linked(self.target.real, kept):
            os.rename(self.target.real, kept)
        self._kept = kept

    def _make_folders(self) -> None:
        missing, folder = [], self._folder
        while not os.path.lexists(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for folder in reversed(missing):
            os.mkdir(folder)
            self._made.append(folder)

    def _name(self) -> str:
        return os.path.join(self._folder, f".alipes-{secrets.token_hex(6)}.tmp")


def _linked(path: str, other: str) -> bool:
    """Give the file a second name, so that its first is never missing; not every file system can."""
    try:
        os.link(path, other)
    except OSError:
        return False
    return True


def _usual(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _adopt(handle: int, facts: os.stat_result) -> None:
    """Take on owner and mode of the file to be replaced; the mode last, for a new owner resets it."""
    ours = os.fstat(handle)
    if (ours.st_uid, ours.st_gid) != (facts.st_uid, facts.st_gid):
        try:
            os.fchown(handle, facts.st_uid, facts.st_gid)
        except PermissionError:
            log.info("a file of user %d is now one of user %d", facts.st_uid, ours.st_uid)
    os.fchmod(handle, stat.S_IMODE(facts.st_mode))


def _facts(path: str) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=False)
    except OSError:
        return None


@contextmanager
def _complaining(step: _Step) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        verb = "written" if step.change.content is not None else "deleted"
        raise ToolError(
            f"{step.target.named} cannot be {verb}: {reason(error)}. Nothing was changed."
        ) from error


@contextmanager
def _unless_gone(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("%s stays behind: %s", path, error)


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
