"""Versions of alipes for tests of updates: wheels of this source with another number or of an earlier commit, and
environments made of them.

Nothing is downloaded: an environment takes the dependencies of the tests.
"""

import io
import os
import re
import subprocess
import sysconfig
import tarfile
import venv
import zipfile
from functools import cache
from pathlib import Path

import pytest

from alipes.config.extras import EXTRAS
from alipes.features.update.release import SUMS, hash_file
from alipes.features.update.versions import InstalledVersion, Versions
from tests.world.environment import require

TOP = Path(__file__).parents[2]
SOURCE = TOP / "src" / "alipes"
FIRST_RELEASE = "f8f431fc"
"""The commit of 0.1.0."""
MIGRATIONS = "alipes/store/sqlite/migrations/migrations.py"
_ENTRY = "#!{python}\nimport sys\nfrom alipes.cli.main import run_and_exit\nsys.exit(run_and_exit())\n"


@cache
def _read_source() -> dict[str, bytes]:
    files = (each for each in SOURCE.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    return {f"alipes/{each.relative_to(SOURCE)}": each.read_bytes() for each in files}


def require_commit(commit: str) -> dict[str, bytes]:
    """The files of an earlier commit. Skips the test in a clone without it."""
    command = [require("git"), "-C", TOP, "archive", commit, "src/alipes"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if done.returncode:
        pytest.skip(f"this clone has no commit {commit} (git fetch --unshallow)")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        files = [(each.name, archive.extractfile(each)) for each in archive if each.isfile()]
        return {name.removeprefix("src/"): file.read() for name, file in files if file}


def build_wheel(
    folder: Path,
    version: str,
    *,
    migrates: bool = False,
    broken: str = "",
    python: str = ">=3.11",
    source: dict[str, bytes] | None = None,
) -> Path:
    """A wheel in `folder`, listed in its SHA256SUMS. `migrates`: with a new schema. `broken`: the doctor ends so.
    `python`: the versions of Python that it can run with. `source`: other files than those of this checkout."""
    files = {
        **(source or _read_source()),
        "alipes/__init__.py": f'"""alipes"""\n\n__version__ = "{version}"\n'.encode(),
    }
    if migrates:
        files[MIGRATIONS] = _add_migration(files[MIGRATIONS].decode()).encode()
    if broken:
        files["alipes/cli/doctor.py"] = f"def run(argv):\n    raise SystemExit({broken!r})\n".encode()
    wheel = folder / f"alipes-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        facts = {"Metadata-Version": "2.1", "Name": "alipes", "Version": version, "Requires-Python": python}
        text = "".join(f"{name}: {value}\n" for name, value in facts.items())
        archive.writestr(f"alipes-{version}.dist-info/METADATA", text)
    sums = folder / SUMS
    lines = sums.read_text().splitlines() if sums.exists() else []
    sums.write_text("\n".join([*lines, f"{hash_file(wheel)}  {wheel.name}"]) + "\n")
    return wheel


def _add_migration(text: str) -> str:
    (newest,) = re.findall(r"^SCHEMA = (\d+)$", text, re.MULTILINE)
    added = int(newest) + 1
    step = f'    {newest}: ({added}, ("CREATE TABLE of_a_later_version (number INTEGER)",)),\n'
    end = '}\n"""0: a new file'
    assert end in text
    return text.replace(end, step + end).replace(f"SCHEMA = {newest}\n", f"SCHEMA = {added}\n")


def install(versions: Versions, wheel: Path) -> InstalledVersion:
    """An environment of the wheel, as an update would have made it."""
    version = wheel.name.split("-")[1]
    folder = versions.folder / version
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    entry = folder / "bin" / "alipes"
    entry.write_text(_ENTRY.format(python=versions.python(version)))
    entry.chmod(0o755)
    made = InstalledVersion(version, version, hash_file(wheel), str(wheel.parent), os.stat(wheel).st_mtime, (*EXTRAS,))
    versions.complete(made)
    return made
