"""Folders as one value: copied, hashed, counted. Links that lead out of them are refused."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from alipes.kernel.errors import ConfigError

PASSED_OVER = frozenset({".git", ".hg", ".svn", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Made by tools, and different every time: neither copied nor hashed."""


def files_of(folder: Path) -> Iterator[Path]:
    """Every file and link in it, sorted, as paths from `folder`."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - PASSED_OVER)
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in sorted([*files, *links]):
            if name not in PASSED_OVER and not name.endswith(".pyc"):
                yield Path(here, name).relative_to(folder)


def copy_tree(source: Path, target: Path) -> None:
    """A copy without what tools made. Raises ConfigError, and may leave part of it."""
    try:
        for path in files_of(source):
            _refuse_escape(source, path)
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / path, target / path, follow_symlinks=False)
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{source} cannot be copied: {error.strerror or error}.") from error


def hash_tree(folder: Path) -> str:
    """A sha256 over names, contents, links, and what may be executed."""
    total = hashlib.sha256()
    for path in sorted(files_of(folder), key=lambda path: path.as_posix().encode("utf-8", "surrogateescape")):
        file = folder / path
        if file.is_symlink():
            kind, digest = "link", hashlib.sha256(os.fsencode(os.readlink(file)))
        else:
            kind = "program" if file.stat().st_mode & 0o100 else "file"
            with open(file, "rb") as opened:
                digest = hashlib.file_digest(opened, "sha256")
        name = path.as_posix().encode("utf-8", "surrogateescape")
        total.update(b"%s %s %d %s\n" % (kind.encode(), digest.hexdigest().encode(), len(name), name))
    return total.hexdigest()


def measure(folder: Path) -> tuple[int, int]:
    """How many files, and their bytes."""
    sizes = [(folder / path).lstat().st_size for path in files_of(folder)]
    return len(sizes), sum(sizes)


def _refuse_escape(root: Path, path: Path) -> None:
    file = root / path
    if not file.is_symlink():
        return
    if os.path.isabs(os.readlink(file)) or not file.resolve().is_relative_to(root.resolve()):
        raise ConfigError(f"{path} is a link to {os.readlink(file)}, outside of the plugin: it is not taken.")
