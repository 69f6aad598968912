"""Reads config.toml, `.env` and the environment: the raw value of each setting and where it came from.

Each value is checked, and each unknown name is reported with a suggestion.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from alipes.config.display import format_value, is_secret_name, toml_key, toml_path, with_full_stop
from alipes.config.environment import Variables, read_text, read_variables
from alipes.config.known_providers import KNOWN, TEST_VARIABLE, add_test_provider, is_built_in
from alipes.config.paths import Paths, current_environ, find_home
from alipes.config.schema import KEYS, RESERVED, Key, Node, find_key, tree
from alipes.config.toml_lines import Place, lines_of, nearest_line
from alipes.config.urls import InvalidValue, is_label
from alipes.kernel.errors import ConfigError, MissingExtra
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


class RawConfig:
    """Everything that was read, with its problems. `effective` returns a value and its source."""

    def __init__(self, paths: Paths, variables: Variables, text: str) -> None:
        self.paths, self.variables, self.text = paths, variables, text
        self.tables = parse_toml(text, paths.config) if text else {}
        self.values: dict[KeyPath, Json] = {}
        self.problems: list[ConfigProblem] = []
        for path, checked in check_tables(self.tables):
            if isinstance(checked, ConfigProblem):
                self.problems.append(checked)
            else:
                self.values[path] = checked.value
        self.notes: list[str] = []
        self.secrets: set[str] = set()
        self.secret_sources: dict[str, tuple[str, bool]] = {}
        """By name: where the secret was found (empty: nowhere), and whether a setting of the operator needs it."""
        self.keyring_failed = False
        self.missing_extra = ""
        """One whose packages would solve the problems."""
        self._lines: dict[Place, int] | None = None
        self._overrides: dict[str, EffectiveValue] = {}

    def effective(self, *path: str) -> EffectiveValue:
        """The value at `path`: from the variable, else the file, else a known provider, else the default."""
        key = find_key(path)
        assert key is not None, path
        if key.variable and (found := self._override(key)):
            return found
        if path in self.values:
            return EffectiveValue(self.values[path], "file")
        if path[0] == "providers" and (known := KNOWN.get(path[1])) and getattr(known, path[2]) != key.default:
            return EffectiveValue(getattr(known, path[2]), "known")
        return EffectiveValue(key.default, "default")

    def _override(self, key: Key) -> EffectiveValue | None:
        text = self.variables.get(key.variable)
        if not text or key.type.parse is None:
            return None
        if key.variable not in self._overrides:
            try:
                self._overrides[key.variable] = EffectiveValue(key.type.check(key.type.parse(text)), "variable")
            except InvalidValue as wrong:
                self._overrides[key.variable] = EffectiveValue(key.default, "variable")
                self.report_variable(key.variable, text, str(wrong))
        return self._overrides[key.variable]

    def report(self, key: str, value: str, wrong: str, item: int | None = None) -> None:
        """Record what is wrong with an effective value, at the place it came from."""
        path: KeyPath = tuple(key.split("."))
        if self.effective(*path).layer == "variable":
            known = find_key(path)
            assert known is not None
            self.report_variable(known.variable, value, wrong)
        else:
            self.add_problem(path if item is None else (*path, item), f"{key} = {format_value(value)} {wrong}")

    def add_problem(self, place: Place, text: str) -> None:
        """Record a problem at `place` of the file."""
        self.problems.append(ConfigProblem(place, with_full_stop(text)))

    def report_variable(self, variable: str, value: str, wrong: str) -> None:
        """Record what is wrong with a variable."""
        where = self.variables.where(variable)
        text = with_full_stop(f"{variable} = {format_value(value, variable)} {wrong}")
        self.problems.append(ConfigProblem((), text, where))

    def names(self, *path: str) -> Iterator[str]:
        """Names of the tables under `path`, which the operator chose."""
        inner: object = self.tables
        for name in path:
            inner = inner.get(name) if isinstance(inner, dict) else None
        return iter(inner if isinstance(inner, dict) else ())

    def line(self, place: Place) -> int | None:
        """The line of the file that is nearest to `place`; None if there is none."""
        if self._lines is None:
            self._lines = lines_of(self.text)
        return nearest_line(self._lines, place)

    def where(self, place: Place) -> str:
        """`/home/me/.alipes/config.toml:7`"""
        line = self.line(place)
        return f"{self.paths.config}:{line}" if line else str(self.paths.config)

    def raise_problems(self) -> None:
        """Raise one ConfigError with every problem, in the order of the file."""
        if self.problems:
            lines = [f"{p.where or self.where(p.place)}: {p.text}" for p in sorted(self.problems, key=self._line)]
            text = "\n".join(dict.fromkeys(lines))
            raise MissingExtra(text, self.missing_extra) if self.missing_extra else ConfigError(text)

    def _line(self, problem: ConfigProblem) -> int:
        return self.line(problem.place) or 0


def read_config(home: Path | None = None, environ: Mapping[str, str] | None = None) -> RawConfig:
    """Read the files of the home. Raises ConfigError if one of them cannot be parsed."""
    environ = current_environ() if environ is None else environ
    add_test_provider(environ.get(TEST_VARIABLE, ""))
    paths = Paths(find_home(environ) if home is None else home)
    broken = []
    variables = Variables(environ, paths.env)
    try:
        variables = read_variables(paths.env, environ)
    except ConfigError as error:
        broken.append(error)
    try:
        config = RawConfig(paths, variables, read_text(paths.config) or "")
        if not broken:
            return config
    except ConfigError as error:
        broken.append(error)
    raise ConfigError("\n".join(map(str, broken)))


def parse_toml(text: str, file: Path) -> dict[str, Any]:
    """The tables of a TOML text. Raises ConfigError with file and line."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        found = re.search(r" ?\(at line (\d+), column (\d+)\)| ?\(at end of document\)", what)
        if found:
            line = found[1] or text.rstrip("\n").count("\n") + 1
            what = what.replace(found[0], f", at column {found[2]}" if found[2] else ", at the end")
            file = Path(f"{file}:{line}")
        hint = 'put text in "quotes", write one `key = value` per line, start tables with [name]'
        raise ConfigError(f"{file}: invalid TOML ({what}): {hint}.") from error


def locate(paths: Paths, place: Place) -> str:
    """`/home/me/.alipes/config.toml:7`, the line nearest to `place`."""
    try:
        line = nearest_line(lines_of(read_text(paths.config) or ""), place)
    except ConfigError:
        line = None
    return f"{paths.config}:{line}" if line else str(paths.config)


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
    if table == "providers" and is_built_in(name):
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
