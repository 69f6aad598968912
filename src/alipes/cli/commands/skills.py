"""`alipes skills`: lists and shows the skills of the enabled plugins."""

import asyncio
import sys
from pathlib import Path

import msgspec

from alipes.cli import help_text, render
from alipes.cli.common import print_json, print_table
from alipes.cli.options import OptionParser
from alipes.cli.plugins.standalone import LoadedPlugins, open_standalone
from alipes.config.loader import load_settings
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.plugins.discovery import has_plugins
from alipes.plugins.registry import SkillContribution


class Skill(msgspec.Struct, frozen=True):
    name: str
    plugin: str
    path: str
    description: str = ""


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes skills", help_text.SKILLS)
    parser.add_argument("--json", action="store_true")
    args, named = parser.parse_with_words(argv)
    match named:
        case [] | ["list"]:
            _print_skills(_skills(load_settings()), json=args.json)
        case ["show", name]:
            print(_read_skill(_find(_skills(load_settings()), name)), end="")
        case ["show", *_]:
            parser.error("`show` takes one NAME")
        case _:
            parser.error(f"unknown action: {' '.join(named)} (use list or show)")
    return 0


def _skills(settings: Settings) -> list[Skill]:
    return asyncio.run(_read_skills(settings)) if has_plugins(settings) else []


async def _read_skills(settings: Settings) -> list[Skill]:
    async with open_standalone(settings) as opened:
        _report_failures(opened)
        offers = opened.contributions.all(SkillContribution)
        found = [Skill(each.name, each.owner.name, each.path, each.description) for each in offers]
        return sorted(found, key=lambda skill: skill.name)


def _report_failures(opened: LoadedPlugins) -> None:
    for facts in opened.plugins.statuses():
        if facts.state != "on":
            sys.stderr.write(f"plugin {facts.name} could not be loaded: {facts.why}\n")


def _print_skills(skills: list[Skill], *, json: bool) -> None:
    if json:
        print_json(skills)
        return
    if not skills:
        print("No enabled plugin has skills. List the plugins with `alipes plugins list`.")
        return
    head = ("NAME", "PLUGIN", "DESCRIPTION", "PATH")
    rows = [(each.name, each.plugin, render.to_one_line(each.description, 60), each.path) for each in skills]
    print_table([head, *rows])


def _find(skills: list[Skill], name: str) -> Skill:
    for skill in skills:
        if skill.name == name:
            return skill
    raise ConfigError(f"Unknown skill {name}.{did_you_mean(name, [each.name for each in skills])}")


def _read_skill(skill: Skill) -> str:
    """The text of the file, or of SKILL.md in the directory."""
    path = Path(skill.path)
    path = path / "SKILL.md" if path.is_dir() else path
    try:
        return render.sanitize(path.read_text("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{path} (plugin {skill.plugin}): {error.strerror}.") from error
