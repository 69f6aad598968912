"""The settings of a home with their values and origins, for `alipes config` and the API."""

from collections.abc import Iterator

from alipes.config.display import to_toml, toml_path
from alipes.config.known_providers import KEYED
from alipes.config.loader import PROXY_VARIABLES, list_variables
from alipes.config.paths import PROFILE_VARIABLE
from alipes.config.reader import EffectiveValue, KeyPath, RawConfig
from alipes.config.schema import KEYS, Key, find_key, tree
from alipes.config.toml_lines import split_key
from alipes.kernel.errors import ConfigError
from alipes.kernel.formatting import did_you_mean


def resolve_key(reading: RawConfig, key: str) -> KeyPath:
    way = split_key(key)
    if way and (find_key(way) or any(each[: len(way)] == way for each in list_keys(reading))):
        return way
    names = [toml_path(each) for each in list_keys(reading)]
    raise ConfigError(f"Unknown setting {key}.{did_you_mean(key, names)} `alipes config show` lists all of them.")


def list_keys(reading: RawConfig) -> list[KeyPath]:
    """All settings: the fixed ones, those of providers in use, and other named ones."""
    fixed = [tuple(key.path.split(".")) for key in KEYS if "*" not in key.path]
    keyed = [
        name
        for name in KEYED
        if any(map(reading.variables.get, list_variables(effective_value(reading, "providers", name, "key_env"))))
    ]
    fields = tree()["providers"]
    assert isinstance(fields, dict) and isinstance(fields["*"], dict)
    providers = [
        ("providers", name, field)
        for name in dict.fromkeys([*reading.names("providers"), *keyed])
        for field in fields["*"]
    ]
    named = (way for way in reading.values if way[0] != "providers" and "*" in _known_key(way).path)
    return [*fixed, *providers, *named]


def effective_value(reading: RawConfig, *way: str) -> object:
    return reading.effective(*way).value


def format_origin(reading: RawConfig, way: KeyPath, found: EffectiveValue) -> str:
    if found.layer == "variable":
        variable = _known_key(way).variable
        return f"{variable}, {reading.variables.where(variable)}"
    return {"file": reading.where(way), "known": "known provider", "default": "default"}[found.layer]


def _known_key(way: KeyPath) -> Key:
    key = find_key(way)
    assert key is not None
    return key


def explain_value(reading: RawConfig, way: KeyPath) -> Iterator[str]:
    """Its value, where that came from, what it means, and what is allowed."""
    key = _known_key(way)
    yield from describe_value(reading, way[: key.path.count(".") + 1])
    yield f"  {key.description}"
    default = "none" if key.default is None else to_toml(key.default)
    yield f"  {key.type.description}; default {default}" + (f"; variable {key.variable}" if key.variable else "")


def describe_value(reading: RawConfig, way: KeyPath) -> Iterator[str]:
    found = reading.effective(*way)
    value = "not set" if found.value is None else to_toml(found.value)
    yield f"{toml_path(way)} = {value}"
    yield f"  from {format_origin(reading, way, found)}"
    if found.layer == "variable" and way in reading.values:
        yield f"  overrides {to_toml(reading.values[way])} from {reading.where(way)}"


def is_variable(key: str) -> bool:
    return key.isidentifier() and key.isascii() and (key.isupper() or key.upper() in PROXY_VARIABLES)


def check_secret_name(name: str) -> None:
    """Raises `ConfigError` for a variable that must not be written into `.env`."""
    for known in KEYS:
        if known.variable == name:
            raise ConfigError(f"{name} sets a setting: use `alipes config set {known.path} VALUE`.")
    if name in ("ALIPES_HOME", PROFILE_VARIABLE):
        raise ConfigError(f"{name} cannot be set in .env, which is inside the home: set it in the environment.")
