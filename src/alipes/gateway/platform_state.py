"""Shares the state files of messengers, such as read positions, between the processes of a cluster.

A messenger reads and writes files in its own folder. The process that receives its messages gets the files from the
store first, and stores those that change. An old read position is harmless: known messages are ignored.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from alipes.kernel.errors import StoreError
from alipes.runtime.tasks import run_to_completion
from alipes.store.ports.cluster import PlatformStates

SAVE_INTERVAL_S = 1.0
MAX_FILE_BYTES = 1_000_000
_SUFFIXES = (".json", ".jsonl")
"""Keys and databases of a messenger stay on their machine."""


class SharedStates:
    """The state files of all platforms, each in the folder of its name."""

    def __init__(self, states: PlatformStates | None, folder: str) -> None:
        """`states`: None if this process is the only one that serves."""
        self._states, self._folder = states, Path(folder)

    @asynccontextmanager
    async def share(self, platform: str) -> AsyncIterator[None]:
        """Fetch the files of a platform, and store their changes until the context ends."""
        if self._states is None:
            yield
            return
        folder = self._folder / platform
        await asyncio.to_thread(_write_files, folder, await self._states.load(platform))
        saved = await asyncio.to_thread(_read_times, folder)
        try:
            async with asyncio.TaskGroup() as group:
                saver = group.create_task(self._save_periodically(platform, folder, saved), name=f"state of {platform}")
                yield
                saver.cancel()
        finally:  # the platform is closed and has written its last position
            with suppress(StoreError):  # the next one reads from an older position
                await run_to_completion(partial(self._save, platform, folder, saved))

    async def _save_periodically(self, platform: str, folder: Path, saved: dict[str, int]) -> None:
        while True:
            await asyncio.sleep(SAVE_INTERVAL_S)
            await self._save(platform, folder, saved)

    async def _save(self, platform: str, folder: Path, saved: dict[str, int]) -> None:
        assert self._states is not None
        for name, (time, data) in (await asyncio.to_thread(_read_changed, folder, dict(saved))).items():
            await self._states.save(platform, name, data)
            saved[name] = time  # only now: a cancelled save is repeated at the end


def _state_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of the state files of a messenger: in its folder, or one level below."""
    for pattern in ("*", "*/*"):
        for path in folder.glob(pattern):
            if path.suffix in _SUFFIXES and not path.name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path.relative_to(folder).as_posix(), path


def _read_times(folder: Path) -> dict[str, int]:
    return {name: path.stat().st_mtime_ns for name, path in _state_files(folder)}


def _read_changed(folder: Path, saved: dict[str, int]) -> dict[str, tuple[int, bytes]]:
    """The times and contents of files that changed since `saved`."""
    changed = {}
    for name, path in _state_files(folder):
        time = path.stat().st_mtime_ns
        if saved.get(name) != time and path.stat().st_size <= MAX_FILE_BYTES:
            changed[name] = time, path.read_bytes()
    return changed


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        if path.suffix not in _SUFFIXES or not path.resolve().is_relative_to(folder.resolve()):
            continue
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.part")
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
        os.replace(part, path)
