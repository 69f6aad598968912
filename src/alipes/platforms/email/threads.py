"""Threads of mail: which one a mail belongs to, and what the next one in it must refer to."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.platforms.state_files import put, read, write

OURS = re.compile(r"<alipes\.([0-9a-f]{16})\.[0-9a-f]{24}@[^<>\s]+>")
IDS = re.compile(r"<[^<>\s]{1,900}>")
REMEMBERED = 20
STRANGERS = 100


class Thread(Struct, frozen=True):
    """Where a conversation stands."""

    subject: str = ""
    references: tuple[str, ...] = ()
    """Ids of the mails so far, the last being the one to answer; of many the first and the latest."""


def name(message: str, references: Sequence[str]) -> str:
    """The thread that a mail is in, by its id and those it refers to, the oldest first.

    Ids of ours tell it themselves: there are programs that forget how a thread began.
    """
    for each in reversed(references):
        if known := OURS.fullmatch(each):
            return known[1]
    return _digest((*references, message)[0], 8)


def message_id(piece: str, thread: str, domain: str) -> str:
    """The id of a mail of ours: the same whenever the same is sent again."""
    return f"<alipes.{thread or _digest(piece, 8)}.{_digest(piece, 12)}@{domain}>"


class Threads:
    """A file for each. Being lost is harmless: the answer begins a thread of its own then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._strangers: dict[Path, Thread] = {}

    def note(self, person: str, thread: str, now: Thread) -> None:
        """As `keep`, for one who may not speak: they fill no disk of ours."""
        put(self._strangers, self._path(person, thread), now, STRANGERS)

    def find(self, person: str, thread: str) -> Thread:
        path = self._path(person, thread)
        return self._strangers.get(path) or read(path, Thread)

    def keep(self, person: str, thread: str, now: Thread) -> None:
        """Raises OSError."""
        ids = now.references
        some = ids if len(ids) <= REMEMBERED else (ids[0], *ids[1 - REMEMBERED :])
        path = self._path(person, thread)
        self._strangers.pop(path, None)
        write(path, msgspec.json.encode(Thread(now.subject, some)))

    def _path(self, person: str, thread: str) -> Path:
        return self._folder / f"{_digest(f'{person} {thread}', 12)}.json"


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).hexdigest()
