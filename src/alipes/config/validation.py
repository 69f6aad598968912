"""The tables of a configuration file, walked key by key: each value checked, each unknown name explained."""

import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.config.display import bare, dotted, is_secret_name, sentence, show
from alipes.config.known_providers import BUILT_IN
from alipes.config.schema import KEYS, RESERVED, Node, tree
from alipes.config.toml_lines import Place
from alipes.config.urls import Wrong, is_label
from alipes.config.value_types import Key
from alipes.kernel.formatting import did_you_mean, near
from alipes.kernel.messages import Json

Way: TypeAlias = tuple[str, ...]
Layer: TypeAlias = Literal["default", "known", "file", "variable"]
_MESSENGERS = ("slack", "matrix", "email", "irc")


class Problem(Struct, frozen=True):
    place: Place
    text: str
    where: str = ""
    """Where to look when it is not in the configuration file."""


class Found(Struct, frozen=True):
    """A value in effect, and which layer it came from."""

    value: Json
    layer: Layer


def check_tables(
    table: dict[str, Any], nodes: dict[str, Node] | None = None, way: Way = ()
) -> Iterator[tuple[Way, Found | Problem]]:
    """Every key of `table` with its checked value, or with what is wrong with it."""
    nodes = tree() if nodes is None else nodes
    for name, value in table.items():
        here = (*way, name)
        node = nodes.get(name) or nodes.get("*")
        if isinstance(node, Key):
            yield here, _checked(node, here, value)
        elif not way and name in RESERVED:
            yield from _reserved(here, value)
        elif node is None:
            if problem := _unknown(here, value, nodes):
                yield here, problem
        elif not isinstance(value, dict):
            yield here, _no_table(here, value)
        elif problem := _misnamed(here):
            yield here, problem
        else:
            yield from check_tables(value, node, here)


def _checked(key: Key, way: Way, value: object) -> Found | Problem:
    try:
        return Found(key.kind.check(value), "file")
    except Wrong as wrong:
        told = sentence(f"{dotted(way)} = {show(value, way[-1])} {wrong}")
        return Problem((*way, *_item(key, value)), told)


def _item(key: Key, value: object) -> tuple[int, ...]:
    """Which item of a list is the wrong one: it may stand on a line of its own."""
    for number, item in enumerate(value if isinstance(value, list) else ()):
        try:
            key.kind.check([item])
        except Wrong:
            return (number,)
    return ()


def _reserved(way: Way, value: object) -> Iterator[tuple[Way, Problem]]:
    if not isinstance(value, dict):
        yield way, _no_table(way, value)
    elif way[0] in _MESSENGERS:
        for name, inner in value.items():
            if is_secret_name(name) and isinstance(inner, str):
                yield (*way, name), _literal((*way, name))


def _no_table(way: Way, value: object) -> Problem:
    return Problem(way, f"{dotted(way)} = {show(value, way[-1])} must be a table: write [{dotted(way)}].")


def _misnamed(way: Way) -> Problem | None:
    if len(way) != 2:
        return None
    table, name = way
    if table == "providers" and name in BUILT_IN:
        fix = "its settings are in [embedded]" if name == "embedded" else "leave the table out"
        return Problem(way, f"[{dotted(way)}] is built in: {fix}.")
    if table == "providers" and not is_label(name):
        return Problem(way, f"[{dotted(way)}] is no name for a provider: use letters, digits, - and _.")
    if table == "models" and "/" not in name.strip("/"):
        return Problem(way, f'[{dotted(way)}] lacks the provider: write [models."provider/{name[:40]}"].')
    return None


def _unknown(way: Way, value: object, nodes: dict[str, Node]) -> Problem | None:
    name = way[-1]
    if is_secret_name(name) and not isinstance(value, dict):
        return _literal(way)
    kind = "table" if isinstance(value, dict) else "setting"
    known = [*nodes, *RESERVED] if len(way) == 1 else [*nodes]
    if meant := did_you_mean(name, known):
        return Problem(way, f"{dotted(way)} is not a {kind} we know.{meant}")
    if len(way) > 1 and name in tree():
        return Problem(way, f"{bare(name)} belongs at the top: move it above the first [table] of the file.")
    leaves = {key.path.rpartition(".")[2]: key.path for key in reversed(KEYS) if "*" not in key.path}
    if elsewhere := near(name, leaves, 1):
        return Problem(way, f"{dotted(way)} is not a {kind} we know. Did you mean {leaves[elsewhere[0]]}?")
    return Problem(way, f"{dotted(way)} is not a {kind} we know; here may stand {', '.join(known)}.")


def _literal(way: Way) -> Problem:
    """The configuration file never holds a key."""
    owner = re.sub(r"\W", "_", way[-2] if len(way) > 1 else "my").upper().replace("SERVE", "ALIPES")
    what, setting = "API_KEY", "key_env"
    for word, usual in (("token", "BOT_TOKEN"), ("pass", "PASSWORD")):
        if word in way[-1].lower():
            what, setting = usual, f"{usual.lower().removeprefix('bot_')}_env"
    variable = f"{owner}_{what}"
    return Problem(
        way,
        f'{dotted(way)} = "***" is a secret, which this file never holds: move it to .env (run `alipes '
        f'config set {variable} -`), and write {setting} = "{variable}" here.',
    )
