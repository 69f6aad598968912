"""Time zones by name, and that of this machine."""

import os
import re
from collections.abc import Mapping
from datetime import UTC, tzinfo

from alipes.config.urls import InvalidValue
from alipes.config.value_types import ValueType
from alipes.kernel.errors import ConfigError

_ZONE_IN_PATH = r"/zoneinfo/(?:posix/|right/)?(.+)\Z"


def find_zone(name: str) -> tzinfo:
    """The time zone of this name, such as `Europe/Berlin`. Raises `ConfigError`."""
    if name.upper() == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        near = _find_similar_zone(name)
        example = f"did you mean {near}?" if near else "use a name such as Europe/Berlin or UTC"
        raise ConfigError(f"unknown time zone {name!r}: {example}") from None


def _find_similar_zone(name: str) -> str:
    """The zone with this name in other letters, or of this city."""
    from zoneinfo import available_timezones  # noqa: PLC0415

    wanted = name.strip().replace(" ", "_").lower()
    found = (
        each for each in sorted(available_timezones()) if wanted in (each.lower(), each.lower().rpartition("/")[2])
    )
    return next(found, "")


def _zone(value: object) -> str:
    text = value.strip() if isinstance(value, str) else "?"
    if text:
        try:
            find_zone(text)
        except ConfigError:
            raise InvalidValue('must be a time zone such as "Europe/Berlin" or "UTC"') from None
    return text


ZONE = ValueType("time zone", _zone)


def find_local_zone(variables: Mapping[str, str] | None = None) -> str:
    """The name of this machine's time zone; UTC if it cannot be found."""
    names = [(os.environ if variables is None else variables).get("TZ", "").lstrip(":")]
    found = re.search(_ZONE_IN_PATH, os.path.realpath("/etc/localtime"))
    names.append(found[1] if found else "")
    try:
        with open("/etc/timezone", encoding="utf-8") as file:
            names.append(file.readline().strip())
    except OSError:
        pass
    for name in filter(None, names):
        try:
            find_zone(name)
        except ConfigError:
            continue
        return name
    return "UTC"
