"""The memory files of a home: where they are, reading them, and writing them atomically under a lock.

`memory/MEMORY.md` and `memory/USER.md` are the owner's. Other people and groups have folders of their own below
`memory/people` and `memory/chats`.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from alipes.config.paths import sync_to_disk
from alipes.features.memory.change import MemoryTarget
from alipes.kernel.errors import ToolError

FILE_NAMES: dict[MemoryTarget, str] = {"memory": "MEMORY.md", "user": "USER.md"}
MAX_FILE_BYTES = 256_000
"""A longer file is not read."""
MAX_NAME_CHARS = 120
LOCK_TIMEOUT_S = 5.0
LOCK_POLL_S = 0.01


class MemoryFiles:
    """Reads and writes the files. Write only inside `lock`."""

    def __init__(self, folder: Path, lock_file: Path) -> None:
        self.folder, self._lock_file = folder, lock_file
        self._lock = asyncio.Lock()

    def path(self, scope: str, target: MemoryTarget) -> Path:
        return self.folder.joinpath(*map(_to_name, scope.split("/", 2) if scope else ()), FILE_NAMES[target])

    def read(self, scope: str, target: MemoryTarget) -> str:
        """The text; empty if there is no file. Raises `ToolError` if it cannot be read. It blocks."""
        path = self.path(scope, target)
        try:
            facts = path.stat()
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE_BYTES:
                raise ToolError(f"{path} cannot be read: it is not a text file of at most {MAX_FILE_BYTES // 1000} KB")
            with path.open("rb") as file:
                return file.read(MAX_FILE_BYTES).decode("utf-8-sig").replace("\r\n", "\n")
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError as error:  # replaced characters would be lost with the next change
            raise ToolError(f"{path} cannot be read: it is not UTF-8 text. Save it as UTF-8.") from error
        except OSError as error:
            raise ToolError(f"{path} cannot be read: {error.strerror}") from error

    def write(self, scope: str, target: MemoryTarget, text: str) -> None:
        """Replace the file, or delete it if the text is empty. Raises `ToolError`. It blocks."""
        path = Path(os.path.realpath(self.path(scope, target)))
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        try:
            if not text:
                path.unlink(missing_ok=True)
                return
            _make_folders(path.parent)
            with open(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(text.encode("utf-8", "replace"))
                file.flush()
                os.fsync(file.fileno())
            part.rename(path)
            sync_to_disk(path.parent)
        except OSError as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise ToolError(f"{path} cannot be written: {error.strerror}") from error

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """Nobody else writes meanwhile, in any process of the home. Raises `ToolError` if it stays locked."""
        async with self._lock:
            file = await self._open_lock()
            try:
                await _acquire(file)
                yield
            finally:
                os.close(file)  # which releases the lock

    async def _open_lock(self) -> int:
        opened = asyncio.get_running_loop().run_in_executor(None, self._open_lock_file)
        try:
            return await asyncio.shield(opened)
        except asyncio.CancelledError:
            opened.add_done_callback(_close_file)
            raise

    def _open_lock_file(self) -> int:
        try:
            self._lock_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ToolError(f"{self._lock_file} cannot be opened: {error.strerror}") from error


def _close_file(opened: "asyncio.Future[int]") -> None:
    """Nobody waits for the file any longer."""
    if not opened.cancelled() and opened.exception() is None:
        os.close(opened.result())


async def _acquire(file: int) -> None:
    deadline = asyncio.get_running_loop().time() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if asyncio.get_running_loop().time() > deadline:
                raise ToolError("not saved: another alipes process is writing the memory; try again") from None
            await asyncio.sleep(LOCK_POLL_S)
        else:
            return


def _make_folders(folder: Path) -> None:
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)


def _to_name(part: str) -> str:
    """The name of a platform, person or chat as the name of a folder: different for different names."""
    name = quote(part, safe="@+=,!", errors="surrogatepass")
    if len(name) > MAX_NAME_CHARS:
        digest = hashlib.sha256(part.encode(errors="surrogatepass")).hexdigest()[:16]
        name = f"{name[: MAX_NAME_CHARS - 17]}%{digest}"
    return f"%{name}" if name.startswith(".") or not name else name
