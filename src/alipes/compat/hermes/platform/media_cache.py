"""Files received by platform adapters, kept in the cache folder of the home."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from alipes.config.paths import find_home, make_private

MAX_AGE_HOURS = 24.0
"""Files older than this may be deleted."""
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*", b"\x00\x00\x01\x00")
_MAX_NAME_CHARS = 120

_home: list[Path] = []


def set_cache_home(home: Path | None) -> None:
    """Set the home of the cache; None means the default home."""
    _home[:] = [] if home is None else [home]


def cache_folder(kind: str) -> Path:
    """The folder for `images`, `audio`, `video` or `documents`, created if needed."""
    home = _home[0] if _home else find_home()
    make_private(make_private(home) / "cache")
    return make_private(home / "cache" / kind)


def cache_image_from_bytes(data: bytes, ext: str = ".jpg") -> str:
    """Write an image and return its path. Raises ValueError if it is not one."""
    if not _is_image(data):
        raise ValueError(f"not an image, so it is not saved as {ext}: it starts with {data[:12]!r}")
    return _write_file("images", "img", data, _extension(ext, ".jpg"))


def cache_audio_from_bytes(data: bytes, ext: str = ".ogg") -> str:
    return _write_file("audio", "audio", data, _extension(ext, ".ogg"))


def cache_video_from_bytes(data: bytes, ext: str = ".mp4") -> str:
    return _write_file("video", "video", data, _extension(ext, ".mp4"))


def cache_document_from_bytes(data: bytes, filename: str) -> str:
    """Write a file whose name ends with `filename` and return its path; folders in the name are dropped."""
    name = re.sub(r"[\x00-\x1f\x7f]", "", os.path.basename((filename or "").replace("\\", "/"))).strip()
    stem, dot, ext = name.rpartition(".")
    name = (
        f"{stem[: _MAX_NAME_CHARS - len(ext)]}{dot}{ext}"[-_MAX_NAME_CHARS:]
        if dot
        else name[:_MAX_NAME_CHARS]
    )
    return _write_file("documents", "doc", data, "_" + ("document" if name in ("", ".", "..") else name))


def cleanup(kind: str, max_age_hours: float = MAX_AGE_HOURS) -> int:
    """Delete older files and return how many."""
    oldest, deleted = time.time() - max_age_hours * 3600, 0
    for file in cache_folder(kind).iterdir():
        with suppress(OSError):  # another process may clean up at the same time
            if file.is_file() and file.stat().st_mtime < oldest:
                file.unlink()
                deleted += 1
    return deleted


def cleanup_image_cache(max_age_hours: float = MAX_AGE_HOURS) -> int:
    return cleanup("images", max_age_hours)


def cleanup_document_cache(max_age_hours: float = MAX_AGE_HOURS) -> int:
    return cleanup("documents", max_age_hours)


def _write_file(kind: str, what: str, data: bytes, end: str) -> str:
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
