"""Installs, updates, accepts, rolls back and removes skills. Everything is shown before it is done."""

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alipes.config.settings import Settings
from alipes.console.common import confirm
from alipes.features.skills.cli import describe
from alipes.features.skills.skill import SKILL_FILE, Skill
from alipes.features.skills.skills import check_removable
from alipes.features.skills.sources import FoundSkill, find_skills, pack_source, read_skill, unpack_source
from alipes.features.skills.versions import SkillChange, SkillFile, SkillStore, diff_files, hash_files, read_folder
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_count
from alipes.plugins.install.sources import Source, github_address, parse_source
from alipes.plugins.install.trees import fetch_tree

_TEMPLATE = """\
---
name: "{name}"
description: "Say what this skill does, and when to use it: the model chooses it by this text."
---
# {name}

Write what a person who knows the task would tell a colleague: the steps, in order, with the
commands, and what to check at the end. Put scripts into scripts/ and long texts into
references/, and name them here.
"""


def install(settings: Settings, given: str, names: list[str], *, yes: bool, ref: str = "", folder: str = "") -> int:
    """Fetch, show, ask, and install. `names`: which ones, if the source has several; `*` is all."""
    if (address := github_address(given.strip())) and not yes:
        _note(f"{given} means {address}")
        if not confirm(f"Fetch {address}?", "fetch it"):
            _note("nothing fetched")
            return 1
    source, store = parse_source(given, ref=ref, folder=folder), SkillStore(settings.paths.skills)
    if source.kind == "package":
        raise ConfigError(f"{given} is not a folder, a Git URL or an archive.")
    with _fetched(source, settings) as (root, exact):
        chosen = _choose(find_skills(root, source, _note), names, source)
        done = [_install_one(settings, store, each, source, exact, yes=yes) for each in chosen]
    return 0 if any(done) else 1


def _install_one(
    settings: Settings, store: SkillStore, found: FoundSkill, source: Source, exact: str, *, yes: bool
) -> bool:
    name = found.skill.name
    if store.exists(name):
        known = store.versions.source(name)
        how = f"use `alipes skills update {name}`" if known else "remove or rename it first"
        raise ConfigError(f"There is a skill {name} in {store.folder} already: {how}.")
    shown = f"{source.kind} {source}{f' ({exact})' if exact else ''}"
    describe.show_skill(settings, found.skill, found.files, source=shown, folder=found.folder)
    if not yes and not confirm(f"Install {name}?", "install it"):
        _note("nothing installed")
        return False
    change = SkillChange("install", f"installed {exact[:12]}".strip(), source=pack_source(source, found.within, exact))
    version = store.create(name, found.files, change)
    print(f"{name} is installed (sha256 {version.sha256[:12]}). Use it with /{name}, or let the model choose it.")
    return True


def update(settings: Settings, name: str, *, yes: bool) -> int:
    """Fetch the newest version of one skill, or of all installed ones; show the diff, and ask."""
    store = SkillStore(settings.paths.skills)
    installed = [each for each in store.versions.names() if store.exists(each) and store.versions.source(each)]
    if name and name not in installed:
        where = "was not installed by alipes, so its source is unknown" if store.exists(name) else "is not installed"
        raise ConfigError(f"The skill {name} {where}.{did_you_mean(name, installed)}")
    if not installed:
        print("No skills were installed from a source.")
        return 0
    return max(_update_one(settings, store, each, yes=yes) for each in ([name] if name else installed))


def _update_one(settings: Settings, store: SkillStore, name: str, *, yes: bool) -> int:
    source, within = unpack_source(store.versions.source(name))
    with _fetched(source, settings) as (root, exact):
        folder = root / within
        files = read_folder(folder) if (folder / SKILL_FILE).is_file() else {}
        if not files:
            raise ConfigError(f"{source} no longer has the skill {name}: remove it, or install it from elsewhere.")
        skill = read_skill(files, str(folder))
        if skill.name != name:
            raise ConfigError(f"{source} is now called {skill.name}: install that one and remove {name}.")
        present = store.read(name)
        if hash_files(files) == hash_files(present):
            print(f"{name} is up to date.")
            return 0
        describe.print_diff(diff_files(present, files))
        describe.show_skill(settings, skill, files, source=f"{source.kind} {source}", folder=folder)
        if not yes and not confirm(f"Update {name} to these files?", "update it"):
            _note(f"{name} was not changed")
            return 1
        change = SkillChange("install", f"updated {exact[:12]}".strip(), source=pack_source(source, within, exact))
        version = store.write(name, files, change)
    print(f"{name} is version {version.number} now; to undo it, use `alipes skills rollback {name}`.")
    return 0


def accept(settings: Settings, skills: tuple[Skill, ...], name: str, *, yes: bool) -> int:
    """Show skills of the project, and changed ones, and ask whether to use exactly these files."""
    waiting = [each for each in skills if each.state in ("new", "changed") and name in ("", each.name)]
    if not waiting:
        known = next((each for each in skills if each.name == name), None)
        if name and known is None:
            raise ConfigError(f"Unknown skill {name}.{did_you_mean(name, [each.name for each in skills])}")
        print(f"{name} needs no acceptance." if name else "No skill waits for your acceptance.")
        return 0
    return max(_accept_one(settings, each, yes=yes) for each in waiting)


def _accept_one(settings: Settings, skill: Skill, *, yes: bool) -> int:
    store, folder = SkillStore(settings.paths.skills), Path(skill.folder)
    files = read_folder(folder)
    versions = store.versions.history(skill.name)
    if skill.origin == "home" and versions:
        describe.print_diff(diff_files(store.versions.read(skill.name, versions[-1].number), files))
    describe.show_skill(settings, skill, files, source=f"{skill.folder}: {skill.reason}", folder=folder)
    if not yes and not confirm(f"Use {skill.name} with these files?", "accept it"):
        _note(f"{skill.name} was not accepted")
        return 1
    if hash_files(read_folder(folder)) != hash_files(files):
        raise ConfigError(f"{skill.folder} changed while you looked at it: try again.")
    store.accept(skill.name, skill.folder)
    print(f"{skill.name} is accepted.")
    return 0


def remove(settings: Settings, skill: Skill | None, name: str, *, yes: bool) -> int:
    store = SkillStore(settings.paths.skills)
    check_removable(store, name, skill)
    if not yes and not confirm(f"Remove {store.folder / name}? Its versions are kept.", "remove it"):
        _note("nothing removed")
        return 1
    store.remove(name, SkillChange("person", "removed"))
    print(f"{name} is removed; to bring it back, use `alipes skills rollback {name}`.")
    return 0


def roll_back(settings: Settings, name: str, number: int, *, yes: bool) -> int:
    store = SkillStore(settings.paths.skills)
    versions = store.versions.history(name)
    if not versions:
        raise ConfigError(f"The skill {name} has no stored versions.{did_you_mean(name, store.versions.names())}")
    target = number or (versions[-2].number if len(versions) > 1 else 0)
    if not target:
        raise ConfigError(f"There is no earlier version of the skill {name}.")
    describe.print_diff(diff_files(store.read(name), store.versions.read(name, target)))
    if not yes and not confirm(f"Return {name} to version {target}?", "roll it back"):
        _note(f"{name} was not changed")
        return 1
    version = store.roll_back(name, target, SkillChange("person", f"rolled back to version {target}"))
    print(f"{name} is as in version {target}, stored as version {version.number}.")
    return 0


def create(settings: Settings, name: str) -> int:
    """A new skill in the home, to be edited."""
    store = SkillStore(settings.paths.skills)
    text = _TEMPLATE.format(name=name).encode()
    store.create(name, {SKILL_FILE: SkillFile(text)}, SkillChange("person", "new"))
    print(f"Created {store.folder / name / SKILL_FILE}. Edit it, then check it with `alipes skills check {name}`.")
    return 0


def _choose(found: list[FoundSkill], names: list[str], source: Source) -> list[FoundSkill]:
    if names == ["*"] or (len(found) == 1 and not names):
        return found
    by_name = {each.skill.name: each for each in found}
    if not names:
        listed = ", ".join(sorted(by_name))
        raise ConfigError(
            f"{source} has {format_count(len(found), 'skill')}: {listed}. Name some of them, or use --all."
        )
    for name in names:
        if name not in by_name:
            raise ConfigError(f"{source} has no skill {name}.{did_you_mean(name, by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)]


@contextmanager
def _fetched(source: Source, settings: Settings) -> Iterator[tuple[Path, str]]:
    if source.kind != "folder":
        _note(f"fetching {source}")
    with tempfile.TemporaryDirectory(prefix="alipes-skill-") as stage:
        yield asyncio.run(fetch_tree(source, Path(stage), settings))


def _note(line: str) -> None:
    sys.stderr.write(f"alipes: {line}\n")
    sys.stderr.flush()
