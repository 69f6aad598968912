"""Which plugins are enabled: two lists in config.toml, changed without losing a comment."""

from collections.abc import Iterable

import msgspec

from alipes.config.checking import Way
from alipes.config.edit import change
from alipes.config.near import did_you_mean
from alipes.config.reading import Reading, read
from alipes.config.settings import build
from alipes.hooks.finding import Found, find
from alipes.kernel.errors import ConfigError

ENABLED: Way = ("plugins", "enabled")
DISABLED: Way = ("plugins", "disabled")
_VARIABLE = "ALIPES_PLUGINS_ENABLED"


def known(name: str) -> Found:
    """The plugin of that name, enabled or not. Raises ConfigError with near ones."""
    settings = build(read())
    found = {each.name: each for each in find(settings)}
    if name not in found:
        told = "`alipes plugins list` shows them all." if found else "There are none yet."
        meant = did_you_mean(name, [*found, *settings.plugins.enabled])
        raise ConfigError(f"There is no plugin {name}.{meant} {told}")
    return found[name]


def enable(name: str) -> bool:
    """Write it down; False when it was enabled already."""
    reading = read()
    enabled, disabled = _names(reading, ENABLED), _names(reading, DISABLED)
    if name in enabled and name not in disabled:
        return False
    _refuse_variable(reading, name)
    changed: dict[Way, str | None] = {ENABLED: _written([*enabled, name] if name not in enabled else enabled)}
    if name in disabled:
        changed[DISABLED] = _written(each for each in disabled if each != name)
    change(changed)
    return True


def disable(name: str) -> bool:
    """Write it down; False when it was not in use. One that is gone can be disabled too."""
    reading = read()
    enabled, disabled = _names(reading, ENABLED), _names(reading, DISABLED)
    if name in enabled:
        _refuse_variable(reading, name)
        change({ENABLED: _written(each for each in enabled if each != name)})
        return True
    if known(name).kind in ("native", "hermes") or name in disabled:
        return False
    change({DISABLED: _written([*disabled, name])})  # it is in use unless it is told otherwise
    return True


def _names(reading: Reading, way: Way) -> list[str]:
    """What the file itself says; a variable that goes over it is left alone."""
    value = reading.values.get(way, [])
    return [str(name) for name in value] if isinstance(value, list) else []


def _written(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


def _refuse_variable(reading: Reading, name: str) -> None:
    """What we write would change nothing where a variable goes over it."""
    if reading.picked(*ENABLED).layer == "variable":
        where = reading.variables.where(_VARIABLE)
        raise ConfigError(f"{_VARIABLE} ({where}) goes over config.toml: change {name} there.")
