"""`hermes_constants`, `hermes_cli.config`, `hermes_cli.setup` and `agent.secret_scope` over our
configuration.

A secret is returned only for its exact name; nothing lists them.
"""

import copy
import getpass
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alipes.compat.hermes.modules.current_app import NotAvailable, bridge
from alipes.config.editor import change, set_secret
from alipes.config.reader import KeyPath, read_config
from alipes.config.schema import find_key

__all__ = [
    "get_env_value",
    "print_error",
    "print_header",
    "print_info",
    "print_success",
    "print_warning",
    "prompt",
    "prompt_checklist",
    "prompt_choice",
    "prompt_yes_no",
    "save_env_value",
]


def get_hermes_home() -> Path:
    """The alipes home."""
    return bridge().home


def display_hermes_home() -> str:
    """The home with `~` for the user's folder."""
    home, own = str(get_hermes_home()), str(Path.home())
    return home.replace(own, "~", 1) if home.startswith(f"{own}/") else home


def get_hermes_dir(new_subpath: str, _old_name: str = "") -> Path:
    return get_hermes_home() / new_subpath


def find_node_executable(command: str) -> str | None:
    """A program on the path; nothing is installed."""
    return shutil.which(command)


def get_config_path() -> Path:
    return bridge().settings.paths.config


def get_env_path() -> Path:
    return bridge().settings.paths.env


def get_active_profile_name() -> str:
    """There is only one."""
    return bridge().profile_name


def load_config() -> dict[str, Any]:
    """A copy of the tables in config.toml."""
    return copy.deepcopy(read_config(bridge().home).tables)


def save_config(config: Mapping[str, Any]) -> None:
    """Write what differs from the file. Missing keys stay, since `config` may be partial; None removes a
    value. Raises ConfigError and leaves the file unchanged."""
    before = dict(_flatten(load_config()))
    after = dict(_flatten(config))
    values = {path: _text(path, value) for path, value in after.items() if before.get(path) != value}
    _change({path: text for path, text in values.items() if text is not None or path in before})


def set_config_value(key: str, value: Any) -> None:
    """Set one setting `a.b.c`; a name in capitals is a variable in `.env`."""
    if key.isupper() and key.isidentifier():
        save_env_value(key, str(value))
        return
    path = tuple(key.split("."))
    given = dict(_flatten(value, path)) if isinstance(value, Mapping) else {path: value}
    _change({each: _text(each, inner) for each, inner in given.items()})


def cfg_get(cfg: Any, *keys: str, default: Any = None) -> Any:
    """The value at `keys` in nested tables, or `default`."""
    for key in keys:
        if not isinstance(cfg, Mapping) or key not in cfg:
            return default
        cfg = cfg[key]
    return default if cfg is None else cfg


def get_env_value(key: str) -> str | None:
    """A variable from the environment or `.env`."""
    return bridge().variable(key) or None


def save_env_value(key: str, value: str) -> None:
    """Write a variable to `.env` and expose it in the environment. Raises ConfigError."""
    set_secret(key, value, home=bridge().home)
    bridge().environment.expose(key)


def remove_env_value(key: str) -> bool:
    """Remove a variable from `.env`; False if it was not there."""
    if key not in read_config(bridge().home).variables.lines:
        return False
    change({}, {key: None}, home=bridge().home)
    return True


def load_env() -> dict[str, str]:
    raise NotAvailable("hermes_cli.config.load_env, which returns all secrets", "use get_env_value(NAME)")


def get_secret(name: str, default: Any = None) -> Any:
    return bridge().variable(name) or default


def set_env_var(key: str, value: str) -> None:
    save_env_value(key, value)


def read_raw_config() -> dict[str, Any]:
    """The tables in config.toml; the same as `load_config`."""
    return load_config()


def write_platform_config_field(platform_key: str, field_key: str, value: Any, **_more: Any) -> None:
    """Set one value in the table of the plugin that has the platform. Raises ConfigError."""
    entry = bridge().platforms.get(platform_key)
    plugin = entry.owner.name if entry is not None else bridge().context().name
    set_config_value(f"plugins.entries.{plugin}.{field_key}", value)


def atomic_config_write(config_path: Path, data: Any, **_more: Any) -> None:
    raise NotAvailable("hermes_cli.config.atomic_config_write", "use save_config, which checks the values")


def _change(values: Mapping[KeyPath, str | None]) -> None:
    if values:
        change(values, home=bridge().home)


def _flatten(tables: Mapping[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for name, value in tables.items():
        key_path = (*path, str(name))
        if isinstance(value, Mapping):
            yield from _flatten(value, key_path)
        else:
            yield key_path, value


def _text(path: KeyPath, value: Any) -> str | None:
    """The text for `alipes config set`."""
    if value is None:
        return None
    key = find_key(path)
    if isinstance(value, str) and key is not None and key.type.parse is not None:
        return value
    return _to_toml(value)


def _to_toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_to_toml, value))}]"
        case Mapping():
            pairs = (f"{json.dumps(str(name))} = {_to_toml(inner)}" for name, inner in value.items())
            return "{ " + ", ".join(pairs) + " }"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def print_header(title: str, *more: str) -> None:
    _print_lines("", title, "-" * len(title), *more)


def print_info(*lines: str) -> None:
    _print_lines(*(f"  {line}" for line in lines))


def print_success(*lines: str) -> None:
    _print_lines(*(f"✓ {line}" for line in lines))


def print_warning(*lines: str) -> None:
    _print_lines(*(f"! {line}" for line in lines))


def print_error(*lines: str) -> None:
    _print_lines(*(f"✗ {line}" for line in lines))


def prompt(question: str, default: str | None = None, password: bool = False) -> str:
    """The user's input; `default` for an empty line or without a terminal."""
    label = f"{question} [{default}]: " if default and not password else f"{question}: "
    try:
        answer = getpass.getpass(label) if password and sys.stdin.isatty() else input(label)
    except EOFError:
        _print_lines("")
        answer = ""
    return answer.strip() or default or ""


def masked_secret_prompt(question: str, **_more: Any) -> str:
    return prompt(question.rstrip(": "), password=True)


class NoColors:
    """Colours are left out of a plugin's output."""

    RESET = BOLD = DIM = RED = GREEN = YELLOW = BLUE = MAGENTA = CYAN = ""


def color(text: str, *_codes: str) -> str:
    return text


def prompt_yes_no(question: str, default: bool = True) -> bool:
    while True:
        answer = prompt(f"{question} [{'Y/n' if default else 'y/N'}]").lower()
        if not answer:
            return default
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
        _print_lines("  Please answer y or n.")


def prompt_choice(question: str, choices: Sequence[str], default: int = 0) -> int:
    """The index of the choice, from 0."""
    _print_lines(question, *(f"  {number}. {choice}" for number, choice in enumerate(choices, 1)))
    while True:
        answer = prompt("Number", str(default + 1))
        if answer.isascii() and answer.isdecimal() and 0 < int(answer) <= len(choices):
            return int(answer) - 1
        _print_lines(f"  Please enter a number from 1 to {len(choices)}.")


def prompt_checklist(title: str, items: Sequence[str], pre_selected: Sequence[int] = ()) -> list[int]:
    """The indexes of the choices, from 0."""
    _print_lines(title, *(f"  {number}. {item}" for number, item in enumerate(items, 1)))
    usual = " ".join(str(each + 1) for each in pre_selected or ())
    while True:
        numbers = prompt("Numbers, separated by spaces", usual).replace(",", " ").split()
        if all(word.isascii() and word.isdecimal() and 0 < int(word) <= len(items) for word in numbers):
            return sorted({int(word) - 1 for word in numbers})
        _print_lines(f"  Please enter numbers from 1 to {len(items)}.")


def _print_lines(*lines: str) -> None:
    for line in lines:
        print(line)
