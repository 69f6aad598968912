"""Puts files in their places, all of them or none. Whoever reads one sees the old bytes or the new, whole."""

import logging
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.tools.aside import Gate
from alipes.tools.documents import Target, reason

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
