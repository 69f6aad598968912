"""Skills in a folder, repository or archive: finding, and installing exactly those that a person looked at."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from alipes.config.settings import Settings
from alipes.features.skills.catalog import MAX_DEPTH
from alipes.features.skills.skill import SKILL_FILE, Skill, parse_skill
from alipes.features.skills.versions import SkillChange, SkillFile, SkillFiles, SkillStore, hash_files, read_folder
from alipes.kernel.errors import ConfigError
from alipes.plugins.install.sources import Source, parse_source
from alipes.plugins.install.trees import fetch_tree


class FoundSkill(Struct, frozen=True):
    skill: Skill
    folder: Path
    files: SkillFiles
    within: str
    """Its folder in the source; empty for the root."""


class OfferedSkill(Struct, frozen=True):
    """A skill that can be installed."""

    name: str
    description: str
    sha256: str
    """Of its files: installing needs it, so that nothing else is installed than what was shown."""
    details: tuple[tuple[str, str], ...]
    """Labels and texts for people."""
    installed: bool
    """There is one of this name already."""


Describe = Callable[[FoundSkill, str], tuple[tuple[str, str], ...]]
"""Details of a skill for people; the text is its source."""


class SkillSources:
    """Fetches skills for the home of `settings`."""

    def __init__(self, settings: Settings, describe: Describe) -> None:
        self._settings, self._describe = settings, describe
        self._store = SkillStore(settings.paths.skills)

    async def look(self, given: str) -> tuple[OfferedSkill, ...]:
        """Fetch a source and describe its skills. Raises ConfigError."""
        with tempfile.TemporaryDirectory(prefix="alipes-skill-") as stage:
            source, exact, found = await self._fetch(given, Path(stage))
            return await asyncio.to_thread(self._offer, source, exact, found)

    def _offer(self, source: Source, exact: str, found: list[FoundSkill]) -> tuple[OfferedSkill, ...]:
        shown = f"{source.kind} {source}{f' ({exact})' if exact else ''}"
        return tuple(
            OfferedSkill(
                each.skill.name,
                each.skill.description,
                hash_files(each.files),
                self._describe(each, shown),
                self._store.exists(each.skill.name),
            )
            for each in found
        )

    async def install(self, given: str, name: str, sha256: str) -> None:
        """Install the skill that was looked at. Raises ConfigError."""
        with tempfile.TemporaryDirectory(prefix="alipes-skill-") as stage:
            source, exact, found = await self._fetch(given, Path(stage))
            one = next((each for each in found if each.skill.name == name), None)
            if one is None or hash_files(one.files) != sha256:
                raise ConfigError(f"{name} was changed in {source} since you looked at it: look at it again.")
            packed = pack_source(source, one.within, exact)
            change = SkillChange("install", f"installed {exact[:12]}".strip(), source=packed)
            await asyncio.to_thread(self._store.create, name, one.files, change)

    async def create(self, text: str) -> str:
        """A new skill with this text; its name, which the text gives. Raises ConfigError."""
        files = {SKILL_FILE: SkillFile(text.encode())}
        skill = read_skill(files, "The skill")
        await asyncio.to_thread(self._store.create, skill.name, files, SkillChange("person", "new"))
        return skill.name

    async def _fetch(self, given: str, stage: Path) -> tuple[Source, str, list[FoundSkill]]:
        source = parse_source(given)
        if source.kind == "package":
            raise ConfigError(f"{given} is not a folder, a Git URL or an archive.")
        root, exact = await fetch_tree(source, stage, self._settings)
        problems: list[str] = []
        try:
            return source, exact, await asyncio.to_thread(find_skills, root, source, problems.append)
        except ConfigError as error:
            raise ConfigError(" ".join([str(error), *problems])) from error


def read_skill(files: SkillFiles, folder: str) -> Skill:
    """The skill in the files of a folder. Raises ConfigError."""
    if SKILL_FILE not in files:
        raise ConfigError(f"{folder} is not a skill: it has no {SKILL_FILE}.")
    try:
        return parse_skill(files[SKILL_FILE].data.decode("utf-8", "replace"), folder).skill
    except ValueError as error:
        raise ConfigError(f"{folder}/{SKILL_FILE}: {error}") from error


def find_skills(root: Path, source: Source, report: Callable[[str], None]) -> list[FoundSkill]:
    """The skills in a folder, also in groups; `report` gets why others cannot be read. Raises ConfigError."""
    folders = [root] if (root / SKILL_FILE).is_file() else sorted(_walk(root, 0))
    found = []
    for folder in folders:
        try:
            files = read_folder(folder)
            skill = read_skill(files, _name_of(folder, root, source))
        except ConfigError as error:
            report(f"not usable: {error}")
            continue
        within = "" if folder == root else folder.relative_to(root).as_posix()
        found.append(FoundSkill(skill, folder, files, within))
    if not found:
        raise ConfigError(f"{source} has no skills: no folder with a usable {SKILL_FILE}.")
    return found


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    for inner in sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()):
        if (inner / SKILL_FILE).is_file():
            yield inner
        elif depth < MAX_DEPTH + 1 and inner.name not in (".git", "node_modules"):
            yield from _walk(inner, depth + 1)


def _name_of(folder: Path, root: Path, source: Source) -> str:
    """Where the skill is, as its author sees it: a clone has another name."""
    place = source.folder or source.place
    return place.rstrip("/").removesuffix(".git") if folder == root else str(folder)


def pack_source(source: Source, within: str, exact: str) -> dict[str, str]:
    """A source as it is stored with a skill, to be fetched again."""
    packed: dict[str, str] = msgspec.to_builtins(source)
    return {**packed, **({"within": within} if within else {}), **({"exact": exact} if exact else {})}


def unpack_source(packed: dict[str, str]) -> tuple[Source, str]:
    """The source that was stored, and the folder of the skill in it."""
    known = {name: value for name, value in packed.items() if name not in ("within", "exact")}
    return msgspec.convert(known, type=Source), packed.get("within", "")
