"""Parts of a message from the command line: images, piped text, the conversation and the directory."""

import os
import select
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from alipes.cli.options import ConversationChoice
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Image, image_type
from alipes.kernel.turns import Address
from alipes.kernel.untrusted import escape_marks

if TYPE_CHECKING:
    from alipes.store.archive import Archive

PLATFORM = "terminal"
MAX_IMAGE_BYTES = 20_000_000
MAX_TEXT_BYTES = 8_000_000
PIPE_WARNING_S = 2.0


class PipedInput(Struct, frozen=True):
    """Content of standard input: text or an image."""

    text: str = ""
    image: Image | None = None


def new_id() -> str:
    return f"{PLATFORM}:{os.urandom(12).hex()}"


async def find_conversation(choice: ConversationChoice, archive: "Archive") -> Address:
    """The named conversation, the latest or a new one. Raises ConfigError if there is none to continue."""
    if choice.name:
        return Address(PLATFORM, choice.name)
    if not choice.latest:
        return Address(PLATFORM, f"{time.strftime('%y%m%d-%H%M')}-{os.urandom(3).hex()}")
    if (latest := await archive.latest(PLATFORM)) is None:
        raise ConfigError("there is no conversation to continue; omit --continue to start one")
    return latest.address


def current_directory() -> str:
    """Where tools work. Raises ConfigError if the directory was deleted."""
    try:
        return os.getcwd()
    except OSError as error:
        raise ConfigError("the current directory was deleted; change to another one") from error


def read_image(name: str) -> Image:
    """The image in the file `name`. Raises ConfigError if it cannot be sent."""
    try:
        with Path(name).expanduser().open("rb") as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--image {name}: {error.strerror or error}") from error
    return _to_image(data, f"--image {name}")


def read_piped(stream: BinaryIO) -> PipedInput:
    """Everything until the end of `stream`. Raises ConfigError if it cannot be sent."""
    _warn_if_waiting(stream)
    data = stream.read(MAX_IMAGE_BYTES + 1)
    if image_type(data):
        return PipedInput(image=_to_image(data, "standard input"))
    if len(data) > MAX_TEXT_BYTES:
        raise ConfigError(f"standard input is larger than {MAX_TEXT_BYTES:,} bytes; send a part of it")
    if b"\0" in data:
        raise ConfigError("standard input is neither text nor a PNG, JPEG, GIF or WebP image")
    return PipedInput(data.decode("utf-8", "replace"))


def add_context(prompt: str, context: str) -> str:
    """The prompt followed by the piped text in a marked block; either may be empty."""
    if not context.strip():
        return prompt
    if not prompt.strip():
        return context
    return f"{prompt}\n\n<stdin>\n{escape_marks(context.rstrip())}\n</stdin>"


def _warn_if_waiting(stream: BinaryIO) -> None:
    """Tell a user who left a pipe open why nothing happens."""
    fd = stream.fileno()
    is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode) or stat.S_ISSOCK(os.fstat(fd).st_mode)
    if is_pipe and not select.select([fd], [], [], PIPE_WARNING_S)[0]:
        sys.stderr.write("alipes: waiting for standard input to end (use `< /dev/null` for none)\n")


def _to_image(data: bytes, source: str) -> Image:
    if len(data) > MAX_IMAGE_BYTES:
        raise ConfigError(f"{source}: larger than {MAX_IMAGE_BYTES:,} bytes; make it smaller first")
    if not (kind := image_type(data)):
        raise ConfigError(f"{source}: not a PNG, JPEG, GIF or WebP image")
    return Image(kind, data)
