"""Sends that were begun and whose end nobody knows, on disk before each begins. It asks Slack nothing.

Slack does not know a message again that is sent twice. So who sends one a second time looks first whether
it is there; this tells when that is needed, also after `kill -9`.
"""

import time
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.platforms.kept import write

OLDEST = 86_400.0
"""Seconds after which a send that was begun is not looked for any more."""
LARGEST = 100_000
"""Bytes after which the file is written anew, with what is still open."""
RECENT = 200
"""Sends that are there and count as open on disk still: a kill may be quicker than the outbox."""


class Entry(Struct, omit_defaults=True):
    id: str
    at: float
    """When it was begun; zero: it has ended."""
    note: str = ""
    """What is known of it: the id of a file that was brought already."""


class Begun:
    """Appends a short line at each beginning and end; what the system has taken outlives this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = _read(path)
        self._there: dict[str, Entry] = {}
        self._size = 0
        self._fresh()

    def begin(self, id: str) -> Entry | None:
        """What is known of an earlier try; None if there was none. From now on there is one."""
        before = self._open.get(id)
        if id and before is None:
            self._there.pop(id, None)
            self._write(Entry(id, time.time()))
        return before

    def note(self, id: str, note: str) -> None:
        if id:
            self._write(Entry(id, self._open[id].at, note))

    def there(self, id: str) -> None:
        """It is there. The next process looks for it all the same, unless much was sent since."""
        if id in self._open:
            self._there[id] = self._open.pop(id)
        if len(self._there) > RECENT:
            oldest = next(iter(self._there))
            del self._there[oldest]
            self._write(Entry(oldest, 0.0))

    def done(self, id: str) -> None:
        """It surely is not there."""
        if id in self._open:
            self._write(Entry(id, 0.0))

    def _write(self, entry: Entry) -> None:
        if entry.at:
            self._open[entry.id] = entry
        else:
            self._open.pop(entry.id, None)
        line = msgspec.json.encode(entry) + b"\n"
        with open(self._path, "ab", buffering=0) as file:
            file.write(line)
        self._size += len(line)
        if self._size > LARGEST:
            self._fresh()

    def _fresh(self) -> None:
        lines = b"".join(
            msgspec.json.encode(each) + b"\n" for each in (*self._there.values(), *self._open.values())
        )
        write(self._path, lines)
        self._size = len(lines)


def _read(path: Path) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except msgspec.DecodeError:
            continue  # cut off by the end of the machine
        found.pop(entry.id, None)
        if entry.at > time.time() - OLDEST:
            found[entry.id] = entry
    return found
