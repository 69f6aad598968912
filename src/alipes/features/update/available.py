"""Looks for a newer version once a day, if the person wants that, and says at the start if there is one."""

import logging
import sys
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from alipes import __version__
from alipes.config.paths import make_private
from alipes.core.app import App
from alipes.features.update.update import Updater
from alipes.features.update.versions import Versions, write_file
from alipes.kernel.errors import ConfigError

log = logging.getLogger(__name__)
CHECK_EVERY_S = 86_400.0
FILE = "available.json"


class _Available(Struct, frozen=True):
    """The result of the last look for versions."""

    newest: str
    checked: float
    newer_than: str = ""
    """The version that looked, if there was a newer one."""


def describe_newer(app: App) -> Sequence[str]:
    """What the last look found, as sentences; starts another one if that was long ago."""
    known = _read(Versions(app.settings.home))
    if known is None or time.time() - known.checked > CHECK_EVERY_S:
        app.resources.tasks.spawn(lambda: look(app), "look for a newer version")
    if known is None or known.newer_than != _name_version():
        return ()
    return (f"alipes {known.newest} is available: `alipes update`.",)


async def look(app: App) -> None:
    versions = Versions(app.settings.home)
    try:
        found = await Updater(app.settings, log.debug).check()
        make_private(versions.folder)
        known = _Available(found.newest, time.time(), _name_version() if found.newer else "")
        write_file(versions.folder / FILE, msgspec.json.encode(known))
    except (ConfigError, OSError) as error:
        log.info("the look for a newer version failed: %s", error)


def _name_version() -> str:
    return f"{__version__} {sys.prefix}"


def _read(versions: Versions) -> _Available | None:
    try:
        return msgspec.json.decode((versions.folder / FILE).read_bytes(), type=_Available)
    except (OSError, msgspec.DecodeError):
        return None
