"""A library that one messenger alone needs: loaded when that is opened, and named where it is missing."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from alipes.kernel.errors import ConfigError


@contextmanager
def needed(messenger: str, library: str, extra: str) -> Iterator[None]:
    """Around the import. Raises ConfigError that says what to install."""
    try:
        with warnings.catch_warnings():
            # Parts of theirs use what Python is about to drop; none of that is ours to mend.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    except ModuleNotFoundError as missing:
        raise ConfigError(
            f"{messenger} needs {library} ({missing}): pip install 'alipes[{extra}]'"
        ) from missing
