"""What a test leaves behind outside of this process: in the temporary folder, and as processes that are nobody's
children any more. Each worker has a temporary folder of its own, so what lies there was put there by its tests."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from alipes.testing.counting import Look, Tell, command

TMPDIR = "TMPDIR"


class Leftovers:
    """Looks for what was left in `folder`, and for who was started with it for a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = f"{TMPDIR}={folder}\0".encode()
        self.looks: dict[str, Look] = {"files": self.files, "strays": self.strays}

    def files(self) -> Iterator[tuple[str, Tell]]:
        for name in os.listdir(self.folder):
            yield name, partial(_file, self.folder / name)

    def strays(self) -> Iterator[tuple[str, Tell]]:
        """Everybody there is; who is none of ours turns out to be nobody when told of."""
        for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
            if name.isdecimal():
                yield name, partial(self._stray, name)

    def _stray(self, pid: str) -> str:
        with suppress(OSError):
            if self._mark in Path("/proc", pid, "environ").read_bytes():
                return f"{pid}: {command(pid)}"
        return ""


def _file(path: Path) -> str:
    inside = sorted(each.name for each in path.iterdir()) if path.is_dir() else ()
    return f"{path} {' '.join(inside)}"[:200].strip()


@contextmanager
def own_temporary_folder() -> Iterator[Path]:
    """This process and those it starts put temporary files here. It is gone at the end."""
    with tempfile.TemporaryDirectory(prefix="at-") as name, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # folders of tests stay where they are
        patch.setenv(TMPDIR, name)
        patch.setattr(tempfile, "tempdir", None)
        yield Path(name)
