"""Files that came with a message: kept under the home until someone reads them. It fetches nothing."""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Literal, get_args

from msgspec import Struct

from alipes.config.paths import find_home, make_private
from alipes.kernel.turns import Answer, ApprovalAsked, Consent

Choice = Literal["once", "session", "always", "deny"]
WORDS: dict[str, Consent] = {"once": "once", "session": "session", "always": "always", "deny": "no"}
WORDS |= {"approve": "once", "yes": "once", "permanent": "always", "no": "no"}
assert {*WORDS.values()} == {*get_args(Consent)}


class Waiting(Struct, frozen=True):
    asked: ApprovalAsked
    answer: Callable[[Answer], None]
    """From any thread."""


class Asking:
    """The open questions, the oldest first. From any thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Waiting]] = {}
        self._alone = RLock()

    def put(self, key: str, asked: ApprovalAsked, answer: Callable[[Answer], None]) -> None:
        with self._alone:
            self._waiting.setdefault(key, []).append(Waiting(asked, answer))

    def drop(self, key: str, ask: str = "") -> None:
        """It was answered, or its turn is over; without `ask`, all of the key."""
        with self._alone:
            self._drop(key, ask)

    def _drop(self, key: str, ask: str) -> None:
        left = [each for each in self._waiting.get(key, ()) if ask and each.asked.ask != ask]
        if left:
            self._waiting[key] = left
        else:
            self._waiting.pop(key, None)

    def asked(self, ask: str) -> ApprovalAsked | None:
        """The question of that id, as long as it is open."""
        with self._alone:
            waiting = (each.asked for those in self._waiting.values() for each in those)
            return next((asked for asked in waiting if asked.ask == ask), None)

    def waits(self, key: str) -> bool:
        return key in self._waiting

    def resolve(self, key: str, choice: str, *, everything: bool = False, by: str = "") -> int:
        """Give the word on the oldest question, or on all; how many there were."""
        consent = WORDS.get(choice.lower())
        if consent is None:
            raise ValueError(f"{choice!r} is no answer; there are {', '.join(get_args(Choice))}")
        with self._alone:
            waiting = self._waiting.get(key, [])
            chosen = list(waiting) if everything else waiting[:1]
            for each in chosen:
                self._drop(key, each.asked.ask)
        for each in chosen:
            each.answer(Answer(each.asked.ask, consent, by))
        return len(chosen)


ASKING = Asking()
"""Keys name a conversation once and for all, so one is enough for a process."""


KEPT = 24.0
"""Hours after which a file may be thrown away."""
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*", b"\x00\x00\x01\x00")
_LONGEST = 120

_home: list[Path] = []


def live_in(home: Path | None) -> None:
    """Where files are kept from now on; None: where the variable says."""
    _home[:] = [] if home is None else [home]


def cache_folder(kind: str) -> Path:
    """`images`, `audio`, `video` or `documents`; made if it is not there."""
    home = _home[0] if _home else find_home()
    make_private(make_private(home) / "cache")
    return make_private(home / "cache" / kind)


def cache_image_from_bytes(data: bytes, ext: str = ".jpg") -> str:
    """The path of a new file with `data`. Raises ValueError when that is no image."""
    if not _is_image(data):
        raise ValueError(f"this is no image, so it is not kept as {ext}: it begins with {data[:12]!r}")
    return _keep("images", "img", data, _extension(ext, ".jpg"))


def cache_audio_from_bytes(data: bytes, ext: str = ".ogg") -> str:
    return _keep("audio", "audio", data, _extension(ext, ".ogg"))


def cache_video_from_bytes(data: bytes, ext: str = ".mp4") -> str:
    return _keep("video", "video", data, _extension(ext, ".mp4"))


def cache_document_from_bytes(data: bytes, filename: str) -> str:
    """The path of a new file with `data`, whose name ends with `filename`; folders in it are left out."""
    name = re.sub(r"[\x00-\x1f\x7f]", "", os.path.basename((filename or "").replace("\\", "/"))).strip()
    stem, dot, ext = name.rpartition(".")
    name = f"{stem[: _LONGEST - len(ext)]}{dot}{ext}"[-_LONGEST:] if dot else name[:_LONGEST]
    return _keep("documents", "doc", data, "_" + ("document" if name in ("", ".", "..") else name))


def cleanup(kind: str, max_age_hours: float = KEPT) -> int:
    """Throw away what is older; how many files went."""
    oldest, gone = time.time() - max_age_hours * 3600, 0
    for file in cache_folder(kind).iterdir():
        with suppress(OSError):  # another process may clean up at the same time
            if file.is_file() and file.stat().st_mtime < oldest:
                file.unlink()
                gone += 1
    return gone


def cleanup_image_cache(max_age_hours: float = KEPT) -> int:
    return cleanup("images", max_age_hours)


def cleanup_document_cache(max_age_hours: float = KEPT) -> int:
    return cleanup("documents", max_age_hours)


def _keep(kind: str, what: str, data: bytes, end: str) -> str:
    file = cache_folder(kind) / f"{what}_{os.urandom(6).hex()}{end}"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(data)
    return str(file)


def _extension(ext: str, usual: str) -> str:
    ext = ext if ext.startswith(".") else f".{ext}"
    return ext if re.fullmatch(r"\.\w{1,10}", ext) else usual


def _is_image(data: bytes) -> bool:
    riff = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    brand = data[4:8] == b"ftyp" and data[8:12] in (b"heic", b"heix", b"avif", b"mif1")
    return riff or brand or data.startswith(_IMAGES) or b"<svg" in data[:512]


FENCE = "```"
_ROOM = 24
"""For what closes and opens a block of code again."""


def pieces(text: str, most: int, length: Callable[[str], int] = len) -> list[str]:
    """`text` in order, none longer than `most`; broken at lines, else at blanks, else anywhere.

    A block of code that is broken is closed, and opened again in the next piece. `length`: as the
    platform counts.
    """
    if most <= 0 or length(text) <= most:
        return [text]
    room = max(most - _ROOM if FENCE in text else most, 1)
    found: list[str] = []
    opened = ""
    while text:
        piece, text = _broken(text, room, length)
        whole = f"{opened}{piece}"
        opened = _open_fence(whole)
        found.append(f"{whole.rstrip()}\n{FENCE}" if opened and text else whole.rstrip())
    return [piece for piece in found if piece.strip()]


def _broken(text: str, room: int, length: Callable[[str], int]) -> tuple[str, str]:
    if length(text) <= room:
        return text, ""
    at = room
    while length(text[:at]) > room:  # the platform counts otherwise than we do
        at -= 1
    head = text[: max(at, 1)]
    for mark in ("\n\n", "\n", " "):
        cut = head.rfind(mark)
        if cut >= len(head) // 4:
            return text[:cut], text[cut:].lstrip("\n" if "\n" in mark else " ")
    return head, text[len(head) :]


def _open_fence(text: str) -> str:
    """The line that opens the block again in which `text` ends; empty when it ends in none."""
    opened = ""
    for line in text.split("\n"):
        if line.lstrip().startswith(FENCE):
            opened = "" if opened else f"{line.strip()[: _ROOM - len(FENCE) - 2]}\n"
    return opened
