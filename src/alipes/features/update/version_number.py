"""Version numbers such as `0.2.0` and `0.3.0rc1`, and their order."""

import re

_FORM = re.compile(r"v?(\d+(?:\.\d+)*)(?:(a|b|rc|\.dev)(\d+))?(?:\+([A-Za-z0-9.]+))?")
_STAGES = {".dev": 0, "a": 1, "b": 2, "rc": 3, None: 4}


def order(version: str) -> tuple[tuple[int, ...], int, int]:
    """A key to sort versions by; what is no version comes first."""
    found = _FORM.fullmatch(version)
    if found is None:
        return ((), 0, 0)
    return tuple(map(int, found[1].split("."))), _STAGES[found[2]], int(found[3] or 0)


def is_version(text: str) -> bool:
    return _FORM.fullmatch(text) is not None


def is_release(version: str) -> bool:
    """False for a version before a release."""
    found = _FORM.fullmatch(version)
    return found is not None and found[2] is None
