"""A disk of a few megabytes that a test fills: a mounted tmpfs, so only root can make one."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.world.environment import require, skip

CHUNK = bytes(1 << 16)


class SmallDisk:
    """The disk at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    @property
    def free_bytes(self) -> int:
        facts = os.statvfs(self.folder)
        return facts.f_bavail * facts.f_frsize

    def fill(self) -> None:
        """Use all of its space; also what became free since the last call."""
        with suppress(OSError), open(self._ballast, "ab", buffering=0) as ballast:
            while ballast.write(CHUNK):
                pass

    def free(self) -> None:
        """Undo `fill`."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mount_small_disk(megabytes: int, owner: int = 0) -> Iterator[SmallDisk]:
    """A disk that belongs to the user `owner`; it is unmounted at the end, also if a program still uses it."""
    if os.geteuid():
        skip("only root may mount a small disk")
    program = require("mount", "Debian's package mount")
    with tempfile.TemporaryDirectory(prefix="small-disk-") as name:
        os.chmod(name, 0o755)
        options = f"size={megabytes}m,mode=700,uid={owner}"
        mounted = subprocess.run(
            [program, "-t", "tmpfs", "-o", options, "small", name], capture_output=True, check=False
        )
        if mounted.returncode:
            skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
        try:
            yield SmallDisk(Path(name))
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)
