"""`alipes secrets`: the names of the secrets in use and where their values come from; never a value."""

import getpass
import sys

from alipes.config.reader import RawConfig, read_config
from alipes.config.secrets import find_sources, remove_secret, save_secret
from alipes.console import help_text
from alipes.console.common import print_list
from alipes.console.options import OptionParser
from alipes.kernel.errors import ConfigError


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes secrets", help_text.SECRETS)
    args, named = parser.parse_with_words(argv)
    config = read_config()
    match named:
        case [] | ["list"]:
            return _list(config, json=args.json)
        case ["set", name]:
            return _set(config, name)
        case ["remove", name]:
            return _remove(config, name)
        case ["set" | "remove" as act, *_]:
            parser.error(f"`{act}` takes one NAME")
    return parser.error(f"unknown action: {' '.join(named)} (use list, set or remove)")


def _list(config: RawConfig, *, json: bool) -> int:
    found = find_sources(config)
    rows = ((each.name, each.source, "yes" if each.used else "no") for each in found)
    empty = "No secrets. Add one with `alipes secrets set NAME`."
    print_list(found, ("NAME", "FROM", "USED BY SETTINGS"), rows, json=json, empty=empty)
    return 0


def _set(config: RawConfig, name: str) -> int:
    where = save_secret(config, name, _read_value(name))
    print(f"{name} is saved in {where}. Restart a running `alipes serve`.")
    if config.variables.environ.get(name):
        print(f"  the environment also sets {name}, and its value is used")
    return 0


def _remove(config: RawConfig, name: str) -> int:
    print(f"{name} was removed from {remove_secret(config, name)}.")
    return 0


def _read_value(name: str) -> str:
    """From the terminal without echo, or one line of standard input."""
    if sys.stdin is not None and sys.stdin.isatty():
        value = getpass.getpass(f"{name} (not shown): ")
    else:
        value = sys.stdin.readline() if sys.stdin is not None else ""
    if not (value := value.strip()):
        raise ConfigError(f"no value for {name} was given; nothing was changed.")
    return value
