"""Inline images as rows, for terminals with an image protocol.

The rows are empty to reserve space; the last one moves up, draws the image and returns.
"""

import base64
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

ImageProtocol: TypeAlias = Literal["", "kitty", "iterm", "sixel"]
MAX_COLUMNS, MAX_ROWS = 60, 20
MAX_BYTES = 8_000_000
CELL_PIXELS = (10, 20)
"""Assumed size of a character cell in pixels."""
MAX_COLOURS = 64
CHUNK = 4096
_PNG = b"\x89PNG\r\n\x1a\n"


def render_image(path: str, way: ImageProtocol, columns: int) -> list[str]:
    """The rows of the image; empty if it cannot be drawn."""
    if not way or not path.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".webp")):
        return []
    try:
        data = Path(path).read_bytes()
        opened = _open_image(data)
        size = opened.size if opened else struct.unpack(">II", data[16:24]) if data.startswith(_PNG) else None
        if size is None or len(data) > MAX_BYTES:
            return []
        wide, high = _fit(size, columns)
        drawn = _encode(way, data, opened, wide, high)
    except (OSError, ValueError, struct.error):
        return []
    up = f"\x1b[{high - 1}A" if high > 1 else ""
    return [*[""] * (high - 1), f"\x1b7{up}\r  {drawn}\x1b8"] if drawn else []


def _open_image(data: bytes) -> Any:
    try:
        import PIL.Image  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    return PIL.Image.open(io.BytesIO(data))


def _fit(size: tuple[int, int], columns: int) -> tuple[int, int]:
    """Columns and rows for the image: at most its own size and the available space."""
    width, height = size
    wide = max(1, min(MAX_COLUMNS, columns - 4, -(-width // CELL_PIXELS[0])))
    high = max(1, round(wide * CELL_PIXELS[0] * height / width / CELL_PIXELS[1]))
    if high > MAX_ROWS:
        wide, high = max(1, wide * MAX_ROWS // high), MAX_ROWS
    return wide, high


def _encode(way: ImageProtocol, data: bytes, opened: Any, wide: int, high: int) -> str:
    if way == "iterm":
        how = f"inline=1;width={wide};height={high};preserveAspectRatio=1;doNotMoveCursor=1"
        return f"\x1b]1337;File={how}:{base64.b64encode(data).decode()}\x07"
    if way == "kitty":
        if not data.startswith(_PNG):
            if opened is None:
                return ""
            file = io.BytesIO()
            opened.convert("RGBA").save(file, "PNG")
            data = file.getvalue()
        return "".join(_kitty(base64.b64encode(data).decode(), wide, high))
    return _sixel(opened.convert("RGB").resize((wide * CELL_PIXELS[0], high * CELL_PIXELS[1]))) if opened else ""


def _kitty(text: str, wide: int, high: int) -> Iterator[str]:
    for start in range(0, len(text), CHUNK):
        head = f"a=T,f=100,q=2,C=1,c={wide},r={high}," if not start else ""
        more = int(start + CHUNK < len(text))
        yield f"\x1b_G{head}m={more};{text[start : start + CHUNK]}\x1b\\"


def _sixel(image: Any) -> str:
    """Encode six pixel rows at a time, one colour after the other, with run lengths."""
    small = image.quantize(MAX_COLOURS)
    palette, (width, height), points = small.getpalette(), small.size, small.tobytes()
    used = sorted(set(points))
    out = [f'\x1bP9;1q"1;1;{width};{height}']
    out += [
        f"#{each};2;" + ";".join(str(round(part / 2.55)) for part in palette[3 * each : 3 * each + 3]) for each in used
    ]
    for top in range(0, height, 6):
        band = [points[y * width : (y + 1) * width] for y in range(top, min(top + 6, height))]
        for colour in sorted({point for row in band for point in row}):
            marks = [sum((row[x] == colour) << n for n, row in enumerate(band)) for x in range(width)]
            out.append(f"#{colour}{_run_lengths(marks)}$")
        out.append("-")
    return "".join(out) + "\x1b\\"


def _run_lengths(marks: list[int]) -> str:
    out, last, count = [], marks[0], 0
    for mark in [*marks, -1]:
        if mark == last:
            count += 1
            continue
        sign = chr(63 + last)
        out.append(f"!{count}{sign}" if count > 3 else sign * count)
        last, count = mark, 1
    return "".join(out)
