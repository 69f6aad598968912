"""Where versions come from: the package index, a folder with wheels, or Git. Each gives a wheel and its hash."""

import hashlib
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.features.update.installation import INDEX
from alipes.features.update.version_number import is_release, is_version, order
from alipes.kernel.errors import ConfigError
from alipes.plugins.install.sources import Source, parse_source, pip_command, run_program
from alipes.plugins.install.trees import clone

Channel: TypeAlias = Literal["stable", "next"]
PACKAGE = "alipes"
SUMS = "SHA256SUMS"
_WHEEL = re.compile(r"alipes-([0-9][^-]*)-py3-none-any\.whl")
COMMIT_DIGITS = 8
"""Of a commit, in the name of a version."""


class Release(Struct, frozen=True):
    """A version that was fetched."""

    name: str
    """The version; for a commit that is no release with its hash: `0.2.0+g1a2b3c4d`."""
    version: str
    wheel: Path
    sha256: str
    source: str


class ReleaseSource(Protocol):
    async def list(self, channel: Channel) -> list[str]:
        """The versions there are, the newest last."""

    async def fetch(self, version: str, channel: Channel, stage: Path) -> Release:
        """Fetch a version, or the newest one if `version` is empty, into `stage`. Raises ConfigError."""


def find_source(text: str) -> ReleaseSource:
    """`text`: the setting `update.source`, or where alipes was installed from. Raises ConfigError."""
    if text == INDEX:
        return IndexSource()
    folder = Path(text).expanduser().absolute()
    if folder.is_dir() and (folder / SUMS).is_file():
        return FolderSource(folder)
    if folder.is_dir() and not (folder / ".git").exists() and not (folder / "HEAD").is_file():
        raise ConfigError(f"update.source: {folder} is neither a Git repository nor a folder with wheels and {SUMS}.")
    return GitSource(parse_source(str(folder) if folder.is_dir() else text))


def choose(versions: list[str], wanted: str, channel: Channel, where: str) -> str:
    """The version that is wanted, or the newest of the channel. Raises ConfigError if there is none."""
    known = sorted(versions, key=order)
    if wanted:
        if wanted.removeprefix("v") in known:
            return wanted.removeprefix("v")
        newest = f" The newest are {', '.join(known[-3:])}." if known else ""
        raise ConfigError(f"{where} has no version {wanted}.{newest}")
    usable = [each for each in known if channel == "next" or is_release(each)]
    if not usable:
        more = " `--channel next` shows versions before a release." if known else ""
        raise ConfigError(f"{where} has no release of alipes.{more}")
    return usable[-1]


class FolderSource:
    """A folder with wheels and `SHA256SUMS`, as `sha256sum *.whl` prints it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def list(self, channel: Channel) -> list[str]:
        found = (_WHEEL.fullmatch(name) for name in self._sums())
        versions = sorted((each[1] for each in found if each), key=order)
        return [each for each in versions if channel == "next" or is_release(each)]

    async def fetch(self, version: str, channel: Channel, stage: Path) -> Release:
        chosen = choose(await self.list("next"), version, channel, str(self._folder))
        name = f"{PACKAGE}-{chosen}-py3-none-any.whl"
        wheel = stage / name
        try:
            shutil.copyfile(self._folder / name, wheel)
        except OSError as error:
            raise ConfigError(f"cannot copy {self._folder / name} to {stage}: {error.strerror}.") from error
        found, wanted = hash_file(wheel), self._sums()[name]
        if found != wanted:
            raise ConfigError(
                f"{self._folder / name} is not the file that {SUMS} lists (its SHA-256 is {found[:12]}..., not "
                f"{wanted[:12]}...). Nothing was installed: get both files again."
            )
        return Release(chosen, chosen, wheel, found, str(self._folder))

    def _sums(self) -> dict[str, str]:
        try:
            lines = (self._folder / SUMS).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {self._folder / SUMS}: {error}.") from error
        words = [line.split() for line in lines]
        return {each[1].lstrip("*"): each[0].lower() for each in words if len(each) == 2}


class IndexSource:
    """The package index that pip is set up for; pip compares the hash that the index names."""

    async def list(self, channel: Channel) -> list[str]:
        more = ("--pre",) if channel == "next" else ()
        what = "the package index has no alipes, or cannot be reached: check the network and the proxy"
        text = await run_program([*_pip(), "index", "versions", *more, PACKAGE], Path.cwd(), what=what)
        found = re.search(r"^Available versions: (.+)$", text, re.MULTILINE)
        return sorted(re.split(r",\s*", found[1]) if found else [], key=order)

    async def fetch(self, version: str, channel: Channel, stage: Path) -> Release:
        chosen = choose(await self.list("next"), version, channel, "the package index")
        words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(stage))
        what = f"cannot fetch alipes {chosen}"
        await run_program([*_pip(), *words, f"{PACKAGE}=={chosen}"], stage, what=what)
        return _read_wheel(stage, INDEX)


class GitSource:
    """A Git repository: releases are its tags, such as `v0.2.0`. Only what is committed counts."""

    def __init__(self, source: Source) -> None:
        self._source = Source("git", source.place, source.ref)

    async def list(self, channel: Channel) -> list[str]:
        words = ("git", "ls-remote", "--tags", "--refs", "--", self._source.place)
        text = await run_program(words, Path.cwd(), what=f"cannot reach {self._source.place}")
        tags = (line.rpartition("refs/tags/")[2] for line in text.splitlines())
        versions = sorted({each.removeprefix("v") for each in tags if is_version(each)}, key=order)
        return [each for each in versions if channel == "next" or is_release(each)]

    async def find_newest_commit(self) -> str:
        words = ("git", "ls-remote", "--", self._source.place, "HEAD")
        return (await run_program(words, Path.cwd(), what=f"cannot reach {self._source.place}")).partition("\t")[0]

    async def fetch(self, version: str, channel: Channel, stage: Path) -> Release:
        """The newest commit if the channel is `next`, or if there is no release."""
        known = await self.list("next")
        newest_commit = not version and (channel == "next" or not any(map(is_release, known)))
        if newest_commit or re.fullmatch(r"[0-9a-f]{7,40}", version):
            ref = version or self._source.ref
        else:
            version = choose(known, version, channel, self._source.place)
            ref = await self._find_tag(version)
        tree = stage / "tree"
        commit = await clone(Source("git", self._source.place, ref), tree)
        words = ("wheel", "--quiet", "--no-deps", "--wheel-dir", str(stage), str(tree))
        await run_program([*_pip(), *words], stage, what=f"cannot build alipes from {self._source.place}")
        release = _read_wheel(stage, str(self._source))
        if release.version == version:
            return release
        name = f"{release.version}+g{commit[:COMMIT_DIGITS]}"
        return Release(name, release.version, release.wheel, release.sha256, release.source)

    async def _find_tag(self, version: str) -> str:
        words = ("git", "ls-remote", "--tags", "--refs", "--", self._source.place, f"v{version}")
        found = await run_program(words, Path.cwd(), what=f"cannot reach {self._source.place}")
        return f"v{version}" if found.strip() else version


def _pip() -> list[str]:
    """Pip of this Python. uv makes environments without it."""
    if find_spec("pip") is not None:
        return pip_command()
    if uv := shutil.which("uv"):
        return [uv, "run", "--quiet", "--no-project", "--with", "pip", "python", "-m", "pip"]
    raise ConfigError("Neither pip nor uv is there to fetch alipes: run `python -m ensurepip`, or install uv.")


def _read_wheel(folder: Path, source: str) -> Release:
    for path in folder.glob("*.whl"):
        if found := _WHEEL.fullmatch(path.name):
            return Release(found[1], found[1], path, hash_file(path), source)
    raise ConfigError(f"{source} gave no wheel of alipes.")


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
