"""Files that came with a message: kept under the home until someone reads them. It fetches nothing."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from alipes.config.paths import find_home, make_private

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
