"""Pictures from the clipboard, and files that were dropped on the terminal or pasted as a path."""

import asyncio
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer

from alipes.cli.terminal.input.completion import quote_mention
from alipes.config.environment import process_environment
from alipes.kernel.messages import image_type

MAX_PASTE_CHARS = 4096
MAX_PICTURE_BYTES = 20_000_000
TIMEOUT_S = 3.0
HINT_S = 3.0
KEPT_DAYS = 7
"""Pictures from the clipboard are deleted after this time."""
PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
PROGRAMS = (
    (("WAYLAND_DISPLAY",), ("wl-paste", "--no-newline", "--type", "image/png")),
    (("DISPLAY",), ("xclip", "-selection", "clipboard", "-target", "image/png", "-out")),
    ((), ("pngpaste", "-")),
)
"""Programs that write the picture in the clipboard to standard output, and the variables they need."""


def mention_pasted_files(data: str) -> str:
    """The pasted text as `@` mentions if it consists of paths of pictures or of file URLs; else empty."""
    text = data.strip()
    if not text or len(text) > MAX_PASTE_CHARS:
        return ""
    paths = _split_paths(text)
    if not paths or not all(_is_offered(path, url=url) for path, url in paths):
        return ""
    return "".join(quote_mention(path) for path, _ in paths)


def _split_paths(text: str) -> list[tuple[str, bool]]:
    """Absolute paths as terminals paste dropped files (quoted, escaped, or URLs), and whether it was a URL."""
    if os.path.isabs(text) and os.path.isfile(text):
        return [(text, False)]  # not quoted, perhaps with blanks
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    found = []
    for word in words:
        url = word.startswith("file://")
        path = unquote(urlsplit(word).path) if url else os.path.expanduser(word)
        if not os.path.isabs(path):
            return []
        found.append((path, url))
    return found


def _is_offered(path: str, *, url: bool) -> bool:
    try:
        exists = os.path.isfile(path) or (url and os.path.isdir(path))
    except ValueError:  # a null byte
        return False
    return exists and path.isprintable() and '"' not in path and (url or path.lower().endswith(PICTURE_ENDINGS))


class ClipboardPictures:
    """Inserts the picture in the clipboard into the input: a label for the `@` mention of a saved file."""

    def __init__(self, buffer: Buffer, hint: Callable[[str, float], None], add_picture: Callable[[str], str]) -> None:
        """`add_picture`: the label to insert for a mention."""
        self._buffer, self._hint, self._add_picture = buffer, hint, add_picture
        self.folder = Path()
        """Where the pictures are saved."""

    def request(self) -> None:
        get_app().create_background_task(self._insert())

    async def _insert(self) -> None:
        path = await save_clipboard_picture(self.folder, process_environment())
        if path is None:
            self._hint("No picture in the clipboard (needs wl-paste, xclip or pngpaste)", HINT_S)
        else:
            self._buffer.insert_text(self._add_picture(quote_mention(str(path)).strip()) + " ")


async def save_clipboard_picture(folder: Path, environ: Mapping[str, str]) -> Path | None:
    """Save the picture in the clipboard into `folder`; None if there is none, or no program that can read it."""
    for variables, command in PROGRAMS:
        program = shutil.which(command[0], path=environ.get("PATH", os.defpath))
        if program is None or not all(environ.get(name) for name in variables):
            continue
        data = await _read_output((program, *command[1:]), environ)
        if image_type(data) and len(data) <= MAX_PICTURE_BYTES:
            return await asyncio.to_thread(_save, folder, data)
    return None


async def _read_output(argv: tuple[str, ...], environ: Mapping[str, str]) -> bytes:
    devnull = asyncio.subprocess.DEVNULL
    try:
        child = await asyncio.create_subprocess_exec(
            *argv, env=dict(environ), stdin=devnull, stdout=asyncio.subprocess.PIPE, stderr=devnull
        )
    except OSError:
        return b""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, _ = await child.communicate()
            return output
    except TimeoutError:
        return b""
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def _save(folder: Path, data: bytes) -> Path | None:
    """Write the picture with a new name; old ones are deleted."""
    kind = image_type(data).partition("/")[2]
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        for old in folder.iterdir():
            with suppress(OSError):
                if old.stat().st_mtime < time.time() - KEPT_DAYS * 86_400:
                    old.unlink()
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}.{kind}"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            file.write(data)
    except OSError:
        return None
    return path
