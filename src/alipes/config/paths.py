"""Paths of the files and directories in the home."""

import os
from collections.abc import Mapping
from pathlib import Path

from alipes.kernel.errors import ConfigError

DATABASE_FILE = "alipes.db"
"""The database of a home."""


class Paths:
    """Paths under `home`. Only `make` creates anything."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / "config.toml"
        self.env = home / ".env"
        self.database = home / DATABASE_FILE
        self.run = home / "run"
        """Sockets and locks of running processes."""
        self.logs = home / "logs"
        self.log = self.logs / "alipes.log"
        self.spill = home / "spill"
        """Tool output that was too long to show in full."""
        self.files = home / "files"
        """Files that people sent in chats, by platform."""
        self.checkpoints = home / "checkpoints"
        """Snapshots of projects, by folder."""
        self.outgoing = home / "outgoing"
        """Files that were generated for chats."""
        self.memory = home / "memory"
        """Notes that are kept from one conversation to the next, by person."""
        self.browser = home / "browser"
        """Cookies and local storage of the browser, if they are kept."""

    def make(self) -> "Paths":
        """Create the home and its directories with mode 0700. Raises ConfigError."""
        for folder in (self.home, self.run, self.logs, self.spill):
            make_private(folder)
        return self


def find_home(environ: Mapping[str, str] | None = None) -> Path:
    """`$ALIPES_HOME`, else `~/.alipes`; absolute, not necessarily existing."""
    named = (os.environ if environ is None else environ).get("ALIPES_HOME", "").strip()
    if any(not character.isprintable() for character in named):
        raise ConfigError("environment: ALIPES_HOME contains control characters: give the path of a directory.")
    try:
        return Path(named or "~/.alipes").expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ConfigError(f"The home directory cannot be found ({error}): set ALIPES_HOME to a directory.") from error


def make_private(folder: Path) -> Path:
    """Create `folder` with mode 0700 unless it exists. Raises ConfigError if it is not writable."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{folder} cannot be created: {why}. {_ELSEWHERE}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{folder} is not writable: check its owner and its file system. {_ELSEWHERE}")
    return folder


def sync_to_disk(path: Path) -> None:
    """Sync a file or a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_ELSEWHERE = "Set ALIPES_HOME to use another directory."
