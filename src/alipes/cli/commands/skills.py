"""`alipes skills`: the texts that plugins offer the model, listed and shown. It starts no turn."""

import asyncio
import sys
from pathlib import Path

import msgspec

from alipes.cli import help_text, render
from alipes.cli.options import Words
from alipes.cli.plugins.standalone import Opened, open_alone
from alipes.cli.stdio import terminal_width
from alipes.config.settings import Settings, load
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean
from alipes.plugins.discovery import anything_wanted
from alipes.plugins.registry import SkillOffer


class Skill(msgspec.Struct, frozen=True):
    name: str
    plugin: str
    path: str
    description: str = ""


def run(argv: list[str]) -> int:
    words = Words("alipes skills", help_text.SKILLS)
    words.add_argument("--json", action="store_true")
    given, named = words.split(argv)
    match named:
        case [] | ["list"]:
            _show_all(_skills(load()), json=given.json)
        case ["show", name]:
            print(_text(_find(_skills(load()), name)), end="")
        case ["show", *_]:
            words.error("`show` takes one NAME")
        case _:
            words.error(f"no such action: {' '.join(named)} (there are list, show)")
    return 0


def _skills(settings: Settings) -> list[Skill]:
    return asyncio.run(_collect(settings)) if anything_wanted(settings) else []


async def _collect(settings: Settings) -> list[Skill]:
    async with open_alone(settings) as opened:
        _tell_failures(opened)
        offers = opened.offers.all(SkillOffer)
        found = [Skill(each.name, each.owner.name, each.path, each.description) for each in offers]
        return sorted(found, key=lambda skill: skill.name)


def _tell_failures(opened: Opened) -> None:
    for facts in opened.plugins.facts():
        if facts.state != "on":
            sys.stderr.write(f"The plugin {facts.name} could not be loaded: {facts.why}\n")


def _show_all(skills: list[Skill], *, json: bool) -> None:
    if json:
        print(msgspec.json.encode(skills).decode())
        return
    if not skills:
        print("No enabled plugin offers a skill; `alipes plugins list` shows the plugins.")
        return
    head = ("NAME", "PLUGIN", "DESCRIPTION", "PATH")
    rows = [(each.name, each.plugin, render.one_line(each.description, 60), each.path) for each in skills]
    width = terminal_width(sys.stdout)
    for line in render.table([head, *rows]):
        print(render.cut(line, width) if width else line)


def _find(skills: list[Skill], name: str) -> Skill:
    for skill in skills:
        if skill.name == name:
            return skill
    raise ConfigError(f"There is no skill {name}.{did_you_mean(name, [each.name for each in skills])}")


def _text(skill: Skill) -> str:
    """Of the file, or where a folder is named of the one in it that skills have."""
    path = Path(skill.path)
    path = path / "SKILL.md" if path.is_dir() else path
    try:
        return render.harmless(path.read_text("utf-8", "replace"))
    except OSError as error:
        raise ConfigError(f"{path}, of the plugin {skill.plugin}: {error.strerror}.") from error
