"""Makes the environment of a version: its wheel by its hash, the packages by the pins that are inside of it."""

import json
import platform
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from alipes.features.update.release import Release
from alipes.features.update.versions import InstalledVersion, Versions
from alipes.kernel.errors import ConfigError
from alipes.plugins.install.sources import run_program
from alipes.runtime.packages import count_requirements

Show = Callable[[str], None]
SMALL_BYTES = 32_000_000
"""With less free space, that is why an installation failed."""
_REQUIREMENTS = """
import json, sys
from alipes.config.extras import EXTRAS, expand, select_requirements
names = [each for each in json.loads(sys.argv[1]) if each in EXTRAS]
sys.stdout.write(select_requirements(names, core=True))
"""
"""Run with the new version, whose pins and extras may be others than ours."""


async def make_environment(release: Release, versions: Versions, extras: Sequence[str], show: Show) -> InstalledVersion:
    """Install the release with these extras, unless that was done before. Raises ConfigError."""
    folder = versions.folder / release.name
    known = versions.find(release.name)
    if known is not None and known.sha256 == release.sha256:
        if not set(extras) <= set(known.extras):
            await _install_packages(str(versions.python(release.name)), release, extras, show)
            versions.complete(known := msgspec.structs.replace(known, extras=tuple(extras)))
        return known
    if folder == Path(sys.prefix):
        raise ConfigError(f"alipes {release.name} is running; it cannot be replaced by other code of the same version")
    _check_python(release)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        await _fill(folder, release, extras, show)
    except ConfigError as error:
        free = shutil.disk_usage(versions.folder).free
        shutil.rmtree(folder, ignore_errors=True)
        if free < SMALL_BYTES:
            raise ConfigError(
                f"cannot install alipes {release.name}: the disk of {versions.folder} is full. A version needs about "
                "200 MB, with all extras about 600 MB. Nothing was changed."
            ) from error
        raise
    made = InstalledVersion(release.name, release.version, release.sha256, release.source, time.time(), tuple(extras))
    versions.complete(made)
    return made


async def _fill(folder: Path, release: Release, extras: Sequence[str], show: Show) -> None:
    show(f"installing alipes {release.name}")
    what = f"cannot install alipes {release.name}"
    await run_program([_base_python(), "-m", "venv", str(folder)], folder.parent, what=what)
    python = str(folder / "bin" / "python")
    requirement = folder / "wheel.txt"
    requirement.write_text(f"alipes @ {release.wheel.as_uri()} --hash=sha256:{release.sha256}\n")
    pip = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    await run_program([*pip, "--no-deps", "--require-hashes", "-r", str(requirement)], folder, what=what)
    await _install_packages(python, release, extras, show)
    if folder.joinpath("bin", "alipes").exists():
        await _check_start(folder, release)


def _check_python(release: Release) -> None:
    """Raises ConfigError if the wheel cannot be read or needs a newer Python than the one that runs."""
    try:
        with zipfile.ZipFile(release.wheel) as archive:
            (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            text = archive.read(name).decode()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise ConfigError(
            f"{release.wheel.name} of {release.source} is no wheel that can be read: {error}. Nothing was changed."
        ) from error
    needed = re.search(r"^Requires-Python: *>=(\d+)\.(\d+)", text, re.MULTILINE)
    if needed and sys.version_info < (int(needed[1]), int(needed[2])):
        raise ConfigError(
            f"alipes {release.name} needs Python {needed[1]}.{needed[2]} or newer, and this is "
            f"{platform.python_version()}. Install that Python, then alipes with it: your home stays as it is. "
            "Nothing was changed."
        )


async def _install_packages(python: str, release: Release, extras: Sequence[str], show: Show) -> None:
    folder = Path(python).parents[1]
    what = f"cannot install the packages of alipes {release.name}"
    words = [python, "-I", "-c", _REQUIREMENTS, json.dumps(list(extras))]
    pins = await run_program(words, folder, what=what, may_fail=True)
    if not pins:  # of a version before pins were part of it
        named = f"[{','.join(extras)}]" if extras else ""
        install = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        await run_program([*install, f"alipes{named} @ {release.wheel.as_uri()}"], folder, what=what)
        return
    show(f"installing its {count_requirements(pins)} packages")
    file = folder / "requirements.txt"
    file.write_text(pins)
    await run_program([python, "-I", "-m", "alipes.runtime.packages", str(file)], folder, what=what)


async def _check_start(folder: Path, release: Release) -> None:
    what = f"alipes {release.name} does not start"
    said = await run_program([str(folder / "bin" / "alipes"), "--version"], folder, what=what)
    if said.strip() != f"alipes {release.version}":
        raise ConfigError(f"{what}: it says {said.strip()[:100]!r}")


def _base_python() -> str:
    """The Python that environments are made of; a link to it survives the environment that runs."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    return str(base) if base.exists() else sys.executable
