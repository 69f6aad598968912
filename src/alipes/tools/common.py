"""Where a path leads, and which files hold secrets. It opens nothing."""

import asyncio
import os
import re
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct

from alipes.config.display import is_secret_name, looks_secret
from alipes.kernel.errors import ToolError

T = TypeVar("T")


class CalledOff(Exception):
    """Raised by the work itself: it was not to be done any more. Nobody hears it."""


class Gate:
    """Stands between preparing and doing. A stop closes it, unless the doing has begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed = self._closed = False

    def enter(self) -> None:
        """For the work, once all is prepared: from here on it is done. Raises `CalledOff` after a stop."""
        with self._lock:
            if self._closed:
                raise CalledOff
            self._passed = True

    def close(self) -> bool:
        """Call the work off; False when it is being done already."""
        with self._lock:
            self._closed = not self._passed
            return self._closed


async def aside(work: Callable[[Gate], T]) -> T:
    """Do `work` in a thread. Cancelled before it entered the gate: it never will; after: when it is done."""
    gate = Gate()
    future = asyncio.get_running_loop().run_in_executor(None, work, gate)
    stopped: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as cancelled:
            stopped = cancelled
            if gate.close():
                future.cancel()  # what the thread still prepares, it throws away itself
                raise
    if stopped is not None:
        future.exception()
        raise stopped
    return future.result()


QUIET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
}
"""No colours, no pager, no question: nobody is there to page or to answer."""


def is_hidden(name: str, value: str, secrets: Collection[str]) -> bool:
    """Is a variable named or shaped like a secret, or one of `secrets`?"""
    return is_secret_name(name) or value in secrets or looks_secret(value)


def child_environment(environ: Mapping[str, str], secrets: Collection[str] = ()) -> dict[str, str]:
    """`environ` for a command: less what is named or shaped like a secret or is one of `secrets`."""
    hidden = set(secrets)
    kept = {name: value for name, value in environ.items() if not is_hidden(name, value, hidden)}
    return {**kept, **QUIET}


Secrecy: TypeAlias = Literal["", "ours", "personal"]
"""`ours`: no tool reads it; `personal`: somebody must have said yes."""

_KERNEL = r"/proc/(?:[^/]+/(?:task/[^/]+/)?(?:environ|mem)|kcore|kmsg|vmcore)$"
_OURS = r"(?:run/.*|\.env.*|.*\.(?:db|db-wal|db-shm|db-journal|key|pem|sock)(?:\.[^/]*)?)$"
_SYSTEM = r"/etc/(?:g?shadow-?|sudoers(?:\.d/.*)?|ssh/ssh_host_.*_key|security/opasswd|ssl/private/.*)$"
_PERSONAL = (
    r"(?:\.ssh/(?:id_[^/]*|identity)(?<!\.pub)"
    r"|\.(?:netrc|git-credentials|pgpass|pypirc|npmrc|aws/credentials|kube/config|docker/config\.json)"
    r"|\.(?:cargo/credentials(?:\.toml)?|config/gh/hosts\.yml|vault-token)"
    r"|\.(?:gnupg|config/gcloud|azure|password-store|local/share/keyrings)(?:/.*)?)$"
)


class Places(Struct, frozen=True):
    """The folders that give paths their meaning."""

    home: str
    """The person's."""
    own: str
    """Ours: configuration, database, sockets."""
    scratch: tuple[str, ...] = ("/tmp", "/var/tmp", "/dev/shm")
    """Where everybody may leave and clear things."""

    def locate(self, path: str, workdir: str) -> Path:
        """Where what the model calls `path` lies. Links are not followed yet. Raises `ToolError`."""
        if "\0" in path:
            raise ToolError("a name with a zero byte in it cannot be read or written")
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return Path(os.path.join(workdir or os.getcwd(), path))

    def secrecy(self, real: str) -> Secrecy:
        """What the file with this real path is to us. Follow links first, and ask again after opening."""
        inside = _below(real, self.own)
        if re.compile(_KERNEL).match(real) or (inside and re.compile(_OURS).match(inside)):
            return "ours"
        inside = _below(real, self.home)
        if re.compile(_SYSTEM).match(real) or (inside and re.compile(_PERSONAL).match(inside)):
            return "personal"
        return ""

    def keeps(self, real: str) -> bool:
        """Is the file with this real path one that nobody is sent?"""
        try:
            return bool(self.secrecy(real)) or self.is_linked(os.stat(real))
        except OSError:
            return True

    def is_linked(self, facts: os.stat_result) -> bool:
        """Is it our file of keys under another name, by a hard link?"""
        if facts.st_nlink < 2:
            return False
        try:
            return os.path.samestat(facts, os.stat(os.path.join(self.own, ".env")))
        except OSError:
            return False


def _below(path: str, folder: str) -> str:
    """`path` seen from `folder`; empty unless it is below it."""
    start = os.path.realpath(folder).rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else ""
