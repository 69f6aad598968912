"""A hostile process that exchanges a folder and a link all the time, as a command in a sandbox could."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """
import ctypes, os, select, sys, time
libc = ctypes.CDLL(None, use_errno=True)
one, other, pause = map(os.fsencode, sys.argv[1:])
def exchange():
    if libc.renameat2(-100, one, -100, other, 2):
        sys.exit(os.strerror(ctypes.get_errno()))
exchange()
os.write(1, b"x")
while not select.select((0,), (), (), float(pause))[0]:
    exchange()
"""


@contextmanager
def exchanging(one: Path, other: Path, pause_s: float = 0.0005) -> Iterator[None]:
    """Exchange two names until the end of the block; the first exchange has happened when it begins."""
    argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(one), str(other), str(pause_s)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            assert child.stdout.read(1), "the two names could not be exchanged"
            yield
        finally:
            child.stdin.close()
            child.wait()
