"""Paths of the files and directories in the home."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from alipes.kernel.errors import ConfigError


class Paths(Struct, frozen=True):
    """Paths under `home`. Only `make` creates anything."""

    home: Path

    @property
    def config(self) -> Path:
        return self.home / "config.toml"

    @property
    def env(self) -> Path:
        return self.home / ".env"

    @property
    def database(self) -> Path:
        return self.home / "alipes.db"

    @property
    def run(self) -> Path:
        """Sockets and locks of running processes."""
        return self.home / "run"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def log(self) -> Path:
        return self.logs / "alipes.log"

    @property
    def spill(self) -> Path:
        """Tool output that was too long to show in full."""
        return self.home / "spill"

    @property
    def files(self) -> Path:
        """Files that people sent in chats, by platform."""
        return self.home / "files"

    @property
    def outgoing(self) -> Path:
        """Files that were generated for chats."""
        return self.home / "outgoing"

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


_ELSEWHERE = "Set ALIPES_HOME to use another directory."
