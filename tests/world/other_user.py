"""Runs Python as a user without rights, for tests that root runs."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.world.environment import FIXED, ROOT

NOBODY = 65534
PYTHON = "/usr/bin/python3"
"""That of a virtual environment may be out of reach for other users."""


@contextmanager
def folder_of_nobody() -> Iterator[str]:
    """A folder for that user, with a short name. Skips the test where nobody can become that user."""
    if os.getuid() or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, with setpriv")
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        os.chown(folder, NOBODY, NOBODY)
        if run_as_nobody(("-c", "import msgspec._core, pytest, tests.world.environment"), folder).returncode:
            pytest.skip("the system's Python cannot import the packages of the tests")
        yield folder


def run_as_nobody(
    arguments: Sequence[str], folder: str, *, cwd: Path = Path("/")
) -> subprocess.CompletedProcess[bytes]:
    """Run Python with these arguments; `folder` is the home."""
    path = ":".join((str(ROOT / "src"), str(ROOT), *(entry for entry in sys.path if "site-packages" in entry)))
    variables = {"PATH": os.environ["PATH"], "HOME": folder, "TMPDIR": folder, "PYTHONPATH": path, **FIXED}
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    return subprocess.run((*user, PYTHON, *arguments), env=variables, cwd=cwd, capture_output=True)
