"""What kind of file begins with these bytes. It reads nothing."""

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_BINARIES = (
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "a program or library (ELF)"),
    (b"MZ", "a Windows program"),
    (b"PK\x03\x04", "a zip archive or office document"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"SQLite format 3\0", "a SQLite database"),
    (b"GGUF", "model weights (GGUF)"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"RIFF", "RIFF media"),
    (b"\xca\xfe\xba\xbe", "Java classes or a Mac binary"),
    (b"\0asm", "WebAssembly"),
)


def image_type(start: bytes) -> str:
    """The media type, if it is an image that models can see; else empty."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if start.startswith(magic)), "")


def binary_kind(start: bytes) -> str:
    """A few words for what is neither text nor image."""
    if start[4:8] == b"ftyp":
        return "MP4 or HEIF media"
    return next((kind for magic, kind in _BINARIES if start.startswith(magic)), "binary data")
