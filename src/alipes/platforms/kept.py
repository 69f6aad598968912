"""What a messenger remembers by itself: tables that do not grow, files that are never half there."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def put(table: dict[K, V], key: K, value: V, most: int) -> None:
    """At the end; what is at the beginning goes when there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > most:
        del table[next(iter(table))]


def read(path: Path, kind: type[T]) -> T:
    """What was written down; a new one where nothing was, or nothing that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return kind()


def write(path: Path, data: bytes, beside: str = "") -> None:
    """Whole, or not at all; only we may read it. Who writes while another may be writing does it `beside`
    that one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # By this name tools know it for a key's, where it is one, and backups leave it out.
    fresh = path.with_name(f".{path.name}{beside}.part")
    with open(fresh, "wb", opener=_private) as file:
        file.write(data)
    os.replace(fresh, path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
