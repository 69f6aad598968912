"""Parts of a message from the command line: images, piped text, the conversation and the directory."""

import os
import select
import shlex
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from alipes.console.options import ConversationChoice
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import ID, format_excerpt
from alipes.kernel.messages import Image, Json, image_type
from alipes.kernel.turns import Address
from alipes.kernel.untrusted import escape_marks
from alipes.runtime.program_name import program_name

if TYPE_CHECKING:
    from alipes.core.app import App
    from alipes.store.ports.archive import SessionFacts

PLATFORM = "terminal"
MAX_IMAGE_BYTES = 20_000_000
MAX_TEXT_BYTES = 8_000_000
PIPE_WARNING_S = 2.0
MAX_TITLE = 40


class PipedInput(Struct, frozen=True):
    """Content of standard input: text or an image."""

    text: str = ""
    image: Image | None = None


def new_id() -> str:
    return f"{PLATFORM}:{os.urandom(12).hex()}"


class ConversationPlace(Struct, frozen=True):
    address: Address
    note: str = ""
    """That it was last used in another folder."""


async def find_conversation(
    choice: ConversationChoice, app: "App", workdir: str, prefix: str = ""
) -> ConversationPlace:
    """The named conversation, the latest of the folder `workdir`, or a new one, whose name starts with `prefix`.

    Raises ConfigError if there is none to continue, and `SessionError` if `--resume` matches none.
    """
    archive = app.store.archive
    if choice.resume:
        facts = await archive.resolve(choice.resume, title_start=True)
        return ConversationPlace(await activate_conversation(app, facts), _describe_move(facts, workdir))
    if choice.name:
        place = Address(PLATFORM, choice.name)
        return ConversationPlace(place, _describe_move(await archive.current(place.key), workdir))
    if not choice.latest:
        return ConversationPlace(new_address(prefix))
    if (latest := await archive.latest(PLATFORM, workdir)) is not None:
        return ConversationPlace(latest.address)
    elsewhere = await archive.latest(PLATFORM)
    if elsewhere is None:
        raise ConfigError("there is no conversation to continue; omit --continue to start one")
    there, title = format_folder(elsewhere.workdir), format_excerpt(elsewhere.title, MAX_TITLE)
    raise ConfigError(
        f"there is no conversation to continue in this folder. The latest one, {title}, is in {there}: use "
        f"`cd {quote_folder(elsewhere.workdir)} && alipes -c`, or `alipes -r {elsewhere.id[:ID]}` to continue it here"
    )


async def activate_conversation(app: "App", facts: "SessionFacts") -> Address:
    """The address where the conversation is active; one of another platform, or one that was left, moves to a new
    address of the terminal."""
    active = await app.store.sessions.active(facts.key)
    if facts.address.platform == PLATFORM and active is not None and active.session == facts.id:
        return facts.address
    place = new_address()
    switch = await app.store.sessions.switch(place, facts.id)
    await app.sessions.announce_switch(place.key, switch, "resume")
    return place


async def describe_return(app: "App", key: str, workdir: str) -> str:
    """How to come back to the conversation at `key`; empty if nothing was said in it."""
    archive = app.store.archive
    facts = await archive.current(key)
    if facts is None or not facts.turns:
        return ""
    latest = await archive.latest(PLATFORM, workdir)
    name = "-c" if latest is not None and latest.key == key else f"-r {facts.id[:ID]}"
    return f"Continue with: {program_name()} {name}"


def new_address(prefix: str = "") -> Address:
    return Address(PLATFORM, f"{prefix}{time.strftime('%y%m%d-%H%M')}-{os.urandom(3).hex()}")


def _describe_move(facts: "SessionFacts | None", workdir: str) -> str:
    if facts is None or facts.workdir in ("", workdir):
        return ""
    there, here = format_folder(facts.workdir), format_folder(workdir)
    return f"This conversation was last used in {there}. It continues here, in {here}."


def quote_folder(path: str) -> str:
    """The folder as a word for a shell."""
    return format_folder(path) if shlex.quote(path) == path else shlex.quote(path)


def format_folder(path: str) -> str:
    """The folder, with `~` for the home of the user."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path


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


MAX_SCHEMA_FILE_BYTES = 10_000_000
"""Much more than a schema may have, because of white space in the file."""


def read_schema(given: str) -> dict[str, Json]:
    """A JSON schema given as JSON or as the name of a file; empty if nothing is given. Raises ConfigError."""
    if not given:
        return {}
    from alipes.agent.answer_schema import MAX_SCHEMA_BYTES, parse_schema  # noqa: PLC0415
    from alipes.console.extras import offer_extra  # noqa: PLC0415

    if not offer_extra("schema"):
        raise SystemExit(2)
    if given.lstrip().startswith("{"):
        return parse_schema(given)
    try:
        with Path(given).expanduser().open("rb") as file:
            text = file.read(MAX_SCHEMA_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--schema {given}: {error.strerror or error}") from error
    if len(text) > MAX_SCHEMA_FILE_BYTES:
        raise ConfigError(f"--schema {given}: the limit is {MAX_SCHEMA_BYTES} bytes")
    return parse_schema(text.decode("utf-8", "replace"))


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
