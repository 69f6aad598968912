"""The environment of programs that tests start: their variables, and the programs on their PATH.

It does not depend on the machine: no keys, proxies, locale or Git settings of the user, and no model server
that happens to listen on this machine.
"""

import atexit
import os
import shutil
import signal
import sys
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
"""Programs that alipes uses if installed, and mentions on its first screen if not."""
BASIC = """
sh bash env true false test [ echo printf printenv sleep timeout kill cat head tail tee wc sort uniq cut tr seq yes
od nl grep sed awk ls pwd cp mv rm ln mkdir rmdir mkfifo touch chmod stat find xargs dd df du diff cmp date id whoami
uname basename dirname readlink realpath mktemp ps pgrep setsid nohup nice stty tty script base64 sha256sum tar gzip
nsenter unshare prlimit
"""
"""Programs of any Unix, available to every test."""
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
    "ALIPES_SANDBOX_BACKEND": "host",  # tests of the sandbox choose it
    "ALIPES_LEARNING_MODE": "off",  # scripts have no line for its requests; tests of learning switch it on
    "ALIPES_TEST_PROVIDER": "scripted_provider",
}


def environment(home: Path, *, programs: Iterable[str] = OPTIONAL, **more: str) -> dict[str, str]:
    """Variables for a program whose home directory is `home`. `programs`: those of `OPTIONAL` that are installed."""
    given = {"PATH": program_path(*programs), "HOME": str(home), "PYTHONPATH": str(ROOT / "src"), **FIXED}
    if "TMPDIR" in os.environ:
        given["TMPDIR"] = os.environ["TMPDIR"]
    return given | more


@cache
def program_path(*programs: str) -> str:
    """A PATH with exactly `BASIC` and `programs`. A program that this machine lacks is replaced by one that fails."""
    folder = Path(tempfile.mkdtemp(prefix="alipes-programs-"))
    folder.chmod(0o755)  # servers that drop root start programs too
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    basic = BASIC.split()
    for name in (*basic, *programs):
        if found := shutil.which(name, path=f"{os.environ.get('PATH', '')}:{os.defpath}:/usr/sbin:/sbin"):
            (folder / name).symlink_to(found)
        elif name not in basic:
            (folder / name).write_text(f"#!/bin/sh\necho '{name} is not installed on this machine' >&2\nexit 127\n")
            (folder / name).chmod(0o755)
    return str(folder)


def isolate(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for code that runs in the test process itself."""
    kept = {name: value for name, value in environ.items() if name in KEPT or name.startswith(KEPT_PREFIXES)}
    return kept | FIXED | {"TERM": "xterm-256color", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def reset_signals() -> None:
    """Undo `nohup` and the like, which child processes inherit: tests rely on the default actions of signals."""
    for number in SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def require(program: str, why: str = "make services") -> str:
    """The path of `program`; if it is missing the test is skipped, or fails under ALIPES_REQUIRE_SERVICES=1."""
    if found := shutil.which(program):
        return found
    return skip(f"{program} is not installed ({why})")


def is_hidden() -> bool:
    """True if the tests must not see the services of this machine, as in `make test`."""
    return not SERVICES.is_dir()


def skip(reason: str) -> NoReturn:
    """Skip the test because a service is missing; fail it under ALIPES_REQUIRE_SERVICES=1."""
    if os.environ.get("ALIPES_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
