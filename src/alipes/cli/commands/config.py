"""`alipes config`: what the settings are, where each comes from, and changing them."""

import sys
from collections.abc import Iterator
from getpass import getpass

from alipes.cli.options import Words
from alipes.config.display import HIDDEN, bare, dotted, mask, written
from alipes.config.editor import change, holds, set_secret, set_value
from alipes.config.environment import read_variables
from alipes.config.known_providers import KEYED
from alipes.config.loader import Reading, read
from alipes.config.paths import Paths, find_home
from alipes.config.proxies import PROXY_VARIABLES
from alipes.config.schema import KEYS, find_key, tree
from alipes.config.settings import CA_VARIABLE, Settings, build
from alipes.config.toml_lines import split_key
from alipes.config.validation import Found, Way
from alipes.config.value_types import Key
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean

PAGE = """\
usage: alipes config show             all settings in effect, and where each comes from
       alipes config get KEY          the value of one
       alipes config why KEY          its value, its origin and its meaning
       alipes config set KEY VALUE    change one in config.toml, keeping its comments
       alipes config unset KEY        take one out of config.toml again
       alipes config path             where config.toml is

KEY is a name with dots, such as serve.port, providers.mine.base_url or
models."openai/gpt-5.5".window. A KEY in capitals, such as OPENAI_API_KEY, is a
secret: `set` keeps it in .env, `unset` takes it out of there, and a VALUE of -
reads it from standard input.

options:
  -h, --help            show this page

Exit status: 0 done; 2 wrong usage or settings.
"""


def run(argv: list[str]) -> int:
    """Do what the words say. Answers go to standard output, errors to standard error."""
    words = Words("alipes config", PAGE)
    words.add_argument("action", choices=("show", "get", "set", "unset", "why", "path"))
    words.add_argument("key", nargs="?", default="")
    words.add_argument("value", nargs="?")
    try:
        # A value may begin with a hyphen, so what follows `set KEY` is never taken for an option.
        given = words.parse_args([*argv[:2], "--", *argv[2:]] if argv[:1] == ["set"] else argv)
        if bool(given.key) != (given.action not in ("show", "path")):
            words.error(f"`{given.action}` {'takes no' if given.key else 'needs a'} KEY")
        if (given.value is not None) != (given.action == "set"):
            words.error(f"`{given.action}` {'needs' if given.action == 'set' else 'takes no'} VALUE")
        for line in _answer(given.action, given.key, given.value):
            print(line)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2
    return 0


def _answer(action: str, key: str, value: str | None) -> Iterator[str]:
    if action == "set":
        assert value is not None
        return _set(key, value)
    if action == "unset":
        return _unset(key)
    reading = read()
    if action == "path":
        return iter([str(reading.paths.config)])
    settings = build(reading)
    if action == "show":
        return _show(reading, settings)
    if _is_variable(key):
        return _variable(reading, key, action)
    return (_get if action == "get" else _why)(reading, _way(reading, key))


def _way(reading: Reading, key: str) -> Way:
    way = split_key(key)
    if way and (find_key(way) or any(each[: len(way)] == way for each in _ways(reading))):
        return way
    names = [dotted(each) for each in _ways(reading)]
    raise ConfigError(
        f"{key} is not a setting.{did_you_mean(key, names)} `alipes config show` lists them all."
    )


def _ways(reading: Reading) -> list[Way]:
    """Every setting there is: the fixed ones, those of providers in use, and what else was given names."""
    fixed = [tuple(key.path.split(".")) for key in KEYS if "*" not in key.path]
    keyed = [
        name for name in KEYED if reading.variables.get(str(_value(reading, "providers", name, "key_env")))
    ]
    fields = tree()["providers"]
    assert isinstance(fields, dict) and isinstance(fields["*"], dict)
    providers = [
        ("providers", name, field)
        for name in dict.fromkeys([*reading.names("providers"), *keyed])
        for field in fields["*"]
    ]
    named = (way for way in reading.values if way[0] != "providers" and "*" in _key(way).path)
    return [*fixed, *providers, *named]


def _value(reading: Reading, *way: str) -> object:
    return reading.picked(*way).value


def _origin(reading: Reading, way: Way, found: Found) -> str:
    if found.layer == "variable":
        variable = _key(way).variable
        return f"{variable}, {reading.variables.where(variable)}"
    return {"file": reading.where(way), "known": "known provider", "default": "default"}[found.layer]


def _key(way: Way) -> Key:
    key = find_key(way)
    assert key is not None
    return key


def _show(reading: Reading, settings: Settings) -> Iterator[str]:
    yield from _lines(reading, _ways(reading))
    missing = [
        f"{name} ({settings.providers[name].key_env})" for name in KEYED if not settings.providers[name].key
    ]
    if missing:
        yield f"\n# known providers whose key is not set: {', '.join(missing)}"
    for name in (*PROXY_VARIABLES, *(name.lower() for name in PROXY_VARIABLES), CA_VARIABLE):
        if text := reading.variables.get(name):
            yield f"# {name} = {written(mask(text))}, {reading.variables.where(name)}"
    for note in settings.notes:
        yield f"# {note}"


def _lines(reading: Reading, ways: list[Way]) -> Iterator[str]:
    """The settings as a configuration file would say them, each with its origin."""
    table: Way = ()
    for way in ways:
        if way[:-1] != table:
            table = way[:-1]
            yield f"\n[{dotted(table)}]"
        found = reading.picked(*way)
        origin = _origin(reading, way, found)
        if way[-1].endswith("_env") and found.value:
            place = reading.variables.where(str(found.value))
            origin += f"; {'set, ' + place if place else 'not set'}"
        yield f"{bare(way[-1])} = {written(found.value)}  # {origin}"


def _get(reading: Reading, way: Way) -> Iterator[str]:
    key = find_key(way)
    if key is None:
        yield from _lines(reading, [each for each in _ways(reading) if each[: len(way)] == way])
        return
    value = _inside(_value(reading, *way[: key.path.count(".") + 1]), way[key.path.count(".") + 1 :])
    if value is not None:
        yield mask(value) if isinstance(value, str) else written(value)


def _inside(value: object, rest: Way) -> object:
    """What lies at `rest` in a table such as headers or body."""
    for name in rest:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _why(reading: Reading, way: Way) -> Iterator[str]:
    key = find_key(way)
    if key is None:
        yield from _get(reading, way)
        return
    yield from _from(reading, way[: key.path.count(".") + 1])
    yield f"  {key.doc}"
    default = "none" if key.default is None else written(key.default)
    yield f"  {key.kind.says}; default {default}" + (f"; variable {key.variable}" if key.variable else "")


def _from(reading: Reading, way: Way) -> Iterator[str]:
    found = reading.picked(*way)
    value = "not set" if found.value is None else written(found.value)
    yield f"{dotted(way)} = {value}"
    yield f"  from {_origin(reading, way, found)}"
    if found.layer == "variable" and way in reading.values:
        yield f"  over {written(reading.values[way])} from {reading.where(way)}"


def _is_variable(key: str) -> bool:
    return key.isidentifier() and key.isascii() and (key.isupper() or key.upper() in PROXY_VARIABLES)


def _variable(reading: Reading, name: str, action: str) -> Iterator[str]:
    where = reading.variables.where(name)
    shown = mask(reading.variables.get(name)) if name.upper() in PROXY_VARIABLES else HIDDEN
    if action == "get":
        if where:
            yield shown
        return
    yield f"{name} = {shown}" if where else f"{name} is not set"
    if where:
        yield f"  from {where}"
    for way in _ways(reading):
        if way[-1].endswith("_env") and _value(reading, *way) == name:
            yield f"  named by {dotted(way)}"


def _set(key: str, value: str) -> Iterator[str]:
    if _is_variable(key):
        for known in KEYS:
            if known.variable == key:
                raise ConfigError(f"{key} stands for a setting: run `alipes config set {known.path} VALUE`.")
        if key == "ALIPES_HOME":
            raise ConfigError(
                "ALIPES_HOME says where .env is, so it cannot stand there: set it in the environment."
            )
        yield f"{key} is kept in {set_secret(key, _given(key, value))}"
        return
    way = split_key(key)
    if not way:
        raise ConfigError(f"{key!r} is not the name of a setting: write it with dots, as in serve.port.")
    left = set_value(way, value)
    reading = read()
    if setting := find_key(way):
        yield from _from(reading, way[: setting.path.count(".") + 1])
    else:
        yield f"{dotted(way)} is set, {reading.where(way)}"
    if left:
        print("Still wrong in the file:", *left, sep="\n", file=sys.stderr)


def _unset(key: str) -> Iterator[str]:
    if _is_variable(key):
        where = read_variables(Paths(find_home()).env, {}).where(key)
        if where:
            change({}, {key: None})
        yield f"{key} is no longer set, {where}" if where else f"{key} is not set in {Paths(find_home()).env}"
        return
    reading = read()
    way = split_key(key)
    if not way or not holds(reading.tables, way):
        way = _way(reading, key)
        yield f"{dotted(way)} is not set in {reading.paths.config}"
        return
    where = reading.where(way)
    left = change({way: None})
    yield f"{dotted(way)} is no longer set, {where}"
    if find_key(way):
        yield from _from(read(), way)
    if left:
        print("Still wrong in the file:", *left, sep="\n", file=sys.stderr)


def _given(name: str, value: str) -> str:
    if value != "-":
        return value
    return getpass(f"{name}: ") if sys.stdin.isatty() else sys.stdin.read().strip()
