"""Folders of this machine, copied to the machine where commands run: read-only, and removed with the connection.

Commands name such a folder by its path here; the path there takes its place.
"""

import asyncio
import hashlib
import io
import os
import re
import secrets
import shlex
import stat
import tarfile
from collections.abc import Callable, Sequence
from typing import Protocol

MAX_BYTES = 50 * 2**20
"""Of one folder."""
COPY = """
umask 077
[ -d "$1" ] || mkdir -- "$1" || exit
mkdir -- "$1/$2" && tar -xof - -C "$1/$2" && chmod -R a-w -- "$1/$2"
"""


class RemoteInput(Protocol):
    async def __call__(self, argv: Sequence[str], data: bytes) -> None:
        """Run something there with this input. Raises OSError if it fails."""


class RemoteFolders:
    """The copies of one connection."""

    def __init__(self, folders: Callable[[str], Sequence[str]], run: RemoteInput) -> None:
        """`folders`: the folders that commands of a project may read."""
        self._folders, self._run = folders, run
        self._copying = asyncio.Lock()
        self._copies = dict[str, str]()
        """Paths there, by the hash of the content."""
        self.root = f"/tmp/alipes-{secrets.token_hex(8)}"
        """Where the copies are. It is removed with the connection."""

    async def translate(self, command: str | Sequence[str], cwd: str, workdir: str) -> tuple[str | list[str], str]:
        """The command and its directory with the paths there, after the folders that it names were copied.

        The directory is empty if it is not in one of them.
        """
        text = command if isinstance(command, str) else "\n".join(command)
        there = ""
        for folder in sorted(self._folders(workdir), key=len, reverse=True):  # the inner ones first
            inside = cwd == folder or cwd.startswith(f"{folder}/")
            if inside or _names(folder, text):
                copy = await self._copy(folder)
                there = copy + cwd[len(folder) :] if inside else there
                command = _replace(folder, copy, command)
        return command if isinstance(command, str) else list(command), there

    async def _copy(self, folder: str) -> str:
        """Copy the folder unless its content is there. Raises OSError."""
        packed = await asyncio.to_thread(pack_folder, folder)
        digest = hashlib.sha256(packed).hexdigest()
        async with self._copying:
            if digest not in self._copies:
                name = f"{re.sub(r'[^A-Za-z0-9_-]', '', os.path.basename(folder))[:40]}-{digest[:12]}"
                await self._run(["sh", "-c", COPY, "sh", self.root, name], packed)
                self._copies[digest] = f"{self.root}/{name}"
            return self._copies[digest]


def remove_script(root: str) -> str:
    """A shell script that removes the copies."""
    name = shlex.quote(root)
    return f"[ ! -d {name} ] || {{ chmod -R u+w -- {name}; rm -rf -- {name}; }}"


def pack_folder(folder: str) -> bytes:
    """A tar archive of its files: the same bytes for the same content. Links that lead out of it are left out."""
    root, packed, size = os.path.realpath(folder), io.BytesIO(), 0
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for here, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(here, name)
                real = os.path.realpath(path)
                status = os.stat(real) if real.startswith(f"{root}/") and os.path.isfile(real) else None
                if status is None:
                    continue
                size += status.st_size
                if size > MAX_BYTES:
                    raise OSError(f"{folder} is larger than {MAX_BYTES // 2**20} MB, so it is not copied")
                with open(real, "rb") as file:
                    data = file.read()
                entry = tarfile.TarInfo(os.path.relpath(path, root))
                entry.size, entry.mode = len(data), 0o500 if status.st_mode & stat.S_IXUSR else 0o400
                archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _pattern(folder: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-]){re.escape(folder)}(?![\w.-])")


def _names(folder: str, text: str) -> bool:
    return folder in text and _pattern(folder).search(text) is not None


def _replace(folder: str, copy: str, command: str | Sequence[str]) -> str | list[str]:
    pattern = _pattern(folder)
    return pattern.sub(copy, command) if isinstance(command, str) else [pattern.sub(copy, word) for word in command]
