"""What the home's files and the variables say, key by key. What it means together is for settings to say."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from alipes.config.display import sentence, show
from alipes.config.environment import Variables, read_text, read_variables
from alipes.config.known_providers import KNOWN
from alipes.config.paths import Paths, find_home
from alipes.config.schema import find_key
from alipes.config.toml_lines import Place, lines_of, nearest_line
from alipes.config.urls import Wrong
from alipes.config.validation import Found, Problem, Way, check_tables
from alipes.config.value_types import Key
from alipes.kernel.errors import ConfigError
from alipes.kernel.messages import Json


class Reading:
    """Everything read, problems and all. `picked` says what is in effect and why."""

    def __init__(self, paths: Paths, variables: Variables, text: str) -> None:
        self.paths, self.variables, self.text = paths, variables, text
        self.tables = parse(text, paths.config) if text else {}
        self.values: dict[Way, Json] = {}
        self.problems: list[Problem] = []
        for way, checked in check_tables(self.tables):
            if isinstance(checked, Problem):
                self.problems.append(checked)
            else:
                self.values[way] = checked.value
        self.notes: list[str] = []
        self.secrets: set[str] = set()
        self._lines: dict[Place, int] | None = None
        self._overrides: dict[str, Found] = {}

    def picked(self, *way: str) -> Found:
        """The value of the setting at `way`: variable, else file, else known provider, else default."""
        key = find_key(way)
        assert key is not None, way
        if key.variable and (found := self._override(key)):
            return found
        if way in self.values:
            return Found(self.values[way], "file")
        if way[0] == "providers" and (known := KNOWN.get(way[1])) and getattr(known, way[2]) != key.default:
            return Found(getattr(known, way[2]), "known")
        return Found(key.default, "default")

    def _override(self, key: Key) -> Found | None:
        text = self.variables.get(key.variable)
        if not text or key.kind.parse is None:
            return None
        if key.variable not in self._overrides:
            try:
                self._overrides[key.variable] = Found(key.kind.check(key.kind.parse(text)), "variable")
            except Wrong as wrong:
                self._overrides[key.variable] = Found(key.default, "variable")
                self.complain(key.variable, text, str(wrong))
        return self._overrides[key.variable]

    def fault(self, key: str, value: str, wrong: str, item: int | None = None) -> None:
        """Say what is wrong with a setting in effect, at the place it came from."""
        way: Way = tuple(key.split("."))
        if self.picked(*way).layer == "variable":
            known = find_key(way)
            assert known is not None
            self.complain(known.variable, value, wrong)
        else:
            place: Place = way if item is None else (*way, item)
            self.problems.append(Problem(place, sentence(f"{key} = {show(value)} {wrong}")))

    def complain(self, variable: str, value: str, wrong: str) -> None:
        """Say what is wrong with a variable."""
        where = self.variables.where(variable)
        told = sentence(f"{variable} = {show(value, variable)} {wrong}")
        self.problems.append(Problem((), told, where))

    def names(self, table: str) -> Iterator[str]:
        """What the operator called the tables under `table`."""
        inner = self.tables.get(table)
        return iter(inner if isinstance(inner, dict) else ())

    def where(self, way: Place) -> str:
        """`/home/me/.alipes/config.toml:7`"""
        if self._lines is None:
            self._lines = lines_of(self.text)
        line = nearest_line(self._lines, way)
        return f"{self.paths.config}:{line}" if line else str(self.paths.config)

    def refuse(self) -> None:
        """Raise one ConfigError with every problem, in the order of the file."""
        if self.problems:
            told = [
                f"{p.where or self.where(p.place)}: {p.text}" for p in sorted(self.problems, key=self._line)
            ]
            raise ConfigError("\n".join(dict.fromkeys(told)))

    def _line(self, problem: Problem) -> int:
        self.where(problem.place)
        return nearest_line(self._lines or {}, problem.place) or 0


def read(home: Path | None = None, environ: Mapping[str, str] | None = None) -> Reading:
    """Read the files of the home. Raises ConfigError when one of them cannot be made out at all."""
    environ = os.environ if environ is None else environ
    paths = Paths(find_home(environ) if home is None else home)
    broken = []
    variables = Variables(environ, paths.env)
    try:
        variables = read_variables(paths.env, environ)
    except ConfigError as error:
        broken.append(error)
    try:
        reading = Reading(paths, variables, read_text(paths.config) or "")
        if not broken:
            return reading
    except ConfigError as error:
        broken.append(error)
    raise ConfigError("\n".join(map(str, broken)))


def parse(text: str, file: Path) -> dict[str, Any]:
    """The tables of a TOML text. Raises ConfigError that names file and line."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        found = re.search(r" ?\(at line (\d+), column (\d+)\)| ?\(at end of document\)", what)
        if found:
            line = found[1] or text.rstrip("\n").count("\n") + 1
            what = what.replace(found[0], f", at column {found[2]}" if found[2] else ", at the end")
            file = Path(f"{file}:{line}")
        hint = 'text stands in "quotes", one `key = value` to a line, tables begin with [name]'
        raise ConfigError(f"{file}: this is not valid TOML ({what}): {hint}.") from error
