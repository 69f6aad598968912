"""Pictures as models take them: upright, small enough, of a kind they know. It fetches and asks nothing."""

import io
import re
from typing import Any

from msgspec import Struct

from alipes.kernel.errors import ToolError
from alipes.kernel.images import image_type
from alipes.kernel.messages import Image

LARGEST = 20_000_000
"""Bytes of a picture that is looked at at all."""
FITTING = 3_750_000
"""Bytes that every provider takes, once they are written in base 64."""
SIDE = 1568
"""Pixels of the longer side beyond which models see no more."""
PIXELS = 80_000_000
"""More than this in one picture is a trap."""
SVG_ROOM = 40_000
"""Characters of a drawing in words."""
_SVG = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*(?:<!DOCTYPE[^>]*>\s*)?<svg[\s>]", re.DOTALL)


class Seen(Struct, frozen=True):
    """A picture for a model, or a drawing in words; and what a model should know about it."""

    image: Image | None
    words: str = ""
    note: str = ""


def prepared(data: bytes) -> Seen:
    """As a model takes it. May take a while: not for the loop. Raises `ToolError`."""
    if len(data) > LARGEST:
        raise ToolError(f"the picture has {len(data):,} bytes; at most {LARGEST:,} are looked at")
    if _SVG.match(data[:4096]):
        return _drawing(data)
    kind, pillow = image_type(data[:64]), _pillow()
    if pillow is None:
        if kind and len(data) <= FITTING:
            return Seen(Image(kind, data), note=f"{kind}, {len(data):,} bytes, as it is")
        raise ToolError(
            "this picture must be converted first, which needs one more package: pip install 'alipes[images]'"
        )
    return _converted(pillow, data, kind)


def _drawing(data: bytes) -> Seen:
    """An SVG is a text that draws: models read it as such."""
    text = data.decode("utf-8", "replace")
    note = "an SVG drawing, as its source"
    if len(text) > SVG_ROOM:
        text, note = text[:SVG_ROOM], f"{note}, cut after {SVG_ROOM:,} characters"
    return Seen(None, text, note)


def _pillow() -> Any:
    try:
        import PIL.Image  # noqa: PLC0415
        import PIL.ImageOps  # noqa: PLC0415
    except ModuleNotFoundError:
        return None
    return PIL


def _converted(pillow: Any, data: bytes, kind: str) -> Seen:
    try:
        with pillow.Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size
            if width * height > PIXELS:
                raise ToolError(f"the picture has {width}x{height} pixels; that is too many to look at")
            frames = getattr(picture, "n_frames", 1)
            turned = picture.getexif().get(0x0112, 1) != 1
            note = f"{width}x{height} {(picture.format or 'picture').lower()}"
            note += f", the first of {frames} frames" if frames > 1 else ""
            if kind and frames == 1 and not turned and max(width, height) <= SIDE and len(data) <= FITTING:
                picture.load()
                return Seen(Image(kind, data), note=note)
            picture.seek(0)
            photo = picture.format in ("JPEG", "MPO", "WEBP")
            upright = pillow.ImageOps.exif_transpose(picture)
            upright.thumbnail((SIDE, SIDE))
            shown = f", shown at {upright.width}x{upright.height}" if max(width, height) > SIDE else ""
            return Seen(_encoded(upright, photo), note=note + shown)
    except (OSError, ValueError, SyntaxError, EOFError, pillow.Image.DecompressionBombError) as error:
        raise ToolError(f"this is no picture that can be read: {error}") from error


def _encoded(picture: Any, photo: bool) -> Image:
    """PNG where that is small, as for drawings and screens; else JPEG, which has no transparency."""
    clear = picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info
    plain = picture.convert("RGBA" if clear else "RGB")
    if clear or not photo:
        file = io.BytesIO()
        plain.save(file, "PNG")
        if file.tell() <= FITTING // 2 or (clear and file.tell() <= FITTING):
            return Image("image/png", file.getvalue())
    file = io.BytesIO()
    plain.convert("RGB").save(file, "JPEG", quality=88)
    return Image("image/jpeg", file.getvalue())
