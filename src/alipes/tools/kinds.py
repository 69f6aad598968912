"""What kind of file begins with these bytes, if it is neither text nor image. It reads nothing."""

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


def binary_kind(start: bytes) -> str:
    """A few words for what is neither text nor image."""
    if start[4:8] == b"ftyp":
        return "MP4 or HEIF media"
    return next((kind for magic, kind in _BINARIES if start.startswith(magic)), "binary data")
