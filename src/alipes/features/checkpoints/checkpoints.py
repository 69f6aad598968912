"""Checkpoints of all projects of a home: making, listing, comparing and restoring them."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from alipes.features.checkpoints.folder import FileRules, ProjectFolder, find_folder
from alipes.features.checkpoints.git import GIT_MISSING, CheckpointError, ShadowGit, find_git
from alipes.features.checkpoints.prune import prune_stores
from alipes.features.checkpoints.restore import FolderWriter, open_folder_writer
from alipes.features.checkpoints.settings import CheckpointsConfig
from alipes.features.checkpoints.store import (
    Checkpoint,
    CheckpointRecord,
    CheckpointStore,
    Snapshot,
    TreeChange,
    store_path,
)
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox.backend import CommandBackend, HostBackend
from alipes.tools.common import Places

TIMEOUT_S = 30.0
"""Seconds that a snapshot may take; one that is stopped continues with the next turn."""


class NoCheckpoint(CheckpointError):
    """There is none of this number."""


class ListedCheckpoint(Struct, frozen=True):
    """A checkpoint as it is shown."""

    checkpoint: Checkpoint
    files: tuple[str, ...]
    """What its turn changed."""


class RestorePlan(Struct, frozen=True):
    """What restoring a checkpoint would do. Paths are relative to the root of the folder."""

    write: tuple[TreeChange, ...] = ()
    remove: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Files that differ, but are left alone: they existed and were not stored, or something else is there now."""
    conflicts: tuple[str, ...] = ()
    """Files that were changed since by hand, by a background process or by another conversation."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted((*(each.path for each in self.write), *self.remove)))


class RestoreResult(Struct, frozen=True):
    plan: RestorePlan
    undo: int = 0
    """The checkpoint of the state before; 0 if nothing was done."""
    failed: tuple[str, ...] = ()
    """Files that could not be written or removed, with the reason."""


class Checkpoints:
    """All checkpoints of this home."""

    def __init__(
        self,
        stores: Path,
        config: CheckpointsConfig,
        places: Places,
        *,
        guard: OrphanGuard | None = None,
        backend: CommandBackend | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`stores`: their directory in the home. `backend`: where commands run."""
        self._stores, self._config, self._places = stores, config, places
        self._guard, self._backend, self._timeout_s = guard, backend or HostBackend(guard), timeout_s
        self._locks: dict[str, asyncio.Lock] = {}

    def why_off(self, workdir: str) -> str:
        """Why there are no checkpoints of this folder, as the rest of a sentence; empty if there are."""
        try:
            self._find_folder(workdir)
        except CheckpointError as error:
            return str(error)
        return ""

    async def make(self, workdir: str, record: CheckpointRecord, *, again: bool = False) -> Checkpoint:
        """Make a checkpoint of the folder. `again`: if the turn has one already, that is returned. Raises
        `CheckpointError`."""
        async with self._limit_time(), self._open(self._find_folder(workdir)) as store:
            known = await store.list_all() if again else []
            found = next((each for each in known if each.record.turn == record.turn), None)
            return found or await store.add(await store.snapshot(), record)

    async def finish(self, workdir: str, checkpoint: Checkpoint) -> None:
        """Record the state at the end of its turn. Raises `CheckpointError`."""
        async with self._limit_time(), self._open(self._find_folder(workdir)) as store:
            await store.finish(checkpoint, await store.snapshot())

    @asynccontextmanager
    async def _limit_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s):
                yield
        except TimeoutError:
            raise CheckpointError(f"the snapshot takes longer than {self._timeout_s:g} s") from None
        except OSError as error:
            raise CheckpointError(str(error)) from error

    async def prune(self) -> None:
        """Remove what exceeds the limits. It may be cancelled at any point."""
        await prune_stores(self._stores, self._config, self._open_existing)

    async def list_checkpoints(self, workdir: str) -> list[ListedCheckpoint]:
        """The checkpoints of a folder, latest first, without those whose turn changed nothing. Raises
        `CheckpointError`."""
        async with self._open(self._find_folder(workdir)) as store:
            known = await store.list_all()
            now = "" if not known or known[-1].after else (await store.snapshot()).tree
            nexts = [*(each.tree for each in known[1:]), now]
            shown = []
            for checkpoint, following in zip(known, nexts, strict=False):
                changed = await store.compare(checkpoint.tree, checkpoint.after or following)
                if changed:
                    shown.append(ListedCheckpoint(checkpoint, tuple(each.path for each in changed)))
        return shown[::-1]

    async def diff(self, workdir: str, number: int) -> str:
        """What has changed since a checkpoint. Raises `CheckpointError`."""
        async with self._open(self._find_folder(workdir)) as store:
            checkpoint = _pick(await store.list_all(), number)
            return await store.diff(checkpoint.tree, (await store.snapshot()).tree)

    async def find(self, workdir: str, number: int) -> Checkpoint:
        """Raises `CheckpointError` if there is none of this number."""
        async with self._open(self._find_folder(workdir)) as store:
            return _pick(await store.list_all(), number)

    async def restore(self, workdir: str, number: int, *, session: str = "", force: bool = False) -> RestoreResult:
        """Restore the files of a checkpoint, after one of the current state was made.

        Nothing is done if there are conflicts, unless `force` is set: see the plan. `session`: the conversation whose
        own changes are no conflicts. Raises `CheckpointError`.
        """
        folder = self._find_folder(workdir)
        async with self._open(folder) as store:
            known = await store.list_all()
            target, now = _pick(known, number), await store.snapshot()
            plan = await _make_plan(store, known, target, now, session=session)
            if not plan.paths or (plan.conflicts and not force):
                return RestoreResult(plan)
            words = f"rollback to {number}"
            made = await store.add(now, CheckpointRecord(session=session, words=words, kind="rollback"))
            failed = await _apply(store, plan)
            await store.finish(made, await store.snapshot())
        return RestoreResult(plan, made.number, failed)

    def _find_folder(self, workdir: str) -> ProjectFolder:
        if not self._config.enabled:
            raise CheckpointError("they are switched off (checkpoints.enabled = false)")
        if not find_git():
            raise CheckpointError(f"{GIT_MISSING}; install it (apt install git)")
        if self._backend.name == "ssh":
            raise CheckpointError("the project is on another machine (sandbox.backend = ssh)")
        return find_folder(workdir, self._places.home)

    @asynccontextmanager
    async def _open(self, folder: ProjectFolder) -> AsyncIterator[CheckpointStore]:
        """The store of a folder, for one user at a time."""
        async with self._locks.setdefault(folder.path, asyncio.Lock()):
            store = self._make_store(folder)
            async with store.hold():
                yield store

    @asynccontextmanager
    async def _open_existing(self, folder: ProjectFolder) -> AsyncIterator[CheckpointStore | None]:
        """The store of a folder, for removing checkpoints; None if somebody uses it."""
        lock = self._locks.setdefault(folder.path, asyncio.Lock())
        if lock.locked():
            yield None
            return
        async with lock:
            store = self._make_store(folder)
            async with store.git.hold(wait=False) as held:
                yield store if held else None

    def _make_store(self, folder: ProjectFolder) -> CheckpointStore:
        program = find_git()
        git = ShadowGit(store_path(self._stores, folder.path), folder.root, program=program, guard=self._guard)
        limits = {"max_file_bytes": self._config.max_file_mb << 20, "max_bytes": self._config.max_mb << 20}
        rules = FileRules(folder, self._places, **limits)
        return CheckpointStore(folder, git, rules, own_folders=self._places.own_folders)


def _pick(known: Sequence[Checkpoint], number: int) -> Checkpoint:
    found = next((each for each in known if each.number == number), None)
    if found is None:
        raise NoCheckpoint(f"There is no checkpoint {number}.")
    return found


async def _make_plan(
    store: CheckpointStore, known: Sequence[Checkpoint], target: Checkpoint, now: Snapshot, *, session: str
) -> RestorePlan:
    changes = await store.compare(now.tree, target.tree)
    gone = [each.path for each in changes if not each.blob]
    if any(os.path.basename(each.path) == ".gitignore" for each in changes):
        ignored = await store.ignored_at(target.tree, gone)
    else:
        ignored = set()
    spared = {*target.record.skipped, *ignored}
    present = {each.path for each in await store.compare(target.tree, now.tree) if each.blob}
    write, remove, kept = await asyncio.to_thread(_check_files, store, target, changes, (spared, present))
    foreign = await _foreign_changes(store, [each for each in known if each.number >= target.number], now, session)
    planned = {*(each.path for each in write), *remove}
    return RestorePlan(tuple(write), tuple(remove), tuple(kept), tuple(sorted(planned & foreign)))


def _check_files(
    store: CheckpointStore, target: Checkpoint, changes: Sequence[TreeChange], known: tuple[set[str], set[str]]
) -> tuple[list[TreeChange], list[str], list[str]]:
    """What to write, to remove and to leave alone. `known`: files that existed without being stored, and files of the
    current state."""
    spared, present = known
    write, remove, kept = list[TreeChange](), list[str](), list[str]()
    with open_folder_writer(store.folder.root) as writer:
        for change in changes:
            facts = writer.facts(change.path)
            if not change.blob:
                # a file that was last changed before the checkpoint existed then, whatever the reason it is not in it
                existed = change.path in spared or (facts is not None and facts.st_ctime < target.record.time - 1)
                (kept if existed else remove).append(change.path)
            elif change.path not in present and _is_blocked(writer, change.path, present):
                kept.append(change.path)
            else:
                write.append(change)
    return write, remove, kept


def _is_blocked(writer: FolderWriter, path: str, present: set[str]) -> bool:
    """True if something that is not part of the current state is in the way."""
    if (facts := writer.facts(path)) is not None and not stat.S_ISDIR(facts.st_mode):
        return True
    parents = path.split("/")[:-1]
    for at in range(1, len(parents) + 1):
        folder = "/".join(parents[:at])
        facts = writer.facts(folder)
        if facts is not None and not stat.S_ISDIR(facts.st_mode):
            return folder not in present
    return False


async def _foreign_changes(
    store: CheckpointStore, since: Sequence[Checkpoint], now: Snapshot, session: str
) -> set[str]:
    """The files that were changed between turns, or by other conversations."""
    found = set[str]()
    for checkpoint, following in zip(since, [*(each.tree for each in since[1:]), now.tree], strict=True):
        pairs = [(checkpoint.after, following)] if checkpoint.after else []
        if session and checkpoint.record.session not in ("", session):
            pairs.append((checkpoint.tree, checkpoint.after or following))
        for old, new in pairs:
            found |= {each.path for each in await store.compare(old, new)}
    return found


async def _apply(store: CheckpointStore, plan: RestorePlan) -> tuple[str, ...]:
    failed = list[str]()
    with open_folder_writer(store.folder.root) as writer:

        def attempt(path: str, act: Callable[[], None]) -> None:
            try:
                act()
            except (OSError, ValueError) as error:
                failed.append(f"{path}: {error.strerror if isinstance(error, OSError) else error}")

        for path in plan.remove:  # first, because a file may be in the place of a folder
            await asyncio.to_thread(attempt, path, partial(writer.remove, path))
        waiting: dict[str, list[TreeChange]] = {}
        for change in plan.write:
            waiting.setdefault(change.blob, []).append(change)
        async for blobs in store.read_blobs(list(waiting)):
            for blob, data in blobs.items():
                for change in waiting[blob]:
                    await asyncio.to_thread(attempt, change.path, partial(writer.write, change.path, data, change.mode))
    return tuple(failed)
