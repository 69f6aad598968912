"""The files below a folder, for completion: without ignored files, found by a fuzzy search."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable

from alipes.config.protected_paths import is_secret_in_project
from alipes.runtime.fuzzy import best_matches, score_path
from alipes.tools.search.walker import IgnoreRules, load_ignore_rules

MAX_FILES = 50_000
MAX_SECONDS = 2.0
"""A larger tree is searched as far as it was listed in this time."""
FRESH_S = 3.0
"""A listing is used again for this long, and for a slow one twenty times as long as it took."""
MAX_FOUND = 50
SKIPPED_FOLDERS = frozenset(
    {".git", ".hg", ".svn", ".jj", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".ruff_cache"}
)
"""Never listed, even without an ignore file."""


class FileIndex:
    """Lists the folder when it is searched, and again when the listing is old."""

    def __init__(self, root: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._paths: list[str] = []
        self._valid_until = 0.0
        self._listing = asyncio.Lock()

    async def search(self, query: str) -> list[str]:
        """The best matching paths relative to the folder, best first; folders end with a slash."""
        async with self._listing:
            if self._clock() >= self._valid_until:
                begun = self._clock()
                self._paths = await asyncio.to_thread(list_tree, self._root)
                took = self._clock() - begun
                self._valid_until = begun + took + max(FRESH_S, 20 * took)
        return await asyncio.to_thread(_search, query, self._paths)


def _search(query: str, paths: list[str]) -> list[str]:
    return best_matches(query, paths, str, limit=MAX_FOUND, score=score_path)


def list_tree(root: str) -> list[str]:
    """Files and folders below `root` that are not ignored, the upper ones first."""
    ends, found = time.monotonic() + MAX_SECONDS, list[str]()
    root = os.path.realpath(root)
    waiting = deque([("", load_ignore_rules(root))])
    while waiting and len(found) < MAX_FILES and time.monotonic() < ends:
        folder, rules = waiting.popleft()
        folders, files = _list_folder(root, folder, rules)
        found += [*(path for path, _ in folders), *files]
        waiting += folders
    return found[:MAX_FILES]


def _list_folder(root: str, folder: str, rules: IgnoreRules) -> tuple[list[tuple[str, IgnoreRules]], list[str]]:
    """The folders with the rules that apply in them, and the files, both sorted."""
    where = os.path.join(root, folder)
    try:
        with os.scandir(where) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return [], []
    if folder:
        rules = rules.for_folder(where.rstrip("/"), {entry.name for entry in listed})
    folders, files = [], []
    for entry in listed:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not entry.name.isprintable() or (os.path.join(where, entry.name), is_folder) in rules:
            continue
        if is_folder:
            if entry.name not in SKIPPED_FOLDERS:
                folders.append((f"{folder}{entry.name}/", rules))
        elif not is_secret_in_project(entry.name):
            files.append(f"{folder}{entry.name}")
    return folders, files
