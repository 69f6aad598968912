"""What comes along with a prompt: images from files, context from a pipe. Files are read, never kept."""

import os
import select
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Image, image_type

IMAGE_LIMIT = 20_000_000
TEXT_LIMIT = 8_000_000
PATIENCE = 2.0


class Piped(Struct, frozen=True):
    """What standard input held: text, or an image."""

    text: str = ""
    image: Image | None = None


def read_image(name: str) -> Image:
    """The image in the file `name`; a ConfigError says why it cannot be sent."""
    try:
        with Path(name).expanduser().open("rb") as file:
            data = file.read(IMAGE_LIMIT + 1)
    except OSError as error:
        raise ConfigError(f"--image {name}: {error.strerror or error}") from error
    return _image(data, f"--image {name}")


def read_piped(stream: BinaryIO) -> Piped:
    """Everything until the end of `stream`; a ConfigError says why it cannot be sent."""
    _wait(stream)
    data = stream.read(IMAGE_LIMIT + 1)
    if image_type(data):
        return Piped(image=_image(data, "standard input"))
    if len(data) > TEXT_LIMIT:
        raise ConfigError(f"standard input holds more than {TEXT_LIMIT:,} bytes; send a part of it")
    if b"\0" in data:
        raise ConfigError("standard input is neither text nor a PNG, JPEG, GIF or WebP image")
    return Piped(data.decode("utf-8", "replace"))


def with_context(prompt: str, context: str) -> str:
    """The prompt with piped text in a marked block after it; either may be missing."""
    if not context.strip():
        return prompt
    if not prompt.strip():
        return context
    return f"{prompt}\n\n<stdin>\n{context.rstrip()}\n</stdin>"


def _wait(stream: BinaryIO) -> None:
    """Someone who forgot an open pipe is told what we wait for."""
    fd = stream.fileno()
    waits = stat.S_ISFIFO(os.fstat(fd).st_mode) or stat.S_ISSOCK(os.fstat(fd).st_mode)
    if waits and not select.select([fd], [], [], PATIENCE)[0]:
        sys.stderr.write("alipes: waiting for standard input to end (`< /dev/null` gives none)\n")


def _image(data: bytes, where: str) -> Image:
    if len(data) > IMAGE_LIMIT:
        raise ConfigError(f"{where}: larger than {IMAGE_LIMIT:,} bytes; make it smaller first")
    if not (kind := image_type(data)):
        raise ConfigError(f"{where}: not a PNG, JPEG, GIF or WebP image")
    return Image(kind, data)
