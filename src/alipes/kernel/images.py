"""The images that models can see, by media type and by their first bytes. It reads nothing."""

SEEN_BY_MODELS = ("image/png", "image/jpeg", "image/gif", "image/webp")
_STARTS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type(start: bytes) -> str:
    """The media type, if it is one of these; else empty."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _STARTS if start.startswith(magic)), "")
