"""`hermes_cli.config` and `agent.secret_scope`: our configuration, read and changed through its own door.

A secret is given to whoever asks for it by its exact name; nothing here lists them.
"""

import copy
import getpass
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from alipes.compat.hermes.modules.current_app import NotHere, bridge
from alipes.config.editor import change, set_secret
from alipes.config.loader import read
from alipes.config.schema import find_key
from alipes.config.validation import Way

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


def load_config() -> dict[str, Any]:
    """The tables of config.toml as they stand in the file: a copy."""
    return copy.deepcopy(read(bridge().home).tables)


def save_config(config: Mapping[str, Any]) -> None:
    """Write what differs from the file. What is missing in `config` stays: it may be a part of the whole;
    a value that is None is taken out. Raises ConfigError, with the file as it was."""
    before = dict(_leaves(load_config()))
    after = dict(_leaves(config))
    values = {way: _text(way, value) for way, value in after.items() if before.get(way) != value}
    _change({way: text for way, text in values.items() if text is not None or way in before})


def set_config_value(key: str, value: Any) -> None:
    """One setting, `a.b.c`; a name in capitals is a variable, and goes into `.env`."""
    if key.isupper() and key.isidentifier():
        save_env_value(key, str(value))
        return
    way = tuple(key.split("."))
    given = dict(_leaves(value, way)) if isinstance(value, Mapping) else {way: value}
    _change({each: _text(each, inner) for each, inner in given.items()})


def cfg_get(cfg: Any, *keys: str, default: Any = None) -> Any:
    """What stands at `keys` in nested tables, or `default`."""
    for key in keys:
        if not isinstance(cfg, Mapping) or key not in cfg:
            return default
        cfg = cfg[key]
    return default if cfg is None else cfg


def get_env_value(key: str) -> str | None:
    """One variable: of the environment, else of `.env`."""
    return bridge().variable(key) or None


def save_env_value(key: str, value: str) -> None:
    """Into `.env`, which only its owner reads; code that looks in the environment finds it too.

    Raises ConfigError.
    """
    set_secret(key, value, home=bridge().home)
    bridge().lending.lend(key)


def remove_env_value(key: str) -> bool:
    """Out of `.env`; False when it was not there."""
    if key not in read(bridge().home).variables.lines:
        return False
    change({}, {key: None}, home=bridge().home)
    return True


def load_env() -> dict[str, str]:
    raise NotHere(
        "hermes_cli.config.load_env, which gives all secrets", "ask for one with get_env_value(NAME)"
    )


def get_secret(name: str, default: Any = None) -> Any:
    return bridge().variable(name) or default


def _change(values: Mapping[Way, str | None]) -> None:
    if values:
        change(values, home=bridge().home)


def _leaves(tables: Mapping[str, Any], way: Way = ()) -> Iterator[tuple[Way, Any]]:
    for name, value in tables.items():
        here = (*way, str(name))
        if isinstance(value, Mapping):
            yield from _leaves(value, here)
        else:
            yield here, value


def _text(way: Way, value: Any) -> str | None:
    """As `alipes config set` would be given it."""
    if value is None:
        return None
    key = find_key(way)
    if isinstance(value, str) and key is not None and key.kind.parse is not None:
        return value
    return _toml(value)


def _toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            pairs = (f"{json.dumps(str(name))} = {_toml(inner)}" for name, inner in value.items())
            return "{ " + ", ".join(pairs) + " }"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def print_header(title: str, *more: str) -> None:
    _show("", title, "-" * len(title), *more)


def print_info(*lines: str) -> None:
    _show(*(f"  {line}" for line in lines))


def print_success(*lines: str) -> None:
    _show(*(f"✓ {line}" for line in lines))


def print_warning(*lines: str) -> None:
    _show(*(f"! {line}" for line in lines))


def print_error(*lines: str) -> None:
    _show(*(f"✗ {line}" for line in lines))


def prompt(question: str, default: str | None = None, password: bool = False) -> str:
    """What the person types; `default` for an empty line, and where nobody can type."""
    shown = f"{question} [{default}]: " if default and not password else f"{question}: "
    try:
        answer = getpass.getpass(shown) if password and sys.stdin.isatty() else input(shown)
    except EOFError:
        _show("")
        answer = ""
    return answer.strip() or default or ""


def prompt_yes_no(question: str, default: bool = True) -> bool:
    while True:
        answer = prompt(f"{question} [{'Y/n' if default else 'y/N'}]").lower()
        if not answer:
            return default
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
        _show("  Please answer y or n.")


def prompt_choice(question: str, choices: Sequence[str], default: int = 0) -> int:
    """The place of the chosen one in `choices`, from 0."""
    _show(question, *(f"  {number}. {choice}" for number, choice in enumerate(choices, 1)))
    while True:
        answer = prompt("Number", str(default + 1))
        if answer.isascii() and answer.isdecimal() and 0 < int(answer) <= len(choices):
            return int(answer) - 1
        _show(f"  Please give a number from 1 to {len(choices)}.")


def prompt_checklist(title: str, items: Sequence[str], pre_selected: Sequence[int] = ()) -> list[int]:
    """The places of the chosen ones, from 0."""
    _show(title, *(f"  {number}. {item}" for number, item in enumerate(items, 1)))
    usual = " ".join(str(each + 1) for each in pre_selected or ())
    while True:
        words = prompt("Numbers, with blanks between them", usual).replace(",", " ").split()
        if all(word.isascii() and word.isdecimal() and 0 < int(word) <= len(items) for word in words):
            return sorted({int(word) - 1 for word in words})
        _show(f"  Please give numbers from 1 to {len(items)}.")


def _show(*lines: str) -> None:
    for line in lines:
        print(line)
