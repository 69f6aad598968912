"""Checkpoints of one folder: snapshots as git trees, each with a record of the turn it belongs to."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from alipes.features.checkpoints.folder import (
    FileRules,
    ProjectFolder,
    list_exclusions,
    list_foreign,
    parse_status,
    to_lines,
)
from alipes.features.checkpoints.git import CheckpointError, GitFailed, ShadowGit
from alipes.runtime.sandbox.policy import short_hash

BEFORE, AFTER = "refs/checkpoints/", "refs/after/"
"""The state before a turn, and the state at its end."""
CHECKED_FILE = "checked"
"""The last tree whose content was compared with the files of the folder."""
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
FOLDER_FILE = "folder"
"""The path of the folder, in a directory of the store."""
BATCH = 20_000
"""Files that are stored at a time: a snapshot that was stopped continues where it was."""
MAX_ROUNDS = 8
"""How deep repositories may be nested."""
MAX_SKIPPED = 2_000
"""Skipped files that are recorded."""
MAX_PACKS, MAX_LOOSE = 25, 3_000
"""With more than these the objects are packed again."""
_STATUS = (
    "--literal-pathspecs",
    "status",
    "--porcelain=v1",
    "-z",
    "--untracked-files=all",
    "--no-renames",
    "--ignore-submodules=all",
)
_STORE = ("-c", "core.bigFileThreshold=1", "update-index", "-z", "--add", "--remove", "--replace", "--stdin")
"""A low threshold makes git write all new files into one pack, which is ten times faster than one file each."""
_DIFF = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-prefix")
Kind: TypeAlias = Literal["turn", "rollback"]


class CheckpointRecord(Struct, frozen=True, omit_defaults=True):
    """What is stored with a snapshot."""

    turn: str = ""
    session: str = ""
    words: str = ""
    """The first words of the message."""
    time: float = 0.0
    kind: Kind = "turn"
    """`rollback`: made before files were restored."""
    skipped: tuple[str, ...] = ()
    """Files that existed and were not stored."""


class Checkpoint(Struct, frozen=True):
    number: int
    tree: str
    record: CheckpointRecord
    after: str = ""
    """The tree at the end of the turn; empty if it is still running, or the process was killed."""


class Snapshot(Struct, frozen=True):
    tree: str
    skipped: tuple[str, ...] = ()


class TreeChange(Struct, frozen=True):
    """A file that differs between two trees."""

    path: str
    blob: str
    """Its content in the second tree; empty if it is not there."""
    mode: str


class CheckpointStore:
    """The checkpoints of one folder. Enter `hold` first for everything but `git`."""

    def __init__(self, folder: ProjectFolder, git: ShadowGit, rules: FileRules, *, own_folders: Sequence[str]) -> None:
        """`own_folders`: those of alipes, which are never stored."""
        self.folder, self.git, self.rules = folder, git, rules
        self._own_folders = own_folders

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold the store, which is created if needed."""
        async with self.git.hold():
            self.git.create()
            (self.git.store / FOLDER_FILE).write_text(self.folder.path, errors="surrogateescape")
            yield

    async def snapshot(self) -> Snapshot:
        """The current state of the folder. If the store is damaged, it is created again, without its checkpoints."""
        try:
            return await self._snapshot()
        except GitFailed:
            if await self._is_healthy():
                return await self._snapshot()  # a file was changed while it was read
        await asyncio.to_thread(self.git.remove)
        self.git.create()
        return await self._snapshot()

    async def _snapshot(self) -> Snapshot:
        rules_changed = self._write_exclusions() or bool(self.folder.inner)
        skipped: tuple[str, ...] = ()
        pathspec = ("--", self.folder.inner) if self.folder.inner else ()
        for _ in range(MAX_ROUNDS):
            changes = parse_status(await self.git.run(*_STATUS, *pathspec), self.folder.inner)
            found = await asyncio.to_thread(self.rules.select, changes)
            skipped = tuple(found.skipped[:MAX_SKIPPED])
            rules_changed = rules_changed or any(_is_ignore_file(os.fsencode(each.path)) for each in changes)
            if found.forget:
                await self.git.run("update-index", "-z", "--force-remove", "--stdin", data=to_lines(found.forget))
            for batch in _split([*found.update, *found.nested], BATCH):
                await self.git.run(*_STORE, data=to_lines(batch))
            if not found.nested:
                break
        if rules_changed:
            ignored = await self.git.run("ls-files", "-z", "--cached", "--ignored", "--exclude-standard")
            if ignored:
                await self.git.run("update-index", "-z", "--force-remove", "--stdin", data=ignored)
        tree = (await self.git.run("write-tree")).decode().strip()
        if foreign := await self._find_foreign(tree):
            await self.git.run("update-index", "-z", "--force-remove", "--stdin", data=to_lines(foreign))
            skipped = (*skipped, *foreign)[:MAX_SKIPPED]
            tree = (await self.git.run("write-tree")).decode().strip()
        (self.git.store / CHECKED_FILE).write_text(tree)
        return Snapshot(tree, skipped)

    async def _find_foreign(self, tree: str) -> list[str]:
        """Files whose content in `tree` is not theirs: git opens them by name, and a name may have led elsewhere."""
        try:
            checked = (self.git.store / CHECKED_FILE).read_text()
            changes = await self.compare(checked, tree)
        except (OSError, GitFailed):
            changes = await self.compare(EMPTY_TREE, tree)
        files = {each.path: each.blob for each in changes if each.mode.startswith("100")}
        return await asyncio.to_thread(list_foreign, self.folder.root, files)

    def _write_exclusions(self) -> bool:
        """True if they differ from the last time."""
        file = self.git.directory / "info" / "exclude"
        text = list_exclusions(self.folder, self._own_folders).encode(errors="surrogateescape")
        if file.exists() and file.read_bytes() == text:
            return False
        file.write_bytes(text)
        return True

    async def _is_healthy(self) -> bool:
        try:
            await self.git.run("write-tree")
            await self.list_all()
        except GitFailed:
            return False
        return True

    async def list_all(self) -> list[Checkpoint]:
        """All checkpoints, oldest first."""
        form = "--format=%(refname) %(tree) %(contents:subject)"
        output = (await self.git.run("for-each-ref", form, BEFORE, AFTER)).decode(errors="replace")
        rows = [line.split(" ", 2) for line in output.splitlines()]
        after = {name.removeprefix(AFTER): tree for name, tree, _ in rows if name.startswith(AFTER)}
        found = []
        for name, tree, subject in rows:
            number = name.removeprefix(BEFORE)
            if name.startswith(BEFORE) and number.isdigit():
                record = msgspec.json.decode(subject, type=CheckpointRecord)
                found.append(Checkpoint(int(number), tree, record, after.get(number, "")))
        return sorted(found, key=lambda each: each.number)

    async def add(self, snapshot: Snapshot, record: CheckpointRecord) -> Checkpoint:
        """Store a checkpoint under the next number."""
        number = self._last_number() + 1
        stored = msgspec.structs.replace(record, time=record.time or time.time(), skipped=snapshot.skipped)
        commit = await self._commit(snapshot.tree, stored)
        lines = f"option no-deref\nupdate HEAD {commit}\ncreate {BEFORE}{number:08} {commit}\n"
        (self.git.store / "number").write_text(str(number))  # first: no number is used twice
        await self.git.run("update-ref", "--stdin", data=lines.encode())
        return Checkpoint(number, snapshot.tree, stored)

    async def finish(self, checkpoint: Checkpoint, snapshot: Snapshot) -> bool:
        """Store the state at the end of its turn. False if nothing changed: then the checkpoint is removed."""
        if snapshot.tree == checkpoint.tree:
            await self.remove((checkpoint,))
            return False
        commit = await self._commit(snapshot.tree, CheckpointRecord(time=time.time()))
        lines = f"option no-deref\nupdate HEAD {commit}\nupdate {AFTER}{checkpoint.number:08} {commit}\n"
        await self.git.run("update-ref", "--stdin", data=lines.encode())
        return True

    async def remove(self, checkpoints: Iterable[Checkpoint]) -> None:
        lines = "".join(
            f"delete {kind}{each.number:08}\n"
            for each in checkpoints
            for kind in ((BEFORE, AFTER)[: 2 if each.after else 1])
        )
        if lines:
            await self.git.run("update-ref", "--stdin", data=lines.encode())

    def _last_number(self) -> int:
        """The highest number so far. Numbers of removed checkpoints are not used again."""
        try:
            return int((self.git.store / "number").read_text())
        except (OSError, ValueError):
            refs = self.git.directory / BEFORE
            return max((int(each.name) for each in refs.glob("[0-9]*") if each.name.isdigit()), default=0)

    async def _commit(self, tree: str, record: CheckpointRecord) -> str:
        message = msgspec.json.encode(record)
        return (await self.git.run("commit-tree", tree, "-F", "-", data=message)).decode().strip()

    async def compare(self, old: str, new: str) -> list[TreeChange]:
        """The files that differ between two trees."""
        if old == new:
            return []
        output = await self.git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new)
        fields = output.split(b"\0")
        found = []
        for facts, path in zip(fields[0::2], fields[1::2], strict=False):
            _, mode, _, blob, status = facts.decode().split()
            gone = status.startswith("D")
            found.append(TreeChange(os.fsdecode(path), "" if gone else blob, "" if gone else mode))
        return found

    async def diff(self, old: str, new: str) -> str:
        """The difference between two trees, for people."""
        output = await self.git.run("diff", *_DIFF, "--src-prefix=a/", "--dst-prefix=b/", old, new)
        return output.decode(errors="replace")

    async def ignored_at(self, tree: str, paths: Sequence[str]) -> set[str]:
        """Those of `paths` that the .gitignore files in `tree` ignore."""
        listed = await self.git.run("ls-tree", "-r", "-z", "--full-tree", tree)
        files = [entry.split(b"\t", 1) for entry in filter(None, listed.split(b"\0"))]
        rules = {os.fsdecode(path): facts.split()[2].decode() for facts, path in files if _is_ignore_file(path)}
        if not rules or not paths:
            return set()
        copy = self.git.store / "scratch" / "ignore"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir(parents=True)
        try:
            for path, blob in rules.items():
                target = copy / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(await self.git.run("cat-file", "blob", blob))
            check = (f"--work-tree={copy}", "check-ignore", "--no-index", "-z", "--stdin")
            given = to_lines(f"./{path}" for path in paths)  # a path may begin with a colon
            output = await self.git.run(*check, data=given, allowed=1)  # 1: none is ignored
            return {os.fsdecode(path).removeprefix("./") for path in output.split(b"\0") if path}
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    async def read_blobs(self, blobs: Sequence[str], batch_bytes: int = 32 << 20) -> AsyncIterator[dict[str, bytes]]:
        """The contents, in portions that fit into memory."""
        wanted = list(dict.fromkeys(blobs))
        checked = await self.git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", data=_lines(wanted))
        sizes = dict(line.split() for line in checked.decode().splitlines())
        while wanted:
            portion, room = list[str](), batch_bytes
            while wanted and (not portion or room >= int(sizes[wanted[0]])):
                room -= int(sizes[wanted[0]])
                portion.append(wanted.pop(0))
            yield _parse_batch(await self.git.run("cat-file", "--batch", data=_lines(portion)))

    async def repack(self) -> None:
        """Free the space of removed checkpoints."""
        await self.git.run("-c", "pack.threads=1", "repack", "-a", "-d", "-q")
        await self.git.run("prune", "--expire=now")

    def needs_repack(self) -> bool:
        objects = self.git.directory / "objects"
        packs = len(list((objects / "pack").glob("*.pack")))
        return packs > MAX_PACKS or sum(1 for _ in objects.glob("??/*")) > MAX_LOOSE


def _is_ignore_file(path: bytes) -> bool:
    return path == b".gitignore" or path.endswith(b"/.gitignore")


def _split(paths: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    yield from (paths[at : at + size] for at in range(0, len(paths), size))


def _lines(items: Iterable[str]) -> bytes:
    return "".join(f"{each}\n" for each in items).encode()


def _parse_batch(output: bytes) -> dict[str, bytes]:
    """The contents in the output of `git cat-file --batch`."""
    found, at = dict[str, bytes](), 0
    while at < len(output):
        end = output.index(b"\n", at)
        name, _, *size = output[at:end].split()
        if not size:
            raise CheckpointError(f"the store is damaged: {name.decode()} is missing")
        start, length = end + 1, int(size[0])
        found[name.decode()] = output[start : start + length]
        at = start + length + 1
    return found


def store_path(stores: Path, folder: str) -> Path:
    """The directory of the checkpoints of a folder."""
    return stores / short_hash(folder)
