"""Saves media that adapters receive: from bytes of any type, or from a public URL."""

import mimetypes
import os
import re
from dataclasses import dataclass
from pathlib import Path

from alipes.compat.hermes.modules.url_safety import fetch_public
from alipes.compat.hermes.platform.values import (
    cache_audio_from_bytes,
    cache_document_from_bytes,
    cache_folder,
    cache_image_from_bytes,
    cache_video_from_bytes,
)

MAX_MEDIA_BYTES = 128 * 1024 * 1024
SUPPORTED_IMAGE_DOCUMENT_TYPES = {
    **dict.fromkeys((".jpg", ".jpeg"), "image/jpeg"),
    ".png": "image/png",
    ".webp": "image/webp",
    ".gif": "image/gif",
}
SUPPORTED_VIDEO_TYPES = {
    ".mp4": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mkv": "video/x-matroska",
    ".avi": "video/x-msvideo",
}
_OFFICE = "application/vnd.openxmlformats-officedocument"
SUPPORTED_DOCUMENT_TYPES = {
    ".pdf": "application/pdf",
    ".md": "text/markdown",
    **dict.fromkeys((".txt", ".log", ".ini", ".cfg", ".toml"), "text/plain"),
    ".csv": "text/csv",
    ".json": "application/json",
    ".xml": "application/xml",
    **dict.fromkeys((".yaml", ".yml"), "application/yaml"),
    ".html": "text/html",
    ".zip": "application/zip",
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
}
TEXT_EXTENSIONS = {
    *(".txt", ".md", ".markdown", ".csv", ".tsv", ".log", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml"),
    *(".ini", ".cfg", ".conf", ".html", ".css", ".js", ".ts", ".py", ".sh", ".sql", ".rs", ".go", ".c", ".h"),
}
"""Files whose text adapters may add to a message."""
_AUDIO_EXTENSIONS = {".ogg", ".opus", ".mp3", ".wav", ".m4a", ".flac"}


@dataclass
class CachedMedia:
    """One saved attachment."""

    path: str
    media_type: str
    kind: str
    """image, video, audio or document."""
    display_name: str

    def context_note(self) -> str:
        return f"[{self.kind} '{self.display_name}' saved at: {self.path}]"


def cache_media_bytes(
    data: bytes, *, filename: str = "", mime_type: str = "", default_kind: str | None = None
) -> CachedMedia | None:
    """Save an attachment by its type; None if it claims to be an image and is not."""
    mime = (mime_type or "").lower()
    extension = os.path.splitext(filename or "")[1].lower() or _extension_of(mime)
    name = re.sub(r"[^\w.\- ]", "_", filename) if filename else extension.lstrip(".") or "file"
    kind = _kind_of(mime, extension, default_kind)
    try:
        path = _save(kind, data, extension, filename)
    except ValueError:
        return None
    return CachedMedia(path, mime or _type_of(path), kind, name)


def _kind_of(mime: str, extension: str, default: str | None) -> str:
    family = mime.partition("/")[0]
    if family == "image" or extension in SUPPORTED_IMAGE_DOCUMENT_TYPES:
        return "image"
    if family == "video" or extension in SUPPORTED_VIDEO_TYPES:
        return "video"
    if family == "audio" or extension in _AUDIO_EXTENSIONS:
        return "audio"
    return default or "document"


def _save(kind: str, data: bytes, extension: str, filename: str) -> str:
    match kind:
        case "image":
            return cache_image_from_bytes(data, extension if extension in SUPPORTED_IMAGE_DOCUMENT_TYPES else ".jpg")
        case "video":
            return cache_video_from_bytes(data, extension if extension in SUPPORTED_VIDEO_TYPES else ".mp4")
        case "audio":
            return cache_audio_from_bytes(data, extension if extension in _AUDIO_EXTENSIONS else ".ogg")
    return cache_document_from_bytes(data, filename or f"document{extension or '.bin'}")


def _extension_of(mime: str) -> str:
    for table in (SUPPORTED_IMAGE_DOCUMENT_TYPES, SUPPORTED_VIDEO_TYPES, SUPPORTED_DOCUMENT_TYPES):
        for extension, known in table.items():
            if known == mime:
                return extension
    return ""


def _type_of(path: str) -> str:
    extension = os.path.splitext(path)[1].lower()
    known = {**SUPPORTED_DOCUMENT_TYPES, **SUPPORTED_VIDEO_TYPES, **SUPPORTED_IMAGE_DOCUMENT_TYPES}
    return known.get(extension) or mimetypes.guess_type(path)[0] or "application/octet-stream"


async def cache_image_from_url(url: str, ext: str = ".jpg", retries: int = 2) -> str:
    """Download an image from a public address. Raises ValueError."""
    return cache_image_from_bytes((await fetch_public(url, MAX_MEDIA_BYTES)).data, ext)


async def cache_audio_from_url(url: str, ext: str = ".ogg", retries: int = 2) -> str:
    """Download audio from a public address. Raises ValueError."""
    return cache_audio_from_bytes((await fetch_public(url, MAX_MEDIA_BYTES)).data, ext)


def get_image_cache_dir() -> Path:
    return cache_folder("images")


def get_audio_cache_dir() -> Path:
    return cache_folder("audio")


def get_video_cache_dir() -> Path:
    return cache_folder("video")


def get_document_cache_dir() -> Path:
    return cache_folder("documents")


def get_inbound_media_max_bytes() -> int:
    return MAX_MEDIA_BYTES


def validate_inbound_media_size(size: int, *, media_type: str = "media", max_bytes: int | None = None) -> None:
    """Raise ValueError if an attachment is too large to keep in memory."""
    largest = MAX_MEDIA_BYTES if max_bytes is None else max_bytes
    if 0 < largest < int(size or 0):
        raise ValueError(f"{media_type} has {size:,} bytes, the maximum is {largest:,}")


def validate_media_delivery_path(path: str) -> str | None:
    """The absolute path of a file that may be sent; None if it does not exist or is a secret of this home."""
    file = Path(os.path.expanduser(str(path or "").strip("`\"' ")))
    try:
        resolved = file.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    if not resolved.is_file() or resolved.name in (".env", "auth.json") or ".ssh" in resolved.parts:
        return None
    return str(resolved)
