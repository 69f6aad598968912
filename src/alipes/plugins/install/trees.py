"""Fetches a folder, a Git repository or an archive, for plugins and skills, without running its code."""

import io
import os
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.plugins.install.sources import Source, run_program
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import FetchError, PublicFetcher

MAX_ARCHIVE_BYTES = 100_000_000
MAX_UNPACKED_BYTES = 300_000_000
MAX_MEMBERS = 20_000


async def fetch_tree(source: Source, stage: Path, settings: Settings) -> tuple[Path, str]:
    """The folder with the files of the source, in `stage` unless it is a folder, and the commit if there is one.

    Raises ConfigError.
    """
    root, exact = Path(source.place), ""
    if source.kind == "git":
        root = stage / "clone"
        exact = await clone(source, root)
    elif source.kind == "archive":
        root = unpack(await read_archive(source.place, settings), source.place, stage / "archive")
    within = root / source.folder
    if not within.is_dir():
        where = f"{source.folder} in {source.place}" if source.folder else source.place
        raise ConfigError(f"There is no folder {where}.")
    return within, exact


async def clone(source: Source, target: Path) -> str:
    """Clone the repository, check out the ref and return the commit."""
    what = f"cannot fetch {source.place}"
    words = ("git", "clone", "--quiet", "--no-recurse-submodules", "--", source.place, str(target))
    await run_program(words, target.parent, what=what)
    if source.ref:
        # A remote branch first, so that an update gets its newest commit.
        for ref in (f"origin/{source.ref}", source.ref):
            known = ("git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
            if commit := await run_program(known, target, what=what, may_fail=True):
                checkout = ("git", "checkout", "--quiet", "--detach", commit.strip())
                await run_program(checkout, target, what=what)
                break
        else:
            raise ConfigError(f"{source.place} has no branch, tag or commit {source.ref}.")
    return (await run_program(("git", "rev-parse", "HEAD"), target, what=what)).strip()


async def read_archive(place: str, settings: Settings) -> bytes:
    """The bytes of a file, or of an http(s) address."""
    if not place.startswith(("http://", "https://")):
        return _read_file(Path(place))
    async with ClientScope(settings.proxies, trust=settings.ca_file or None) as scope:
        try:
            found = await PublicFetcher(scope, settings.fetch.allow).fetch(place, largest=MAX_ARCHIVE_BYTES)
        except FetchError as error:
            raise ConfigError(f"cannot fetch {place}: {error}.") from error
    return found.data


def _read_file(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_ARCHIVE_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_ARCHIVE_BYTES // 10**6} MB.")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}.") from error


def unpack(data: bytes, name: str, target: Path) -> Path:
    """Unpack a zip or tar archive into `target`. Returns its folder, or the only folder in it.

    Only files and folders below `target`; links are refused. Raises ConfigError.
    """
    target.mkdir(parents=True)
    try:
        if zipfile.is_zipfile(io.BytesIO(data)):
            _unpack_zip(data, name, target)
        else:
            _unpack_tar(data, name, target)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise ConfigError(f"{name} cannot be unpacked: {error}.") from error
    entries = list(target.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else target


def _unpack_zip(data: bytes, name: str, target: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        budget = _Budget(name, len(archive.infolist()))
        for member in archive.infolist():
            mode = member.external_attr >> 16
            if stat.S_ISLNK(mode):
                raise ConfigError(f"{name} contains a link, {member.filename[:80]}: not allowed.")
            path = _place(target, member.filename, name)
            if member.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            with archive.open(member) as opened:
                _write(path, budget.read(opened), executable=bool(mode & 0o100))


def _unpack_tar(data: bytes, name: str, target: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
        members = archive.getmembers()
        budget = _Budget(name, len(members))
        for member in members:
            path = _place(target, member.name, name)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isfile() and (opened := archive.extractfile(member)) is not None:
                with opened:
                    _write(path, budget.read(opened), executable=bool(member.mode & 0o100))
            elif member.type not in (tarfile.XGLTYPE, tarfile.XHDTYPE):
                raise ConfigError(f"{name} contains {member.name[:80]}, which is not a file or a folder: not allowed.")


class _Budget:
    """Limits what an archive may unpack to."""

    def __init__(self, name: str, members: int) -> None:
        self._name, self._left = name, MAX_UNPACKED_BYTES
        if members > MAX_MEMBERS:
            raise ConfigError(f"{name} contains more than {MAX_MEMBERS:,} files.")

    def read(self, opened: IO[bytes]) -> bytes:
        data = opened.read(self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ConfigError(f"{self._name} unpacks to more than {MAX_UNPACKED_BYTES // 10**6} MB.")
        return data


def _place(target: Path, member: str, name: str) -> Path:
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or "\0" in member:
        raise ConfigError(f"{name} contains {member[:80]!r}, which leads out of its folder: not allowed.")
    return target / path


def _write(path: Path, data: bytes, *, executable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o700 if executable else 0o600
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode), "wb") as file:
        file.write(data)
