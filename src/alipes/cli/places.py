"""Which conversation is meant: names and ids of the terminal's own. It keeps nothing."""

import os
import time
from typing import TYPE_CHECKING

from alipes.cli.arguments import Where
from alipes.kernel.errors import ConfigError
from alipes.kernel.turns import Address

if TYPE_CHECKING:
    from alipes.store.archive import Archive

PLATFORM = "terminal"


def new_id() -> str:
    """An id for one inbound, never given twice."""
    return f"{PLATFORM}:{os.urandom(12).hex()}"


def new_place() -> Address:
    """A conversation of its own, with a name that tells when it began."""
    return Address(PLATFORM, f"{time.strftime('%y%m%d-%H%M')}-{os.urandom(3).hex()}")


def workdir() -> str:
    """Where tools are to work; ConfigError when that folder is gone."""
    try:
        return os.getcwd()
    except OSError as error:
        raise ConfigError("the folder you are in was removed; change to another") from error


async def find_place(where: Where, archive: "Archive") -> Address:
    """The named conversation, the latest, or a new one; ConfigError when there is nothing to continue."""
    if where.name:
        return Address(PLATFORM, where.name)
    if not where.latest:
        return new_place()
    if (latest := await archive.latest(PLATFORM)) is None:
        raise ConfigError("there is no conversation to continue; leave out --continue to begin one")
    return latest.address
