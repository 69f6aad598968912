"""A hostile process that exchanges names with links all the time, as a command in a sandbox could."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PROGRAM = """
import ctypes, os, select, sys, time
libc = ctypes.CDLL(None, use_errno=True)
pause, *names = map(os.fsencode, sys.argv[1:])
pairs = list(zip(names[::2], names[1::2]))
def exchange(pair):
    return not libc.renameat2(-100, pair[0], -100, pair[1], 2)
if not any([exchange(pair) for pair in pairs]):
    sys.exit(os.strerror(ctypes.get_errno()))
os.write(1, b"x")
turn = 0
while not select.select((0,), (), (), float(pause))[0]:
    exchange(pairs[turn % len(pairs)])
    turn += 1
"""


@contextmanager
def exchanging(one: Path, other: Path, pause_s: float = 0.0005) -> Iterator[None]:
    """Exchange two names until the end of the block; the first exchange has happened when it begins."""
    with exchanging_all([(one, other)], pause_s):
        yield


@contextmanager
def exchanging_all(pairs: Sequence[tuple[Path, Path]], pause_s: float = 0.0005) -> Iterator[None]:
    """Exchange the names of each pair in turn. A pair of which one is missing for the moment is left out."""
    names = [str(path) for pair in pairs for path in pair]
    argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(pause_s), *names]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            assert child.stdout.read(1), "the two names could not be exchanged"
            yield
        finally:
            child.stdin.close()
            child.wait()
