"""The help pages as data: commands, actions, options and paragraphs. Completion and the manual page use it."""

import re
from importlib import import_module

from msgspec import Struct

from alipes.cli.main import list_commands
from alipes.console import help_text
from alipes.console.options import OPTION
from alipes.features.feature import CliCommand

_COMMAND = re.compile(r"^  ([a-z]+)  +(\S.*)$", re.MULTILINE)
_HEADS = ("usage:", "commands:", "options:")


class OptionHelp(Struct, frozen=True):
    short: str
    """Such as -m; may be empty."""
    name: str
    """Such as --model."""
    value: str
    """What it takes, such as MODEL; empty for a flag, in brackets if it may be missing."""
    about: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.short, self.name)))

    @property
    def takes(self) -> str:
        """The value without brackets."""
        return self.value.strip("[]")


class HelpPage(Struct, frozen=True):
    name: str
    """The command; empty for `alipes` itself."""
    about: str
    usage: tuple[str, ...]
    actions: tuple[str, ...]
    """The words that may follow the command."""
    options: tuple[OptionHelp, ...]
    paragraphs: tuple[str, ...]
    """The other text, lines joined."""


def list_pages() -> tuple[HelpPage, ...]:
    """The page of `alipes`, then those of its commands."""
    about = dict(_COMMAND.findall(help_text.TOP.partition("commands:")[2].partition("options:")[0]))
    commands = {each.name: each for each in list_commands()}
    pages = {"": help_text.TOP, **{name: read_help(commands[name]) for name in about if name in commands}}
    return tuple(_read_page(name, page, about.get(name, "a personal agent")) for name, page in pages.items())


def read_help(command: CliCommand) -> str:
    """What its `--help` prints. A feature has the text in `help`, beside the module of the command."""
    name = command.name.upper()
    core = hasattr(help_text, name)
    place = help_text if core else import_module(f"{command.module.rpartition('.')[0]}.help")
    text: str = getattr(place, name)
    return text


def _read_page(name: str, page: str, about: str) -> HelpPage:
    blocks = [block.strip("\n") for block in page.split("\n\n")]
    usage = next(block for block in blocks if block.startswith("usage:"))
    lines = tuple(re.sub(r"^(usage:)? *", "", line) for line in usage.splitlines())
    found = re.findall(rf"^alipes {name} \[?([a-z][a-z|]*)", "\n".join(lines), re.MULTILINE) if name else []
    actions = dict.fromkeys(word for words in found for word in words.split("|"))
    texts = (block for block in blocks if not block.startswith(_HEADS))
    return HelpPage(
        name, about, lines, tuple(actions), tuple(_read_options(page)), tuple(" ".join(text.split()) for text in texts)
    )


def _read_options(page: str) -> list[OptionHelp]:
    """The options with their whole descriptions, which may continue on indented lines."""
    found, section = [], page.partition("options:\n")[2].partition("\n\n")[0]
    joined = re.sub(r"\n {10,}", " ", section)
    for short, option, value, about in OPTION.findall(joined):
        found.append(OptionHelp(short, f"--{option}", value, about))
    return found
