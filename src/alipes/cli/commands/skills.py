"""`alipes skills`: lists and shows the skills of the enabled plugins."""

import asyncio
from pathlib import Path

import msgspec

from alipes.cli import help_text, render
from alipes.cli.common import print_list
from alipes.cli.options import OptionParser
from alipes.cli.plugins.standalone import open_standalone
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
    args, named = parser.parse_with_words(argv)
    match named:
        case [] | ["list"]:
            found = _skills(load_settings())
            rows = [(each.name, each.plugin, render.to_one_line(each.description, 60), each.path) for each in found]
            empty = "No enabled plugin has skills. List the plugins with `alipes plugins list`."
            print_list(found, ("NAME", "PLUGIN", "DESCRIPTION", "PATH"), rows, json=args.json, empty=empty)
        case ["show", name]:
            print(_read_skill(_skills(load_settings()), name), end="")
        case ["show", *_]:
            parser.error("`show` takes one NAME")
        case _:
            parser.error(f"unknown action: {' '.join(named)} (use list or show)")
    return 0


def _skills(settings: Settings) -> list[Skill]:
    return asyncio.run(_read_skills(settings)) if has_plugins(settings) else []


async def _read_skills(settings: Settings) -> list[Skill]:
    async with open_standalone(settings) as opened:
        opened.report_failures()
        offers = opened.contributions.all(SkillContribution)
        found = [Skill(each.name, each.owner.name, each.path, each.description) for each in offers]
        return sorted(found, key=lambda skill: skill.name)


def _read_skill(skills: list[Skill], name: str) -> str:
    """The text of the file, or of SKILL.md in the directory."""
    skill = next((each for each in skills if each.name == name), None)
    if skill is None:
        raise ConfigError(f"Unknown skill {name}.{did_you_mean(name, [each.name for each in skills])}")
    path = Path(skill.path)
    path = path / "SKILL.md" if path.is_dir() else path
    try:
        return render.sanitize(path.read_text("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{path} (plugin {skill.plugin}): {error.strerror}.") from error
