"""`hermes_cli.config` and `agent.secret_scope`: our configuration, read and changed through its own door.

A secret is given to whoever asks for it by its exact name; nothing here lists them.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from alipes.compat.hermes.names.bound import NotHere, bridge
from alipes.config.checking import Way
from alipes.config.edit import change, set_secret
from alipes.config.keys import find_key
from alipes.config.reading import read


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
