"""A yes or no from the person at the terminal. Where nobody is, it is neither."""

import sys

from alipes.kernel.errors import ConfigError


def agreed(question: str, act: str) -> bool:
    """Whether they say yes to `question`. Raises ConfigError where there is nobody to ask."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(f"there is nobody to ask back; say --yes to {act}")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
