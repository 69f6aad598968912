"""Says once at the start that the version is new and, if the person wants that, when there is a newer one."""

import logging
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes import __version__
from alipes.features.update.feature import UpdateFeature
from alipes.features.update.versions import Versions, write_file
from alipes.kernel.errors import ConfigError

log = logging.getLogger(__name__)
CHECK_EVERY_S = 86_400.0
AVAILABLE = "available.json"


class _Available(Struct, frozen=True):
    """The result of the last look for versions."""

    newest: str
    checked: float


async def add_hooks(feature: UpdateFeature, _stack: AsyncExitStack) -> None:
    app = feature.app
    versions = Versions(app.settings.home)

    async def describe() -> Sequence[str]:
        notes = list(_announce(versions))
        if app.settings.update.check:
            known = _read(versions)
            if known is None or time.time() - known.checked > CHECK_EVERY_S:
                app.resources.tasks.spawn(lambda: _look(feature, versions), "look for a newer version")
            notes += _describe_newer(known)
        return notes

    if app.settings.update.check or Path(sys.prefix).parent == versions.folder:
        app.add_start_notes(describe)


def _announce(versions: Versions) -> Sequence[str]:
    done = versions.take_announcement()
    if done is None or not done.after:
        return ()
    return (f"alipes is now {done.after}. What is new: `alipes update --notes`. To go back: `alipes update --back`.",)


def _describe_newer(known: _Available | None) -> Sequence[str]:
    from alipes.features.update.version_number import order

    if known is None or order(known.newest) <= order(__version__):
        return ()
    return (f"alipes {known.newest} is available: `alipes update`.",)


def _read(versions: Versions) -> _Available | None:
    try:
        return msgspec.json.decode((versions.folder / AVAILABLE).read_bytes(), type=_Available)
    except (OSError, msgspec.DecodeError):
        return None


async def _look(feature: UpdateFeature, versions: Versions) -> None:
    from alipes.config.paths import make_private
    from alipes.features.update.update import Updater

    try:
        found = await Updater(feature.app.settings, log.debug).check()
        make_private(versions.folder)
        write_file(versions.folder / AVAILABLE, msgspec.json.encode(_Available(found.newest, time.time())))
    except (ConfigError, OSError) as error:
        log.info("the look for a newer version failed: %s", error)
