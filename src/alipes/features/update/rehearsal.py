"""Tries a version on a copy of the home: its `doctor` opens the copy, which migrates the database."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import tomlkit
from msgspec import Struct

from alipes.config.environment import process_environment
from alipes.config.settings import Settings
from alipes.features.update.versions import Versions
from alipes.kernel.errors import ConfigError
from alipes.runtime.processes.process_tree import VARIABLE
from alipes.store.backups.backup import backup_database, read_schema

DATABASE = "alipes.db"
LIMIT_S = 300.0
"""For the doctor, which migrates the copy."""
_DROPPED = ("ALIPES_PROFILE", "ALIPES_STORE", "PYTHONPATH", "PYTHONHOME", VARIABLE)


class _Finding(Struct, frozen=True):
    about: str
    state: str
    says: str


class _Report(Struct, frozen=True):
    findings: tuple[_Finding, ...]


class Rehearsal(Struct, frozen=True):
    problems: tuple[str, ...]
    """What the doctor of the new version finds wrong with a copy of the home, and that of the old one does not."""
    migrates: bool
    """The new version changes the schema of the database."""


async def rehearse(settings: Settings, versions: Versions, old: Sequence[str], new: Sequence[str]) -> Rehearsal:
    """Try a version. `old`, `new`: the words that start a version. Raises ConfigError if one cannot be tried."""
    with tempfile.TemporaryDirectory(prefix=".copy-", dir=versions.folder) as place:
        home = Path(place) / "home"
        home.mkdir(mode=0o700)
        await _copy_home(settings, home)
        known = {each.about for each in await _examine(old, home)}
        before = read_schema(home / DATABASE)
        found = [f"{each.about}: {each.says}" for each in await _examine(new, home) if each.about not in known]
        return Rehearsal(tuple(found), read_schema(home / DATABASE) != before)


async def explain_unreadable(settings: Settings, versions: Versions, words: Sequence[str]) -> str:
    """Why the version that `words` start cannot read the conversations of this home; empty if it can."""
    if settings.store or not (settings.home / DATABASE).is_file():
        return ""
    with tempfile.TemporaryDirectory(prefix=".copy-", dir=versions.folder) as place:
        home = Path(place) / "home"
        home.mkdir(mode=0o700)
        await _copy_home(settings, home)
        return next((each.says for each in await _examine(words, home) if each.about == "database"), "")


async def _copy_home(settings: Settings, target: Path) -> None:
    """The settings and the database. Keys are not copied: the doctor needs none. A store in PostgreSQL is left out,
    because opening it would migrate it."""
    if settings.paths.config.is_file():
        document = tomlkit.parse(settings.paths.config.read_text())
        document.pop("store", None)
        (target / settings.paths.config.name).write_text(tomlkit.dumps(document))
    database = settings.home / DATABASE
    if not settings.store and database.is_file():
        await backup_database(database, target / DATABASE)


async def _examine(words: Sequence[str], home: Path) -> list[_Finding]:
    """What the doctor finds wrong."""
    _, said, errors = await run_version([*words, "doctor", "--json"], home)
    try:
        findings = msgspec.json.decode(said, type=_Report).findings
    except msgspec.DecodeError as error:
        shown = (errors or said).strip()[-300:]
        raise ConfigError(f"`{' '.join(words)} doctor` failed on a copy of the home: {shown or error}") from error
    return [each for each in findings if each.state == "wrong"]


async def run_version(words: Sequence[str], home: Path) -> tuple[int, str, str]:
    """Run a version of alipes on the home `home`; returns the status, the output and the error messages.

    It is not marked as a child of an agent, as tools are: a person has started the update. Raises ConfigError.
    """
    environ = {name: value for name, value in process_environment().items() if name not in _DROPPED}
    piped = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=piped,
        stderr=piped,
        cwd=home.parent,
        env={**environ, "ALIPES_HOME": str(home)},
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said, errors = await process.communicate()
    except TimeoutError as error:
        raise ConfigError(f"`{' '.join(words)}` did not end within {LIMIT_S:.0f} s on a copy of the home") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
