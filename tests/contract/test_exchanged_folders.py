"""While commands run, another process exchanges a folder of the project with a link that leads out, all the time."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from alipes.runtime.sandbox.backend import CommandScope
from tests.world.sandboxes import SANDBOXES, open_backend, open_machine

COMMANDS = 40
PATH = "/usr/bin:/bin"
CANARY = "canary-of-the-home"
EXCHANGE = """
import ctypes, os, sys, time
libc, names = ctypes.CDLL(None), [os.fsencode(path) for path in sys.argv[1:]]
print("up", flush=True)
while os.getppid() != 1:
    libc.renameat2(-100, names[0], -100, names[1], 2)
    time.sleep(0.002)
"""
TRY = (
    "cat d/id_rsa d/.env d/.bashrc d/database; for name in planted .bashrc .env; do echo planted >> d/$name; done; true"
)


@contextmanager
def exchanged(first: Path, second: Path) -> Iterator[None]:
    """Meanwhile the two change places every two milliseconds."""
    argv = [sys.executable, "-I", "-c", EXCHANGE, str(first), str(second)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


@pytest.mark.deadline(240)
@pytest.mark.parametrize("target", [".ssh", ".", ".alipes"])
@pytest.mark.parametrize("name", [*SANDBOXES])
async def test_folder_exchanged_with_a_link_shows_and_opens_nothing_outside(name, target, tmp_path):
    home = tmp_path / "home"
    project, outside = home / "project", (home / target).resolve()
    for folder in (project / "d", outside):
        folder.mkdir(parents=True, exist_ok=True)
    for file in ("id_rsa", ".bashrc", ".env", "database"):
        (outside / file).write_text(CANARY)
    (project / "d" / ".env").write_text("KEY=secret-of-the-project")
    (project / "link").symlink_to(outside)
    before = {path.name: path.read_text() for path in outside.iterdir() if path.is_file()}
    output, finished = b"", 0
    with open_machine(name, tmp_path):
        async with open_backend(name, home=home) as backend:
            scope, env = CommandScope("s1", str(project)), {"PATH": PATH, "HOME": str(home)}
            with exchanged(project / "d", project / "link"):
                for _ in range(COMMANDS):
                    with suppress(OSError):  # what has changed meanwhile is an error, not another target
                        async with backend.open(TRY, scope, cwd=str(project), env=env) as child:
                            while piece := await child.read():
                                output += piece
                            finished += await child.wait() == 0
    assert CANARY not in output.decode(errors="replace")
    assert {path.name: path.read_text() for path in outside.iterdir() if path.is_file()} == before
    assert finished > 0
