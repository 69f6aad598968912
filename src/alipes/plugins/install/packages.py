"""Python packages of plugins: resolved against alipes' own packages, and installed into the plugin's folder.

Only wheels, so that no code runs. `hermes-agent` counts as installed.
"""

import base64
import hashlib
import re
import zipfile
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.kernel.errors import ConfigError
from alipes.plugins.install.install_dir import InstalledPackage
from alipes.plugins.install.project import HERMES_AGENT, Requirement, Requirements, normalize_name, parse_requirement
from alipes.plugins.install.sources import pip_command, run_program
from alipes.plugins.private_packages import PACKAGES

_HERMES_VERSION = "0.19.0"
"""The version that packages see; a package that needs another one is accepted too."""


class _Archive(Struct, frozen=True):
    hashes: dict[str, str] = {}


class _Download(Struct, frozen=True):
    url: str = ""
    archive_info: _Archive = _Archive()


class _Metadata(Struct, frozen=True):
    name: str
    version: str
    requires_dist: list[str] = []


class ResolvedPackage(Struct, frozen=True):
    """A package that pip would install."""

    metadata: _Metadata
    download_info: _Download
    requested: bool = False

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def installed(self) -> InstalledPackage:
        hashes = self.download_info.archive_info.hashes
        return InstalledPackage(self.name, self.metadata.version, hashes.get("sha256", ""))

    @property
    def line(self) -> str:
        """The exact requirement with its hashes."""
        where = f"{self.name}=={self.metadata.version}"
        if self.requested and self.download_info.url.startswith("file:"):
            where = f"{self.name} @ {self.download_info.url}"
        hashes = self.download_info.archive_info.hashes
        return " ".join([where, *(f"--hash={kind}:{value}" for kind, value in hashes.items())])


class _Report(Struct, frozen=True):
    install: list[ResolvedPackage]


class PackagePlan(Struct, frozen=True):
    """The packages that a plugin in a folder needs."""

    requirements: Requirements = Requirements()
    missing: tuple[ResolvedPackage, ...] = ()
    """To be installed into its folder."""
    error: str = ""
    """Why they cannot be installed."""

    @property
    def installed(self) -> tuple[InstalledPackage, ...]:
        return tuple(each.installed for each in self.missing)


async def plan(requirements: Requirements, work: Path) -> PackagePlan:
    """Find the packages that are missing. They cannot be installed if pip does not find them."""
    if not requirements.packages:
        return PackagePlan(requirements)
    what = "its packages cannot be installed"
    try:
        missing = await _resolve([each.text for each in requirements.packages], work, what)
    except ConfigError as error:
        return PackagePlan(requirements, error=str(error))
    return PackagePlan(requirements, tuple(msgspec.structs.replace(each, requested=False) for each in missing))


async def resolve_package(requirement: str, work: Path) -> list[ResolvedPackage]:
    """The package, then its missing dependencies. Raises ConfigError."""
    wanted = parse_requirement(requirement)
    if wanted is not None and wanted.name == HERMES_AGENT:
        raise ConfigError(f"{HERMES_AGENT} is not a plugin, and alipes does not need it: install the plugin itself.")
    what = f"cannot fetch {requirement} (only wheels are supported, because they run no code)"
    try:
        found = await _resolve([requirement], work, what)
    except ConfigError as error:
        if HERMES_AGENT not in str(error).replace("_", "-"):
            raise
        found = await _resolve_without_hermes(requirement, work, what)
    if not any(each.requested for each in found):
        raise ConfigError(
            f"{requirement} is already installed in this Python: find it with `alipes plugins list` and "
            "enable it with `alipes plugins enable NAME`."
        )
    return sorted(found, key=lambda each: not each.requested)


async def _resolve_without_hermes(requirement: str, work: Path, what: str) -> list[ResolvedPackage]:
    """For a package that needs another version of Hermes Agent: resolve its other dependencies."""
    found = await _resolve([requirement], work, what, "--no-deps")
    extras = re.search(r"\[(.*?)\]", requirement)
    names = "|".join(map(re.escape, re.split(r"[\s,]+", extras[1].strip()))) if extras else "(?!)"
    others = [
        re.sub(rf"extra == [\"'](?:{names})[\"']", 'python_version > "3"', line)
        for each in found
        for line in each.metadata.requires_dist
        if (parsed := parse_requirement(line)) is None or parsed.name != HERMES_AGENT
    ]
    if not others:
        return found
    more = await _resolve(others, work, what)
    own = {normalize_name(each.name) for each in found}
    return [
        *found,
        *(msgspec.structs.replace(each, requested=False) for each in more if normalize_name(each.name) not in own),
    ]


async def _resolve(requirements: Sequence[str], work: Path, what: str, *options: str) -> list[ResolvedPackage]:
    """The packages that pip would install, all packages of this Python being fixed."""
    held, report = work / "held.txt", work / "report.json"
    present = {normalize_name(each.name): each.version for each in distributions() if each.name}
    lines = [f"{name}=={version}" for name, version in present.items()]
    if HERMES_AGENT not in present:
        lines.append(f"{HERMES_AGENT} @ {_write_hermes_wheel(work).as_uri()}")
    held.write_text("\n".join([*lines, ""]))
    command = (
        *("install", "--dry-run", "--only-binary", ":all:", *options),
        *("--constraint", str(held), "--report", str(report), "--", *requirements),
    )
    await run_program(pip_command(*command), work, what=what)
    found = msgspec.json.decode(report.read_bytes(), type=_Report).install
    return [each for each in found if normalize_name(each.name) != HERMES_AGENT]


def _write_hermes_wheel(work: Path) -> Path:
    """An empty package named hermes-agent. It is never installed."""
    name = f"hermes_agent-{_HERMES_VERSION}"
    contents = {
        f"{name}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {HERMES_AGENT}\nVersion: {_HERMES_VERSION}\n",
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: alipes\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in contents.items()]
    contents[f"{name}.dist-info/RECORD"] = "\n".join([*record, f"{name}.dist-info/RECORD,,", ""])
    file = work / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return file


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


async def install(found: Sequence[ResolvedPackage], target: Path, work: Path) -> None:
    """Install exactly these packages into `target`, checked against their hashes. Raises ConfigError."""
    wanted = work / "wanted.txt"
    wanted.write_text("".join(f"{each.line}\n" for each in found))
    command = (
        *("install", "--quiet", "--only-binary", ":all:", "--no-deps", "--no-compile"),
        *("--target", str(target), "--require-hashes", "--requirement", str(wanted)),
    )
    await run_program(pip_command(*command), work, what=f"cannot install {', '.join(each.name for each in found)}")


def find_distribution(place: Path, name: str) -> Distribution | None:
    """The package `name` in the folder `place`."""
    wanted = normalize_name(name)
    return next((each for each in distributions(path=[str(place)]) if normalize_name(each.name or "") == wanted), None)


def missing_packages(folder: Path, requirements: Requirements) -> list[Requirement]:
    """Declared packages that are neither in the plugin's folder nor in this Python."""
    if not requirements.packages:
        return []
    places = (distributions(path=[str(folder / PACKAGES)]), distributions())
    present = {normalize_name(each.name) for place in places for each in place if each.name}
    return [each for each in requirements.packages if not each.conditional and each.name not in present]
