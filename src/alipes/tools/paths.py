"""Where a path leads, and which files hold secrets. It opens nothing."""

import os
import re
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import ToolError

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
