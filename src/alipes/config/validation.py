"""Checks the tables of a configuration file: each value, and each unknown name with a suggestion."""

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.config.display import format_value, is_secret_name, toml_key, toml_path, with_full_stop
from alipes.config.known_providers import BUILT_IN
from alipes.config.schema import KEYS, RESERVED, Key, Node, tree
from alipes.config.toml_lines import Place
from alipes.config.urls import InvalidValue, is_label
from alipes.kernel.formatting import closest_matches, did_you_mean
from alipes.kernel.messages import Json

KeyPath: TypeAlias = tuple[str, ...]
Layer: TypeAlias = Literal["default", "known", "file", "variable"]


class ConfigProblem(Struct, frozen=True):
    place: Place
    text: str
    where: str = ""
    """Where it is, if not in the configuration file."""


class EffectiveValue(Struct, frozen=True):
    """A value in effect, and the layer it came from."""

    value: Json
    layer: Layer


def check_tables(
    table: dict[str, Any], nodes: dict[str, Node] | None = None, path: KeyPath = ()
) -> Iterator[tuple[KeyPath, EffectiveValue | ConfigProblem]]:
    """Every key of `table` with its checked value, or with its problem."""
    nodes = tree() if nodes is None else nodes
    for name, value in table.items():
        here = (*path, name)
        node = nodes.get(name) or nodes.get("*")
        if isinstance(node, Key):
            yield here, _checked(node, here, value)
        elif not path and name in RESERVED:
            if not isinstance(value, dict):
                yield here, _no_table(here, value)
        elif node is None:
            if problem := _unknown(here, value, nodes):
                yield here, problem
        elif not isinstance(value, dict):
            yield here, _no_table(here, value)
        elif problem := _misnamed(here):
            yield here, problem
        else:
            yield from check_tables(value, node, here)


def _checked(key: Key, path: KeyPath, value: object) -> EffectiveValue | ConfigProblem:
    try:
        return EffectiveValue(key.type.check(value), "file")
    except InvalidValue as wrong:
        text = with_full_stop(f"{toml_path(path)} = {format_value(value, path[-1])} {wrong}")
        return ConfigProblem((*path, *_item(key, value)), text)


def _item(key: Key, value: object) -> tuple[int, ...]:
    """Index of the invalid item of a list, which may be on a line of its own."""
    for number, item in enumerate(value if isinstance(value, list) else ()):
        try:
            key.type.check([item])
        except InvalidValue:
            return (number,)
    return ()


def _no_table(path: KeyPath, value: object) -> ConfigProblem:
    return ConfigProblem(
        path, f"{toml_path(path)} = {format_value(value, path[-1])} must be a table: write [{toml_path(path)}]."
    )


def _misnamed(path: KeyPath) -> ConfigProblem | None:
    if len(path) != 2:
        return None
    table, name = path
    if table == "providers" and name in BUILT_IN:
        fix = "its settings are in [embedded]" if name == "embedded" else "leave the table out"
        return ConfigProblem(path, f"[{toml_path(path)}] is built in: {fix}.")
    if table == "providers" and not is_label(name):
        return ConfigProblem(path, f"[{toml_path(path)}] is not a valid provider name: use letters, digits, - and _.")
    if table == "models" and "/" not in name.strip("/"):
        return ConfigProblem(
            path, f'[{toml_path(path)}] needs a provider prefix: write [models."provider/{name[:40]}"].'
        )
    return None


def _unknown(path: KeyPath, value: object, nodes: dict[str, Node]) -> ConfigProblem | None:
    name = path[-1]
    if is_secret_name(name) and not isinstance(value, dict):
        return _literal(path)
    kind = "table" if isinstance(value, dict) else "setting"
    known = [*nodes, *RESERVED] if len(path) == 1 else [*nodes]
    if meant := did_you_mean(name, known):
        return ConfigProblem(path, f"unknown {kind} {toml_path(path)}.{meant}")
    if len(path) > 1 and name in tree():
        return ConfigProblem(path, f"{toml_key(name)} belongs at the top: move it above the first [table] of the file.")
    leaves = {key.path.rpartition(".")[2]: key.path for key in reversed(KEYS) if "*" not in key.path}
    if elsewhere := closest_matches(name, leaves, 1):
        return ConfigProblem(path, f"unknown {kind} {toml_path(path)}. Did you mean {leaves[elsewhere[0]]}?")
    return ConfigProblem(path, f"unknown {kind} {toml_path(path)}; valid here: {', '.join(known)}.")


def _literal(path: KeyPath) -> ConfigProblem:
    """Secrets do not belong in the configuration file."""
    owner = re.sub(r"\W", "_", path[-2] if len(path) > 1 else "my").upper().replace("SERVE", "ALIPES")
    what, setting = "API_KEY", "key_env"
    for word, usual in (("token", "BOT_TOKEN"), ("pass", "PASSWORD")):
        if word in path[-1].lower():
            what, setting = usual, f"{usual.lower().removeprefix('bot_')}_env"
    variable = f"{owner}_{what}"
    return ConfigProblem(
        path,
        f'{toml_path(path)} = "***" is a secret and does not belong here: move it to .env (run `alipes '
        f'config set {variable} -`), and write {setting} = "{variable}" here.',
    )
