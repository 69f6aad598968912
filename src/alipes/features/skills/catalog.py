"""Finds the skills of the home, of further folders, of the project and of plugins, and says which can be used.

Of several skills with one name the first counts, in that order: a project cannot replace a skill of the person. A
skill that cannot be read is listed with the reason, and does not disturb the others.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, structs

from alipes.config.settings import Settings
from alipes.features.skills.settings import SkillsConfig
from alipes.features.skills.skill import (
    MAX_DESCRIPTION_CHARS,
    MAX_SKILL_BYTES,
    SKILL_FILE,
    Skill,
    SkillOrigin,
    parse_skill,
    to_name,
)
from alipes.features.skills.versions import SkillStore
from alipes.plugins.pins import PluginPin
from alipes.plugins.registry import Contributions, SkillContribution

PROJECT_FOLDERS = (".alipes/skills", ".agents/skills", ".claude/skills")
MAX_SKILLS = 1000
MAX_DEPTH = 3
"""Folders below `skills` in which skills are looked for: people sort them into groups."""
_SKIPPED = frozenset(("node_modules", "__pycache__", ".git", ".venv", "venv"))
_Stamp: TypeAlias = tuple[int, int, int]


class PluginSkill(Struct, frozen=True):
    """A skill that a plugin contributes."""

    owner: str
    name: str
    path: str
    """Its folder, or the file with its text."""
    description: str = ""


ListPluginSkills: TypeAlias = Callable[[], Iterable[PluginSkill]]


class _Found(Struct, frozen=True):
    file: str
    origin: SkillOrigin
    owner: str = ""
    name: str = ""
    description: str = ""


class SkillCatalog:
    """All skills. Files are read again when they change. It blocks: call it in a thread."""

    def __init__(self, config: SkillsConfig, store: SkillStore, *, user_home: Path) -> None:
        """`user_home`: the person's home directory, which is no project."""
        self._config, self.store, self._user_home = config, store, os.path.realpath(user_home)
        self._plugins: list[ListPluginSkills] = []
        self._parsed: dict[str, tuple[_Stamp, Skill]] = {}
        self._loaded: dict[str, tuple[Skill, ...]] = {}
        """By project: the result of the last `load`."""

    def add_source(self, list_skills: ListPluginSkills) -> None:
        """Add skills that may change from turn to turn; `list_skills()` must be fast."""
        self._plugins.append(list_skills)

    def load(self, workdir: str = "") -> tuple[Skill, ...]:
        """All skills for a project, usable or not, by name and in the order of precedence."""
        if not self._config.enabled:
            return ()
        accepted = self.store.accepted.read()
        seen: dict[str, Skill] = {}
        listed: list[Skill] = []
        for found in self._find(workdir):
            skill = self._judge(self._read(found), accepted)
            if skill.state != "broken" and (other := seen.get(skill.name)) is not None:
                if other.folder == skill.folder:
                    continue
                skill = structs.replace(skill, state="shadowed", reason=f"{other.folder} has a skill of this name.")
            elif skill.state in ("on", "off"):
                seen[skill.name] = skill
            listed.append(skill)
            if len(listed) >= MAX_SKILLS:
                break
        self._loaded[workdir] = tuple(sorted(listed, key=lambda each: each.name))
        return self._loaded[workdir]

    def set_off(self, names: Iterable[str]) -> None:
        """Replace the skills that are off everywhere, after the settings were changed."""
        self._config = structs.replace(self._config, off=tuple(names))

    def folders(self, workdir: str) -> tuple[str, ...]:
        """The folders of usable skills, which sandboxed commands may read: as they were last loaded, which every turn
        does. A single file of a plugin has none."""
        known = self._loaded.get(workdir)
        skills = usable(self.load(workdir) if known is None else known)
        found = (each.folder for each in skills if os.path.basename(each.file) == SKILL_FILE)
        return tuple(dict.fromkeys(found))

    def _find(self, workdir: str) -> Iterator[_Found]:
        yield from _walk(str(self.store.folder), "home")
        for folder in self._config.folders:
            yield from _walk(os.path.expanduser(folder), "folder")
        if self._config.project and workdir:
            yield from self._find_in_project(os.path.realpath(workdir))
        for list_skills in self._plugins:
            for each in list_skills():
                file = os.path.join(each.path, SKILL_FILE) if os.path.isdir(each.path) else each.path
                yield _Found(file, "plugin", each.owner, each.name, each.description)

    def _find_in_project(self, workdir: str) -> Iterator[_Found]:
        """From the working directory up to the root of its repository. A link that leads out is not followed."""
        folders = [workdir, *map(str, Path(workdir).parents)]
        depth = next((n for n, folder in enumerate(folders) if os.path.exists(f"{folder}/.git")), 0)
        root = folders[depth]
        for folder in folders[: depth + 1]:
            if folder == self._user_home:
                return
            for name in PROJECT_FOLDERS:
                for found in _walk(os.path.join(folder, name), "project"):
                    if os.path.commonpath((root, os.path.realpath(found.file))) == root:
                        yield found

    def _read(self, found: _Found) -> Skill:
        folder = os.path.dirname(found.file)
        name = found.name or to_name(os.path.basename(folder)) or "unnamed"
        known = Skill(name, found.description, os.path.realpath(folder), found.file, found.origin, found.owner)
        try:
            facts = os.stat(found.file)
            stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            kept = self._parsed.get(found.file)
            if kept is None or kept[0] != stamp:
                kept = self._parsed[found.file] = stamp, _parse_file(found, known, facts.st_size)
        except OSError as error:
            return structs.replace(known, state="broken", reason=f"It cannot be read: {error.strerror}.")
        return kept[1]

    def _judge(self, skill: Skill, accepted: dict[str, PluginPin]) -> Skill:
        """The skill with its state: is it accepted, and switched on?"""
        if skill.state == "broken":
            return skill
        if skill.origin in ("home", "project"):
            changes = self.store.accepted.find_changes(skill.folder, accepted)
            if changes is None and skill.origin == "project":
                return structs.replace(skill, state="new", reason=f"You have not accepted it. {_advice(skill)}")
            if changes:
                reason = f"Its files changed since you accepted them ({changes}). {_advice(skill)}"
                return structs.replace(skill, state="changed", reason=reason)
        if skill.name in self._config.off:
            return structs.replace(skill, state="off", reason="skills.off in config.toml lists it.")
        return skill


def make_skill_catalog(settings: Settings, contributions: Contributions | None = None) -> SkillCatalog:
    """The skills of the home, of further folders and of the project. `contributions`: those of plugins too."""
    store, user_home = SkillStore(settings.paths.skills), Path(os.path.expanduser("~"))
    catalog = SkillCatalog(settings.skills, store, user_home=user_home)
    if contributions is not None:
        catalog.add_source(partial(list_plugin_skills, contributions))
    return catalog


def list_plugin_skills(contributions: Contributions) -> tuple[PluginSkill, ...]:
    skills = contributions.all(SkillContribution)
    return tuple(PluginSkill(each.owner.name, each.name, each.path, each.description) for each in skills)


def usable(skills: Iterable[Skill]) -> tuple[Skill, ...]:
    return tuple(each for each in skills if each.state == "on")


def _advice(skill: Skill) -> str:
    return f"Look at it, then run `alipes skills accept {skill.name}`."


def _walk(folder: str, origin: SkillOrigin, depth: int = 0) -> Iterator[_Found]:
    """The skills below a folder; a skill has no skills in it."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return
    for name in names:
        inner = os.path.join(folder, name)
        file = os.path.join(inner, SKILL_FILE)
        if os.path.isfile(file):
            yield _Found(file, origin)
        elif depth + 1 < MAX_DEPTH and name not in _SKIPPED:
            yield from _walk(inner, origin, depth + 1)


def _parse_file(found: _Found, known: Skill, size: int) -> Skill:
    """Raises OSError."""
    if size > MAX_SKILL_BYTES:
        return structs.replace(known, state="broken", reason=f"It has more than {MAX_SKILL_BYTES // 1000:,} KB.")
    text = Path(found.file).read_text(encoding="utf-8", errors="replace")
    try:
        parsed = parse_skill(text, known.folder).skill
    except ValueError as error:
        if found.origin == "plugin" and text.strip():  # a plugin may contribute any text file
            first = text.strip().splitlines()[0].lstrip("# ")[:MAX_DESCRIPTION_CHARS]
            return structs.replace(known, description=known.description or first)
        return structs.replace(known, state="broken", reason=str(error))
    return structs.replace(
        parsed,
        name=found.name or parsed.name,
        description=found.description or parsed.description,
        folder=known.folder,
        file=found.file,
        origin=found.origin,
        owner=found.owner,
    )
