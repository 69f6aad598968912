"""Mail threads: which thread a mail belongs to, and what the next mail in it refers to."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.platforms.state_files import put_bounded, read_state, write_atomic

OWN_ID = re.compile(r"<alipes\.([0-9a-f]{16})\.[0-9a-f]{24}@[^<>\s]+>")
IDS = re.compile(r"<[^<>\s]{1,900}>")
MAX_REFERENCES = 20
MAX_STRANGERS = 100


class MailThread(Struct, frozen=True):
    subject: str = ""
    references: tuple[str, ...] = ()
    """Ids of the mails so far, the last one to be answered; of many, the first and the latest."""


def thread_name(message: str, references: Sequence[str]) -> str:
    """Name of the thread of a mail, from its id and its references, oldest first.

    Our own ids contain it, since some programs drop the first references.
    """
    for each in reversed(references):
        if known := OWN_ID.fullmatch(each):
            return known[1]
    return _digest((*references, message)[0], 8)


def make_message_id(part: str, thread: str, domain: str) -> str:
    """Message-ID of our mail: the same for the same part."""
    return f"<alipes.{thread or _digest(part, 8)}.{_digest(part, 12)}@{domain}>"


class MailThreads:
    """One file per thread. If one is lost, the answer starts a new thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._strangers: dict[Path, MailThread] = {}

    def remember_stranger(self, person: str, thread: str, now: MailThread) -> None:
        """As `save`, for people without access: only in memory."""
        put_bounded(self._strangers, self._path(person, thread), now, MAX_STRANGERS)

    def find(self, person: str, thread: str) -> MailThread:
        path = self._path(person, thread)
        return self._strangers.get(path) or read_state(path, MailThread)

    def save(self, person: str, thread: str, now: MailThread) -> None:
        """Raises OSError."""
        ids = now.references
        some = ids if len(ids) <= MAX_REFERENCES else (ids[0], *ids[1 - MAX_REFERENCES :])
        path = self._path(person, thread)
        self._strangers.pop(path, None)
        write_atomic(path, msgspec.json.encode(MailThread(now.subject, some)))

    def _path(self, person: str, thread: str) -> Path:
        return self._folder / f"{_digest(f'{person} {thread}', 12)}.json"


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).hexdigest()
