"""Makes the environment of a version: its wheel by its hash, the packages by the pins that are inside of it."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from alipes.features.update.release import Release
from alipes.features.update.versions import InstalledVersion, Versions
from alipes.kernel.errors import ConfigError
from alipes.plugins.install.sources import run_program

Show = Callable[[str], None]
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
        return known
    if folder == Path(sys.prefix):
        raise ConfigError(f"alipes {release.name} is running; it cannot be replaced by other code of the same version")
    shutil.rmtree(folder, ignore_errors=True)
    show(f"installing alipes {release.name}")
    what = f"cannot install alipes {release.name}"
    await run_program([_base_python(), "-m", "venv", str(folder)], versions.folder, what=what)
    python = str(versions.python(release.name))
    requirement = folder / "wheel.txt"
    requirement.write_text(f"alipes @ {release.wheel.as_uri()} --hash=sha256:{release.sha256}\n")
    pip = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    await run_program([*pip, "--no-deps", "--require-hashes", "-r", str(requirement)], folder, what=what)
    await _install_packages(python, folder, release, extras)
    if folder.joinpath("bin", "alipes").exists():
        await _check_start(folder, release)
    made = InstalledVersion(release.name, release.version, release.sha256, release.source, time.time())
    versions.complete(made)
    return made


async def _install_packages(python: str, folder: Path, release: Release, extras: Sequence[str]) -> None:
    what = f"cannot install the packages of alipes {release.name}"
    words = [python, "-I", "-c", _REQUIREMENTS, json.dumps(list(extras))]
    pins = await run_program(words, folder, what=what, may_fail=True)
    if not pins:  # of a version before pins were part of it
        named = f"[{','.join(extras)}]" if extras else ""
        install = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        await run_program([*install, f"alipes{named} @ {release.wheel.as_uri()}"], folder, what=what)
        return
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
