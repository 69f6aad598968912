"""Limits of the checkpoint store: removes old checkpoints and those of folders that are gone, and frees their space."""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from alipes.features.checkpoints.folder import ProjectFolder
from alipes.features.checkpoints.git import CheckpointError
from alipes.features.checkpoints.settings import CheckpointsConfig
from alipes.features.checkpoints.store import BEFORE, FOLDER_FILE, CheckpointStore

log = logging.getLogger(__name__)
KEEP_ORPHANS_S = 7 * 86400.0
"""How long the checkpoints of a folder that no longer exists are kept."""
OpenStore: TypeAlias = Callable[[ProjectFolder], AbstractAsyncContextManager[CheckpointStore | None]]


class StoredFolder(Struct, frozen=True):
    """A folder with checkpoints."""

    store: Path
    folder: str
    checkpoints: int
    size: int
    """Bytes on disk."""
    used: float
    """When the last checkpoint was made."""
    exists: bool


def list_stored_folders(stores: Path) -> list[StoredFolder]:
    """All folders with checkpoints, the longest unused first. Blocking; does not need git."""
    found = []
    for store in stores.iterdir() if stores.is_dir() else ():
        try:
            folder = (store / FOLDER_FILE).read_text(errors="surrogateescape")
            refs = os.listdir(store / "git" / BEFORE) if (store / "git" / BEFORE).is_dir() else []
            used = max((store / each).stat().st_mtime for each in (FOLDER_FILE, "lock") if (store / each).exists())
        except OSError:  # being created or removed
            continue
        found.append(StoredFolder(store, folder, len(refs), _measure(store), used, os.path.isdir(folder)))
    return sorted(found, key=lambda each: each.used)


def _measure(folder: Path) -> int:
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(where, name)).st_size
            except OSError:
                continue
    return size


async def prune_stores(stores: Path, config: CheckpointsConfig, open_store: OpenStore) -> None:
    """Apply the limits to all folders. It may be cancelled at any point."""
    for stored in await asyncio.to_thread(list_stored_folders, stores):
        async with open_store(_as_folder(stored)) as store:
            if store is None:
                continue
            if not stored.exists and time.time() - stored.used > KEEP_ORPHANS_S:
                await asyncio.to_thread(_remove_store, stored.store)
            elif stored.checkpoints > config.keep or store.needs_repack():
                await _shorten(store, config.keep)
    await _limit_size(stores, config.max_mb << 20, open_store)


async def _limit_size(stores: Path, max_bytes: int, open_store: OpenStore) -> None:
    """Remove the older half of the longest unused folder until all fit; a folder with one checkpoint as a whole."""
    busy = set[Path]()
    while True:
        stored = [each for each in await asyncio.to_thread(list_stored_folders, stores) if each.store not in busy]
        if sum(each.size for each in stored) <= max_bytes or not stored:
            return
        # the folder in use comes last; if it alone is too large, it loses its old checkpoints
        chosen = stored[0]
        async with open_store(_as_folder(chosen)) as store:
            if store is None:
                busy.add(chosen.store)
            elif chosen.checkpoints <= 1:
                await asyncio.to_thread(_remove_store, chosen.store)
            else:
                await _shorten(store, chosen.checkpoints // 2)


async def _shorten(store: CheckpointStore, keep: int) -> None:
    try:
        known = await store.list_all()
        await store.remove(known[: max(0, len(known) - keep)])
        await store.repack()
    except CheckpointError as error:
        log.warning("the checkpoints of %s are damaged: %s", store.folder.path, error)
        await asyncio.to_thread(_remove_store, store.git.store)


def _remove_store(store: Path) -> None:
    log.info("checkpoints in %s are removed", store)
    shutil.rmtree(store, ignore_errors=True)


def _as_folder(stored: StoredFolder) -> ProjectFolder:
    return ProjectFolder(stored.folder, stored.folder)
