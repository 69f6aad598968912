"""Types of setting values: how each is checked, and how it is read from an environment variable.

A check takes the value from the file and returns it as settings store it, or raises InvalidValue.
"""

import math
import os
import re
from collections.abc import Callable
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from alipes.config.display import is_secret_name, looks_secret
from alipes.config.environment import REFERENCE
from alipes.config.urls import InvalidValue, check_base_url, is_ipv6, is_label
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json

# Patterns are compiled on first use: compiling all at import would cost more than reading a configuration.
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SECRET_HEADER = r"(?i)(proxy-)?authorization|cookie|.*(api-?key|token|secret|auth)"
_PLUGIN = r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]*[A-Za-z0-9])?"
EFFORT_NAMES = frozenset(("off", "minimal", "low", "medium", "high", "xhigh", "max"))
AMOUNT_FORM = r"\$(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?) ?([kM]?) tokens"
_AMOUNT = 'amount like "$0.50" or "200k tokens"'


ValueForm: TypeAlias = Literal["text", "flag", "whole", "number", "choice", "list", "table"]


class ValueType(Struct, frozen=True):
    description: str
    """For people: `whole number from 1 to 65535`."""
    check: Callable[[object], Json]
    parse: Callable[[str], object] | None = str
    """Reads a variable or a command line argument; None if only a file can hold the value."""
    form: ValueForm = "text"
    """Which control a form shows for it."""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


def whole(low: int, high: int) -> ValueType:
    return _range(f"whole number from {low} to {high}", low, high, int, r"-?\d{1,18}")


def number(low: float, high: float, unit: str) -> ValueType:
    return _range(f"number of {unit} from {low:g} to {high:g}", low, high, float, r"-?\d+(\.\d+)?")


def _range(description: str, low: float, high: float, kind: type[int | float], form: str) -> ValueType:
    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | kind):
            raise InvalidValue(f"must be a {description}{_not(value)}")
        if not low <= value <= high:  # false for nan too
            raise InvalidValue(f"is out of range: give a {description}")
        return kind(value)

    return ValueType(
        description,
        check,
        lambda text: kind(text) if re.fullmatch(form, text) else text,
        "whole" if kind is int else "number",
        low=low,
        high=high,
    )


def seconds(low: float, high: float) -> ValueType:
    return number(low, high, "seconds")


def choice(*options: str) -> ValueType:
    description = "one of " + ", ".join(f'"{option}"' for option in options)

    def check(value: object) -> str:
        if value not in options or not isinstance(value, str):
            meant = did_you_mean(value, options) if isinstance(value, str) else ""
            raise InvalidValue(f"must be {description}.{meant}".removesuffix("."))
        return value

    return ValueType(description, check, form="choice", choices=options)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"must be text in quotes{_not(value)}")
    if any(not c.isprintable() for c in value):
        raise InvalidValue("contains control characters: remove them")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"must be true or false, without quotes{_not(value)}")
    return value


def _model(value: object) -> str:
    name = _text(value)
    if name and (name != name.strip() or name.startswith("/") or name.endswith("/")):
        raise InvalidValue("must be the name of a model as provider/model, without spaces around it")
    if "://" in name:
        raise InvalidValue("is a URL, which belongs in a provider's base_url: give the model as provider/model")
    if looks_secret(name):
        raise InvalidValue("looks like a key: put keys into .env, and give the model as provider/model")
    return name


def _models(value: object) -> list[Json]:
    if not isinstance(value, list):
        raise InvalidValue(f'must be a list like ["provider/model", "other/model"]{_not(value)}')
    if not all(map(_model, value)):
        raise InvalidValue("has an empty entry: give each model as provider/model")
    if len(set(value)) < len(value):
        raise InvalidValue("lists a model twice: remove one")
    return list(value)


def _allow(value: object) -> list[Json]:
    if not isinstance(value, list) or any(isinstance(i, bool) or not isinstance(i, str | int) for i in value):
        raise InvalidValue(f'must be a list of user ids, as in [12345, "name"]{_not(value)}')
    return [str(item).strip() for item in value]


def _variable(value: object) -> str:
    name = _text(value)
    if name and (looks_secret(name) or not (name.isascii() and name.isidentifier())):
        what = "looks like the key itself" if looks_secret(name) or len(name) > 30 else "is not a variable's name"
        raise InvalidValue(f"{what}: put the key into .env as NAME=..., and give NAME here")
    return name


def _variable_or_list(value: object) -> Json:
    if not isinstance(value, list):
        return _variable(value)
    if not value or not all(map(_variable, value)) or len(set(value)) < len(value):
        raise InvalidValue('must be the name of a variable, or a list of different ones like ["A_KEY", "B_KEY"]')
    return list(value)


def _host(value: object) -> str:
    host = _text(value).removeprefix("[").removesuffix("]")
    if not (is_ipv6(host) or all(map(is_label, host.split(".")))):
        raise InvalidValue('must be a host without a port, as in "127.0.0.1"; the port is a separate setting')
    return host


def _profile(value: object) -> str:
    name = _text(value)
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
        raise InvalidValue("must be a name of letters, digits, - and _, at most 64")
    return name


def _endpoint(value: object) -> str:
    return check_base_url(address) if (address := _text(value)) else ""


def _headers(value: object) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise InvalidValue(f'must be a table like {{ "X-Title" = "alipes" }}{_not(value)}')
    for name, text in value.items():
        if not re.fullmatch(_HEADER, name):
            raise InvalidValue(f"has {name[:40]!r}, which cannot be a header's name")
        if not isinstance(text, str) or not text.isascii() or any(not c.isprintable() for c in text):
            raise InvalidValue(f"must give {name} a plain ASCII text in quotes")
        if (re.fullmatch(_SECRET_HEADER, name) and not re.search(REFERENCE, text)) or looks_secret(text):
            raise InvalidValue(
                f'contains a secret in {name}: put it into .env as NAME=... and write {name} = "${{NAME}}"'
            )
    return dict(value)


def _body(value: object) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise InvalidValue(f"must be a table{_not(value)}")
    _jsonable(value, 0)
    return cast("dict[str, Json]", value)


def _names(value: object) -> list[Json]:
    if not isinstance(value, list):
        raise InvalidValue(f'must be a list of names like ["one", "other"]{_not(value)}')
    for item in value:
        if not isinstance(item, str) or not re.fullmatch(_PLUGIN, item):
            raise InvalidValue("must contain names in quotes, made of letters, digits, -, _, ., : and /")
    if len(set(value)) < len(value):
        raise InvalidValue("lists a name twice: remove one")
    return list(value)


def _levels(value: object) -> list[Json]:
    names = _names(value)
    if not names or not EFFORT_NAMES.issuperset(map(str, names)):
        raise InvalidValue(f"must be a list of reasoning levels: {', '.join(sorted(EFFORT_NAMES))}")
    return names


def _grants(value: object) -> list[Json]:
    names = _names(value)
    for name in names:
        if name not in GRANTS:
            raise InvalidValue(f"contains {name!r}, which is unknown: {', '.join(GRANTS)} are known")
    return names


def _texts(value: object) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise InvalidValue(f'must be a list of texts like ["--port", "8000"]{_not(value)}')
    if secret := next((item for item in value if looks_secret(item)), ""):
        raise InvalidValue(f"contains a secret ({secret[:4]}...): put it into .env and pass it as a variable")
    return list(value)


def _variables(value: object) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise InvalidValue(f'must be a table like {{ LANG = "C.UTF-8" }}{_not(value)}')
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise InvalidValue(f"has {name[:40]!r}, which cannot be the name of a variable")
        if not isinstance(text, str) or "\0" in text:
            raise InvalidValue(f"must give {name} a text in quotes")
        if looks_secret(text) or (is_secret_name(name) and text and not re.search(REFERENCE, text)):
            raise InvalidValue(
                f'contains a secret in {name}: put it into .env as {name}=... and write {name} = "${{{name}}}"'
            )
    return dict(value)


def _entry(value: object) -> dict[str, Json]:
    table = _body(value)
    if secret := _literal_in(table):
        raise InvalidValue(
            f'contains a secret in {secret}: put it into .env as NAME=... and write {secret} = "${{NAME}}"'
        )
    return table


def _literal_in(value: object, name: str = "") -> str:
    """Name of the first text that contains a literal secret; empty if there is none."""
    match value:
        case dict():
            return next((found for each, item in value.items() if (found := _literal_in(item, each))), "")
        case list():
            return next((found for item in value if (found := _literal_in(item, name))), "")
        case str() if value and not re.search(REFERENCE, value):
            return name if is_secret_name(name) or looks_secret(value) else ""
    return ""


def _shell_hooks(value: object) -> list[Json]:
    if not isinstance(value, list):
        raise InvalidValue(f"must be a list of tables: write [[hooks.NAME]] above each{_not(value)}")
    for item in value:
        _shell_hook(item)
    return list(value)


def _shell_hook(item: object) -> None:
    if not isinstance(item, dict):
        raise InvalidValue(f'must contain tables like {{ command = "~/bin/check" }}{_not(item)}')
    if unknown := item.keys() - {"command", "matcher", "timeout"}:
        raise InvalidValue(f"has {min(unknown)[:40]!r}, which is unknown: use command, matcher and timeout")
    if not _text(item.get("command", "")).strip():
        raise InvalidValue('has no command: write command = "PROGRAM AND ARGUMENTS"')
    try:
        re.compile(_text(item.get("matcher", "")))
    except re.error as error:
        raise InvalidValue(f"has an invalid regular expression as matcher: {error}") from error
    _HOOK_TIME.check(item.get("timeout", 60))


def _list_of(check: Callable[[str], str], example: str) -> Callable[[object], list[Json]]:
    def check_all(value: object) -> list[Json]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InvalidValue(f"must be a list like {example}")
        return [check(item) for item in value]

    return check_all


def _host_name(text: str) -> str:
    return _host(text.strip()).lower()


def _host_and_port(text: str) -> str:
    host, _, port = text.strip().lower().rpartition(":")
    if not host or "]" in port or not port.isdecimal():  # no port
        return _host_name(text)
    return f"{_host(host)}:{port}"


def _listed_path(text: str) -> str:
    path = os.path.expanduser(text.strip())
    if not os.path.isabs(path):
        raise InvalidValue(f"contains {text!r}: give absolute paths, or paths that start with ~")
    return os.path.normpath(path)


def _host_pattern(text: str) -> str:
    pattern = text.strip().lower().removesuffix(".")
    wildcard = "*." if pattern.startswith("*.") else ""
    host, _, port = pattern.removeprefix("*.").rpartition(":")
    if not host or "]" in port or not port.isdecimal() or (":" in host and not host.endswith("]")):  # no port
        return wildcard + _host_name(pattern.removeprefix("*."))
    if not 0 < int(port[:6]) < 65536:
        raise InvalidValue("has a port out of range: give one from 1 to 65535")
    name = _host(host)
    return f"{wildcard}[{name}]:{port}" if ":" in name else f"{wildcard}{name}:{port}"


def _origin(text: str) -> str:
    address = check_base_url(text).lower()
    if address.count("/") > 2:
        raise InvalidValue("has a path: give only scheme, host and port, as in https://HOST")
    return address


def _network(text: str) -> str:
    import ipaddress  # noqa: PLC0415

    try:
        return str(ipaddress.ip_network(text.strip()))
    except ValueError:
        raise InvalidValue(
            f'contains {text!r}: give addresses or networks, as in "127.0.0.1" or "10.0.0.0/8"'
        ) from None


def _amount(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"has no unit: write an {_AMOUNT}, in quotes")
    text = " ".join(value.split())
    if text and not re.fullmatch(AMOUNT_FORM, text):
        raise InvalidValue(f"must be an {_AMOUNT}; empty means no limit")
    if text and not any(digit in text for digit in "123456789"):
        raise InvalidValue("would allow no request at all: raise it, or leave it empty for no limit")
    return text


def _jsonable(value: object, depth: int) -> None:
    if depth > 32:
        raise InvalidValue("is nested too deeply for a request")
    match value:
        case bool() | str():
            return
        case int() if -(2**63) <= value < 2**64:
            return
        case float() if math.isfinite(value):
            return
        case list() | dict():
            for item in value.values() if isinstance(value, dict) else value:
                _jsonable(item, depth + 1)
        case _:
            raise InvalidValue(f"has {_what(value)} in it, which JSON cannot hold: use text or ordinary numbers")


def _not(value: object) -> str:
    return f", not {_what(value)}"


def _what(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number" if math.isfinite(value) else "an infinite or undefined number"
    names = {bool: "true or false", str: "text", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or time")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


TEXT = ValueType("text", _text)
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
FLAG = ValueType("true or false", _flag, lambda text: _FLAGS.get(text.lower(), text), "flag")
MODEL = ValueType("provider/model", _model)
MODELS = ValueType("list of provider/model", _models, _words, "list")
ALLOW = ValueType("list of user ids", _allow, _words, "list")
VARIABLE = ValueType("name of a variable", _variable)
KEY_VARIABLES = ValueType(
    "name of a variable, or a list of them", _variable_or_list, lambda text: _words(text) if "," in text else text
)
HOST = ValueType("host", _host)
URL = ValueType("address", lambda value: check_base_url(_text(value)))
ENDPOINT = ValueType("address", _endpoint)
HEADERS = ValueType("table of header = text", _headers, None, "table")
BODY = ValueType("table", _body, None, "table")
NAMES = ValueType("list of names", _names, _words, "list")
LEVELS = ValueType("list of reasoning levels", _levels, _words, "list")
GRANTS = ("ssh-agent", "docker", "browser")
"""What `sandbox.grants` may contain."""
GRANT_NAMES = ValueType("list of names", _grants, _words, "list")
TEXTS = ValueType("list of texts", _texts, None, "list")
VARIABLES = ValueType("table of variable = text", _variables, None, "table")
ENTRY = ValueType("table", _entry, None, "table")
SHELL_HOOKS = ValueType("list of tables", _shell_hooks, None, "list")
_HOOK_TIME = number(0.1, 3600, "seconds as timeout")
HOSTS = ValueType("list of hosts", _list_of(_host_name, '["agent.example.com"]'), _words, "list")
HOSTS_AND_PORTS = ValueType("list of hosts", _list_of(_host_and_port, '["nas.lan", "127.0.0.1:8000"]'), _words, "list")
HOST_PATTERNS = ValueType(
    "list of hosts",
    _list_of(_host_pattern, '["pypi.org", "*.example.com", "registry.example.com:8443"]'),
    _words,
    "list",
)
ORIGINS = ValueType("list of addresses", _list_of(_origin, '["https://page.example.com"]'), _words, "list")
NETWORKS = ValueType("list of addresses", _list_of(_network, '["127.0.0.1", "10.0.0.0/8"]'), _words, "list")
PROFILE = ValueType("name", _profile)
PATHS = ValueType("list of paths", _list_of(_listed_path, '["~/data", "/srv/models"]'), _words, "list")
AMOUNT = ValueType(_AMOUNT, _amount)
SECONDS = seconds(0.1, 86_400)
PORT = whole(1, 65535)


class Setting(Struct, frozen=True):
    """The value type and description of a setting. A struct field declares them as `Annotated[int, PORT, "..."]`,
    without a value type if that follows from the field's own: text, flags and choices."""

    type: ValueType
    description: str
    variable: str = ""
    """Its environment variable, if not named after the key."""
