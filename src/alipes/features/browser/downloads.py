"""Saves downloaded files into the folder `downloads` of the project, under harmless names and up to a size."""

import asyncio
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from alipes.features.browser.session import BrowserSession
from alipes.kernel.errors import ToolError
from alipes.tools.common import CommitGate, run_in_thread

if TYPE_CHECKING:
    from playwright.async_api import Download

FOLDER = "downloads"
MAX_NAME_CHARS = 100
MAX_COPIES = 1000
CHUNK_BYTES = 1 << 20
POLL_S = 0.1
ORIGIN_ATTRIBUTE = "user.xdg.origin.url"
"""Marks the file as downloaded: what it says is a stranger's text."""
_NOT_IN_NAMES = re.compile(r"[^\w.+@() -]+")

FETCH_AS_DOWNLOAD = """
async ([url, most]) => {
  const answer = await fetch(url, {credentials: "include"});
  if (!answer.ok) return `the server answered with status ${answer.status}`;
  const parts = [], reader = answer.body.getReader();
  for (let size = 0;;) {
    const {done, value} = await reader.read();
    if (done) break;
    if ((size += value.length) > most) { await reader.cancel(); return "too large"; }
    parts.push(value);
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts));
  link.download = decodeURIComponent(new URL(url, location.href).pathname.split("/").pop()) || "download";
  link.click();
  return "";
}
"""
"""In a page: fetch a file of the same site that Chromium would show instead of saving it."""


def clean_file_name(name: str) -> str:
    """The name that a server or page suggested, without folders, hidden and special characters."""
    plain = _NOT_IN_NAMES.sub("_", name.replace("\\", "/").rpartition("/")[2])
    plain = re.sub(r"\.{2,}", ".", plain).strip(" .-_")
    if not plain:
        return "download"
    if len(plain.encode()) <= MAX_NAME_CHARS:
        return plain
    stem, dot, suffix = plain.rpartition(".")
    kept = f"{dot}{suffix}" if dot and len(suffix.encode()) <= 10 else ""
    return (stem if kept else plain).encode()[: MAX_NAME_CHARS - len(kept)].decode(errors="ignore") + kept


async def wait_for_file(session: BrowserSession, download: "Download", max_bytes: int) -> Path:
    """Wait until Chromium has the whole file. Raises `ToolError` if it is too large or incomplete."""
    too_large = f"{_name(download)} is larger than {max_bytes // 1_000_000:,} MB (browser.download_mb)"
    async with asyncio.TaskGroup() as group:
        finishing = group.create_task(download.failure())
        while not finishing.done():
            await asyncio.wait({finishing}, timeout=POLL_S)
            if is_too_large := await asyncio.to_thread(_size_of, session.downloads) > max_bytes:
                await download.cancel()
                break
    if is_too_large:
        raise ToolError(too_large)
    if why := finishing.result():
        raise ToolError(f"{_name(download)} was not downloaded: {why}")
    return Path(await download.path())


async def save_file(source: Path, workdir: str, name: str, url: str) -> Path:
    """Copy a file into the project's folder of downloads; an existing file is never replaced."""

    def copy(gate: CommitGate) -> Path:
        gate.enter()
        return _copy(source, Path(workdir or os.getcwd()), clean_file_name(name), url)

    try:
        return await run_in_thread(copy)
    except OSError as error:
        raise ToolError(f"{name[:100]} cannot be saved in {FOLDER}/: {error.strerror or error}") from error


def _copy(source: Path, workdir: Path, name: str, url: str) -> Path:
    folder = workdir / FOLDER
    folder.mkdir(exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)  # not a link to somewhere else
    try:
        for number in range(MAX_COPIES):
            chosen = name if not number else _numbered(name, number)
            with suppress(FileExistsError):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(chosen, flags, 0o644, dir_fd=handle), "wb") as target, source.open("rb") as file:
                    _mark(target.fileno(), url)
                    while chunk := file.read(CHUNK_BYTES):
                        target.write(chunk)
                return folder / chosen
    finally:
        os.close(handle)
    raise FileExistsError(0, f"there are {MAX_COPIES} files of this name")


def _mark(handle: int, url: str) -> None:
    with suppress(OSError, AttributeError):  # a file system or system without extended attributes
        os.setxattr(handle, ORIGIN_ATTRIBUTE, url.partition("?")[0][:500].encode())


def _numbered(name: str, number: int) -> str:
    path = Path(name)
    return f"{path.stem}-{number}{path.suffix}"


def _size_of(folder: Path) -> int:
    """Bytes of all files in it."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                total += entry.stat().st_size
    return total


def _name(download: "Download") -> str:
    return clean_file_name(download.suggested_filename)
