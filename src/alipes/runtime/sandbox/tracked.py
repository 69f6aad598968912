"""Files with secrets that git tracks: commands see the version in git's index, so that git sees no change to commit."""

import hashlib
import os
import stat
import zlib
from collections.abc import Callable

from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.sandbox.project import find_git_directories, folders_up

MAX_BYTES = 1_000_000
_HEADER, _ENTRY, _HASH = 12, 62, 20
"""Bytes before the first entry of an index, before the name in an entry, and of the hash before its flags."""
_LENGTH, _STAGE, _EXTENDED = 0x0FFF, 0x3000, 0x4000


class TrackedFiles:
    """Copies of tracked versions, by their hash."""

    def __init__(self, open_folder: Callable[[], str]) -> None:
        """`open_folder()`: where the copies are, which commands cannot change."""
        self._open_folder = open_folder
        self._known: dict[str, tuple[tuple[int, int], str]] = {}

    def find_copy(self, path: str, root: str) -> str:
        """A file with the version that git tracks; empty if it tracks none, or if that cannot be read here."""
        folders = (each for each in folders_up(os.path.dirname(path)) if is_inside(each, root))
        top = next((each for each in folders if os.path.lexists(f"{each}/.git")), "")
        git, common = find_git_directories(f"{top}/.git") if top else ("", "")
        digest = self._find_digest(f"{git}/index", os.path.relpath(path, top)) if git else ""
        if not digest:
            return ""
        copy = os.path.join(self._open_folder(), f"tracked-{digest}")
        if os.path.exists(copy):
            return copy
        for content in (_read_file(path), _read_object(common, digest)):
            if content is not None and _hash_blob(content) == digest:
                return _write(copy, content)
        return ""

    def _find_digest(self, index: str, name: str) -> str:
        """The hash of a file in the index; it is looked for again if the index was written."""
        try:
            facts = os.stat(index)
        except OSError:
            return ""
        stamp, key = (facts.st_ino, facts.st_mtime_ns), f"{index}\0{name}"
        known = self._known.get(key)
        if known is None or known[0] != stamp:
            self._known[key] = known = stamp, find_in_index(_read_file(index, limit=1 << 30) or b"", name)
        return known[1]


def find_in_index(data: bytes, name: str) -> str:
    """The hash of a file in an index of version 2 or 3; empty if it is not there."""
    if data[:4] != b"DIRC" or int.from_bytes(data[4:8], "big") not in (2, 3):
        return ""
    wanted = os.fsencode(name)
    at = data.find(wanted + b"\0")
    while at >= 0:
        for more in (0, 2):  # version 3 may have more flags
            flags = int.from_bytes(data[at - more - 2 : at - more], "big")
            aligned = (at - more - _ENTRY - _HEADER) % 8 == 0 and at - more >= _ENTRY + _HEADER
            fits = flags & _LENGTH == min(len(wanted), _LENGTH) and not flags & _STAGE
            if aligned and fits and bool(flags & _EXTENDED) == bool(more):
                return data[at - more - 2 - _HASH : at - more - 2].hex()
        at = data.find(wanted + b"\0", at + 1)
    return ""


def _read_file(path: str, limit: int = MAX_BYTES) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        return file.read() if stat.S_ISREG(facts.st_mode) and facts.st_size <= limit else None


def _read_object(git: str, digest: str) -> bytes | None:
    """The content of a blob that is not in a pack."""
    packed = _read_file(f"{git}/objects/{digest[:2]}/{digest[2:]}")
    try:
        return None if packed is None else zlib.decompressobj().decompress(packed, MAX_BYTES).partition(b"\0")[2]
    except zlib.error:
        return None


def _hash_blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).hexdigest()


def _write(path: str, content: bytes) -> str:
    new = f"{path}.{os.getpid()}"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(new, path)
    return path
