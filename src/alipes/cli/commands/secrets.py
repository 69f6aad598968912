"""`alipes secrets`: the names of the secrets in use and where their values come from; never a value."""

import getpass
import sys

from msgspec import Struct

from alipes.cli import help_text
from alipes.cli.common import print_list
from alipes.cli.options import OptionParser
from alipes.config.editor import change, set_secret
from alipes.config.loader import build_settings
from alipes.config.reader import RawConfig, read_config
from alipes.config.secret_store import read_keyring, remove_from_keyring, write_keyring
from alipes.kernel.errors import ConfigError

MISSING = "missing"


class SecretSource(Struct, frozen=True):
    """A secret by its name; `source` is `environment`, `.env:LINE`, `keyring` or `missing`."""

    name: str
    source: str
    used: bool
    """A setting names it."""


def run(argv: list[str]) -> int:
    parser = OptionParser("alipes secrets", help_text.SECRETS)
    args, named = parser.parse_with_words(argv)
    config = read_config()
    match named:
        case [] | ["list"]:
            return _list(config, json=args.json)
        case ["set", name]:
            return _set(config, _check_name(name))
        case ["remove", name]:
            return _remove(config, _check_name(name))
        case ["set" | "remove" as act, *_]:
            parser.error(f"`{act}` takes one NAME")
    return parser.error(f"unknown action: {' '.join(named)} (use list, set or remove)")


def find_sources(config: RawConfig) -> list[SecretSource]:
    """The secrets that settings name, and the other variables in `.env`. Raises ConfigError."""
    build_settings(config)
    used = [
        SecretSource(name, source or MISSING, True)
        for name, (source, needed) in sorted(config.secret_sources.items())
        if source or needed
    ]
    others = sorted(config.variables.lines.keys() - config.secret_sources.keys())
    return [*used, *(SecretSource(name, config.variables.where(name), False) for name in others)]


def _list(config: RawConfig, *, json: bool) -> int:
    found = find_sources(config)
    rows = ((each.name, each.source, "yes" if each.used else "no") for each in found)
    empty = "No secrets. Add one with `alipes secrets set NAME`."
    print_list(found, ("NAME", "FROM", "USED BY SETTINGS"), rows, json=json, empty=empty)
    return 0


def _set(config: RawConfig, name: str) -> int:
    value = _read_value(name)
    if _uses_keyring(config):
        write_keyring(config.paths.home, name, value)
        where = "the keyring"
    else:
        where = str(set_secret(name, value, home=config.paths.home))
    print(f"{name} is saved in {where}. Restart a running `alipes serve`.")
    if config.variables.environ.get(name):
        print(f"  the environment also sets {name}, and its value is used")
    return 0


def _remove(config: RawConfig, name: str) -> int:
    if name in config.variables.lines:
        change({}, {name: None}, home=config.paths.home)
        print(f"{name} was removed from {config.paths.env}.")
    elif _uses_keyring(config) and read_keyring(config.paths.home, name):
        remove_from_keyring(config.paths.home, name)
        print(f"{name} was removed from the keyring.")
    else:
        stores = f"{config.paths.env} or the keyring" if _uses_keyring(config) else str(config.paths.env)
        raise ConfigError(f"{name} is not in {stores}.")
    return 0


def _uses_keyring(config: RawConfig) -> bool:
    return config.effective("secret_store").value == "keyring"


def _check_name(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise ConfigError(f"{name!r} is not a name: use A-Z, 0-9 and _, as in OPENAI_API_KEY.")
    return name


def _read_value(name: str) -> str:
    """From the terminal without echo, or one line of standard input."""
    if sys.stdin is not None and sys.stdin.isatty():
        value = getpass.getpass(f"{name} (not shown): ")
    else:
        value = sys.stdin.readline() if sys.stdin is not None else ""
    if not (value := value.strip()):
        raise ConfigError(f"no value for {name} was given; nothing was changed.")
    return value
