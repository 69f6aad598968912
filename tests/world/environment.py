"""What programs that tests start see of this machine: their environment variables, and the programs on their PATH.

Nothing here depends on who runs the tests: no keys, proxies, locale or Git settings of theirs, and no model server
that happens to listen on this machine.
"""

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = Path(os.environ.get("ALIPES_SERVICES") or ROOT / ".services")
"""Where `make services` installs what is not a Debian package."""
PATIENCE = float(os.environ.get("ALIPES_TEST_PATIENCE") or 1)
"""Multiplies every time limit of the tests."""
LIMIT_S = 60.0 * PATIENCE
"""A test fails if something that it waits for takes longer. Never a measurement: a loaded machine is slow."""

OPTIONAL = ("rg", "bwrap", "git")
"""Programs that alipes uses if they are installed, and names on its first screen if they are not."""
BASIC = """
sh bash env true false test [ echo printf printenv sleep timeout kill cat head tail tee wc sort uniq cut tr seq yes
od nl grep sed awk ls pwd cp mv rm ln mkdir rmdir mkfifo touch chmod stat find xargs dd df du diff cmp date id whoami
uname basename dirname readlink realpath mktemp ps pgrep setsid nohup nice stty tty script base64 sha256sum tar gzip
"""
"""Programs of any Unix, which every test may count on."""
SIGNALS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGTSTP)
KEPT = (
    "PATH",
    "TMPDIR",
    "VIRTUAL_ENV",
    "ALIPES_REQUIRE_SERVICES",
    "ALIPES_SERVICES",
    "ALIPES_FUZZ",
    "ALIPES_SIMULATION",
)
KEPT_PREFIXES = ("PYTEST_", "PYTHON", "COVERAGE", "ALIPES_TEST", "ALIPES_TORTURE")
FIXED = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_TERMINAL_PROMPT": "0",
    "PIP_CONFIG_FILE": os.devnull,
    "ALIPES_LOCAL_SERVERS": "false",
}


def environment(home: Path, *, programs: Iterable[str] = OPTIONAL, **more: str) -> dict[str, str]:
    """Variables for a program whose home directory is `home`. `programs`: those of `OPTIONAL` that are installed."""
    given = {"PATH": program_path(*programs), "HOME": str(home), "PYTHONPATH": str(ROOT / "src"), **FIXED}
    if "TMPDIR" in os.environ:
        given["TMPDIR"] = os.environ["TMPDIR"]
    return given | more


@cache
def program_path(*programs: str) -> str:
    """A PATH on which exactly `BASIC` and these are found. One that is missing here is there, and always fails."""
    folder = Path(tempfile.mkdtemp(prefix="alipes-programs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    basic = BASIC.split()
    for name in (*basic, *programs):
        if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:{os.defpath}:/usr/sbin:/sbin"):
            (folder / name).symlink_to(found)
        elif name not in basic:
            (folder / name).write_text(
                f"#!/bin/sh\necho '{name} is not installed on this machine' >&2\nexit 127\n"
            )
            (folder / name).chmod(0o755)
    return str(folder)


def isolate(environ: Mapping[str, str]) -> dict[str, str]:
    """What is kept of the variables that the tests were started with, for what they run in their own process."""
    kept = {name: value for name, value in environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    return kept | FIXED | {"TERM": "xterm-256color"}


def reset_signals() -> None:
    """Undo `nohup` and the like, which programs inherit: a test that sends a signal counts on its default."""
    for number in SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def require(program: str, why: str = "make services") -> str:
    """The path of `program`; where it is missing the test is skipped, or fails under ALIPES_REQUIRE_SERVICES=1."""
    if found := shutil.which(program):
        return found
    return skip(f"{program} is not installed ({why})")


def skip(reason: str) -> NoReturn:
    """Skip the test for want of something that `make services` installs, unless all of it has to be there."""
    if os.environ.get("ALIPES_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
