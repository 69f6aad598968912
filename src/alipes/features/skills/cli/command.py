"""`alipes skills`: lists, shows, checks, installs, updates and creates skills."""

import asyncio
import os
import time
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.console import render
from alipes.console.common import print_list, run_in_archive
from alipes.console.options import OptionParser
from alipes.core.standalone import open_standalone
from alipes.features.all import FEATURES
from alipes.features.skills.catalog import PluginSkill, list_plugin_skills, make_skill_catalog
from alipes.features.skills.cli import install
from alipes.features.skills.cli.help import SKILLS
from alipes.features.skills.commands import describe_change
from alipes.features.skills.scan import SkillFinding, scan_skill
from alipes.features.skills.skill import Skill
from alipes.features.skills.sources import read_skill
from alipes.features.skills.store import SkillUsage, SkillUseStore
from alipes.features.skills.versions import SkillStore, read_folder
from alipes.kernel.approvals import reveal
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean, format_count
from alipes.plugins.discovery import has_plugins
from alipes.store.quick_reads import store_exists
from alipes.tools.common import make_places

_CHANGES = ("install", "update", "remove", "accept", "new", "rollback", "pending")
ACTIONS = ("list", "show", *_CHANGES, "check", "history", "test")
_OF_OTHERS = ("pending", "test")
"""Commands of two words that another feature adds; they do not come here."""
_NEEDS_NAME = ("show", "install", "remove", "new", "history", "rollback")
_MOST_WORDS = {"list": 0, "install": 100, "check": 1000, "rollback": 2}
"""How many words an action takes; others take one."""


class ListedSkill(Struct, frozen=True):
    """A skill as `alipes skills list --json` prints it."""

    name: str
    state: str
    reason: str
    origin: str
    plugin: str
    description: str
    folder: str
    license: str
    compatibility: str
    allowed_tools: tuple[str, ...] | None
    remarks: tuple[str, ...]
    uses: int
    answered: int
    failed: int
    last_used: float


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes skills", SKILLS)
    args, named = parser.parse_with_words(argv)
    action, *words = named or ["list"]
    _check_words(parser, action, words)
    settings, name = load_settings(), words[0] if words else ""
    match action:
        case "list":
            return _list(settings, json=args.json)
        case "show":
            return _show(settings, name)
        case "check":
            return _check(settings, words)
        case "history":
            return _history(settings, name, json=args.json)
        case "install":
            names = ["*"] if args.all else words[1:]
            return install.install(settings, name, names, yes=args.yes, ref=args.ref, folder=args.folder)
        case "rollback":
            return install.roll_back(settings, name, _number(parser, words[1:]), yes=args.yes)
    return _change(settings, action, name, yes=args.yes)


def _check_words(parser: OptionParser, action: str, words: list[str]) -> None:
    if action not in ACTIONS:
        parser.error(f"unknown action: {action} (use {', '.join(ACTIONS)}).{did_you_mean(action, ACTIONS)}")
    if action in _NEEDS_NAME and not words:
        parser.error(f"`{action}` needs a {'SOURCE' if action == 'install' else 'NAME'}")
    if action in _OF_OTHERS:
        parser.error(f"`{action}` is not available here")
    if len(words) > _MOST_WORDS.get(action, 1):
        parser.error(f"`{action}` got too many words: {' '.join(words)}")


def _change(settings: Settings, action: str, name: str, *, yes: bool) -> int:
    match action:
        case "update":
            return install.update(settings, name, yes=yes)
        case "new":
            return install.create(settings, name)
        case "accept":
            return install.accept(settings, load_skills(settings), name, yes=yes)
        case _:
            known = next((each for each in load_skills(settings) if each.name == name), None)
            return install.remove(settings, known, name, yes=yes)


def _number(parser: OptionParser, words: list[str]) -> int:
    if words and not words[0].isdecimal():
        parser.error(f"`rollback` takes the number of a version, not {words[0]}")
    return int(words[0]) if words else 0


def load_skills(settings: Settings) -> tuple[Skill, ...]:
    """All skills of the home, the project and the enabled plugins."""
    plugins = asyncio.run(_read_plugin_skills(settings)) if has_plugins(settings) else ()
    catalog = make_skill_catalog(settings)
    catalog.add_source(lambda: plugins)
    return catalog.load(settings.workdir or os.getcwd())


async def _read_plugin_skills(settings: Settings) -> tuple[PluginSkill, ...]:
    async with open_standalone(settings, FEATURES) as opened:
        opened.report_failures()
        return list_plugin_skills(opened.contributions)


def _usage(settings: Settings) -> dict[str, SkillUsage]:
    exists = settings.store or store_exists(settings.home)
    return run_in_archive(settings, lambda archive: archive.tables(SkillUseStore).totals()) if exists else {}


def _list(settings: Settings, *, json: bool) -> int:
    used = _usage(settings)
    listed = [_to_listed(each, used.get(each.name)) for each in load_skills(settings)]
    rows = [(each.name, _state(each), _origin(each), _uses(each), _about(each)) for each in listed]
    empty = f"No skills. Put folders with a SKILL.md into {settings.paths.skills}, or use `install` or `new`."
    print_list(listed, ("NAME", "STATE", "FROM", "USED", "DESCRIPTION"), rows, json=json, empty=empty)
    return 0


def _to_listed(skill: Skill, used: SkillUsage | None) -> ListedSkill:
    counts = (used.uses, used.answered, used.failed, used.last) if used else (0, 0, 0, 0.0)
    return ListedSkill(
        skill.name,
        skill.state,
        skill.reason,
        skill.origin,
        skill.owner,
        skill.description,
        skill.folder,
        skill.license,
        skill.compatibility,
        skill.allowed_tools,
        skill.remarks,
        *counts,
    )


def _state(skill: ListedSkill) -> str:
    return {"new": "not accepted", "shadowed": "name taken"}.get(skill.state, skill.state)


def _origin(skill: ListedSkill) -> str:
    return skill.plugin or skill.origin


def _uses(skill: ListedSkill) -> str:
    return f"{skill.uses} ({skill.answered} answered)" if skill.uses else ""


def _about(skill: ListedSkill) -> str:
    return render.to_one_line(reveal(skill.reason if skill.state in ("broken", "changed") else skill.description), 60)


def _show(settings: Settings, name: str) -> int:
    skill = _find(load_skills(settings), name)
    try:
        text = Path(skill.file).read_text("utf-8", "replace")
    except OSError as error:
        where = f" (plugin {skill.owner})" if skill.owner else ""
        raise ConfigError(f"{skill.file}{where}: {error.strerror}.") from error
    print(reveal(text), end="" if text.endswith("\n") else "\n")
    return 0


def _find(skills: tuple[Skill, ...], name: str) -> Skill:
    found = next((each for each in skills if each.name == name), None)
    if found is None:
        near = did_you_mean(name, [each.name for each in skills]) or " `alipes skills` lists them."
        raise ConfigError(f"Unknown skill {name}.{near}")
    return found


def _check(settings: Settings, names: list[str]) -> int:
    """Report what departs from the specification, and warnings. The status is 1 if a skill cannot be used."""
    known = load_skills(settings)
    chosen = [_read_path(name) if _is_path(name) else _find(known, name) for name in names] if names else list(known)
    broken = 0
    for skill in chosen:
        found = () if skill.state == "broken" else _scan(settings, skill)
        problems = [skill.reason] if skill.state == "broken" else [*skill.remarks]
        lines = [*problems, *(f"{each.place}: {each.kind}: {each.says}" for each in found)]
        broken += skill.state == "broken"
        print(f"{skill.name}: {'cannot be used' if skill.state == 'broken' else format_count(len(lines), 'remark')}")
        for line in lines:
            print(f"  {render.sanitize(line)}")
    print(f"{format_count(len(chosen), 'skill')}, {broken} cannot be used.")
    return int(bool(broken))


def _scan(settings: Settings, skill: Skill) -> tuple[SkillFinding, ...]:
    try:
        return scan_skill(read_folder(Path(skill.folder)), make_places(settings))
    except ConfigError:
        return ()


def _is_path(name: str) -> bool:
    return "/" in name or name == "." or (Path(name) / "SKILL.md").is_file()


def _read_path(path: str) -> Skill:
    folder = os.path.abspath(path)
    try:
        files = read_folder(Path(folder))
        return structs.replace(read_skill(files, folder), folder=folder)
    except ConfigError as error:
        return Skill(os.path.basename(folder), folder=folder, state="broken", reason=str(error))


def _history(settings: Settings, name: str, *, json: bool) -> int:
    store = SkillStore(settings.paths.skills)
    versions = store.versions.history(name)
    if not versions:
        raise ConfigError(f"The skill {name} has no stored versions.{did_you_mean(name, store.versions.names())}")
    rows = [
        (
            str(each.number),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(each.when)),
            "removed" if each.removed else format_count(len(each.files), "file"),
            render.to_one_line(describe_change(each.change), 80),
        )
        for each in versions
    ]
    listed = [msgspec.to_builtins(each) for each in versions]
    print_list(listed, ("VERSION", "WHEN", "FILES", "CHANGE"), rows, json=json, empty="")
    return 0
