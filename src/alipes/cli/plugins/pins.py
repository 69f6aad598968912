"""What was installed, from where, and exactly which: `plugins/installed.json`. It moves no plugin."""

import os
from pathlib import Path

import msgspec

from alipes.cli.plugins.sources import Source
from alipes.kernel.errors import ConfigError


class Package(msgspec.Struct, frozen=True):
    """One distribution that came along."""

    name: str
    version: str
    sha256: str = ""


class Pin(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of one plugin."""

    source: Source
    exact: str
    """The commit, or the version of the package; empty for a folder, which has neither."""
    sha256: str
    """Over the tree as it was put in place."""
    when: float
    version: str = ""
    """What it calls itself."""
    packages: tuple[Package, ...] = ()

    def __str__(self) -> str:
        exact = self.exact[:12] if self.source.kind == "git" else self.exact
        return " ".join(filter(None, (self.version, f"({exact or self.sha256[:12]})")))


class Installed(msgspec.Struct, frozen=True, omit_defaults=True):
    now: Pin
    before: Pin | None = None
    """The version that is kept to go back to."""


class _File(msgspec.Struct, frozen=True):
    plugins: dict[str, Installed] = {}
    format: int = 1


def read_pins(plugins: Path) -> dict[str, Installed]:
    """By name; empty when nothing was ever installed. Raises ConfigError when the file is broken."""
    file = plugins / "installed.json"
    try:
        return dict(msgspec.json.decode(file.read_bytes(), type=_File).plugins)
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigError(f"{file} cannot be read ({error}): put it right, or move it away.") from error


def write_pins(plugins: Path, pins: dict[str, Installed]) -> None:
    """All of it or nothing."""
    new = plugins / ".installed.json.new"
    text = msgspec.json.format(msgspec.json.encode(_File(dict(sorted(pins.items())))), indent=2)
    with open(new, "wb") as opened:
        opened.write(text + b"\n")
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(plugins / "installed.json")
