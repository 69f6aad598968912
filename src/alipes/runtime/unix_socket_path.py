"""A path as a socket's address has room for it. Who binds and who connects is elsewhere."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT = 100
"""The kernel takes 107 bytes; a longer path is named by its folder's descriptor."""


@contextmanager
def short(path: str | Path) -> Iterator[str]:
    """A name for `path`, as long as the context lasts. Raises `OSError` where there is no short one."""
    if len(os.fsencode(path)) <= LIMIT:
        yield str(path)
        return
    if not os.path.isdir("/proc/self/fd"):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path))
    folder, name = os.path.split(path)
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{number}/{name}"
    finally:
        os.close(number)
