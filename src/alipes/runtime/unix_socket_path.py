"""Short names for Unix socket paths that exceed the kernel's limit."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAX_PATH_BYTES = 100
"""The kernel allows 107 bytes; a longer path is addressed through its directory's descriptor."""


@contextmanager
def short_socket_path(path: str | Path) -> Iterator[str]:
    """A name for `path`, valid inside the context. Raises OSError if there is no short one."""
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
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
