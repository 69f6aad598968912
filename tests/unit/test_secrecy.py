"""What others can read of a process: neither what it was started with, nor, unless they are root, its memory."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
CANARY = "canary-started-with-51ac"
WITHOUT_RIGHTS = "import ctypes; [ctypes.CDLL(None).prctl(24, number, 0, 0, 0) for number in range(64)]"
"""Root without what makes it root: no capability is left after the next `exec`."""
PROGRAM = f"""
import os, subprocess, sys
from alipes.config.variables import inherited, resettle
from alipes.runtime.secrecy import close_memory, wipe_environment
names = resettle(lambda name, value: "canary" in value)
assert wipe_environment(names) and names == ["THE_KEY"], names
if "open" not in sys.argv: assert close_memory()
assert inherited()["THE_KEY"] == os.environ["THE_KEY"] == {CANARY!r}
told = subprocess.run(["sh", "-c", "echo $THE_KEY $OTHER"], capture_output=True, text=True).stdout.split()
assert told == [{CANARY!r}, "plain"], "whoever inherits it still does"
looks = "import os; print(open(f'/proc/{{os.getppid()}}/environ', 'rb').read())"
print(subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, env={{}}))
looks = "import os; open(f'/proc/{{os.getppid()}}/mem', 'rb'); print('in')"
print(subprocess.run([sys.executable, "-c", looks], capture_output=True, text=True, env={{}}))
"""


def run(*words: str, drop: bool = False) -> str:
    program = [sys.executable, "-c", PROGRAM, *words]
    if drop:
        program = [
            sys.executable,
            "-c",
            f"{WITHOUT_RIGHTS}; import os, sys; os.execv(sys.argv[1], sys.argv[1:])",
            *program,
        ]
    env = {**os.environ, "THE_KEY": CANARY, "OTHER": "plain"}
    done = subprocess.run(program, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_child_does_not_see_what_we_were_started_with_not_even_as_root():
    told = run("open")
    assert CANARY not in told
    assert "OTHER=plain" in told and "THE_KEY=" + "*" * len(CANARY) in told


def test_a_child_that_is_not_root_looks_neither_into_our_environment_nor_our_memory():
    told = run(drop=True)
    assert CANARY not in told and "OTHER=plain" not in told
    assert told.count("PermissionError") == 2
