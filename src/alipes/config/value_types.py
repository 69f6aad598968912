"""The kinds of values a setting can have: how each is checked, and how it is read from a variable.

A check takes whatever the file said and gives the value as settings keep it, or raises Wrong.
"""

import math
import re
from collections.abc import Callable
from typing import cast

from msgspec import Struct

from alipes.config.display import is_secret_name, looks_secret
from alipes.config.urls import Wrong, check_base_url, is_ipv6, is_label
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json

# Patterns stay text here: compiling them all at import would cost more than reading a configuration.
_HEADER = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SECRET_HEADER = r"(?i)(proxy-)?authorization|cookie|.*(api-?key|token|secret|auth)"
_PLUGIN = r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]*[A-Za-z0-9])?"
REFERENCE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"


class Kind(Struct, frozen=True):
    says: str
    """For people: `whole number from 1 to 65535`."""
    check: Callable[[object], Json]
    parse: Callable[[str], object] | None = str
    """From a variable or the command line; None when only a file can say it."""


def whole(low: int, high: int) -> Kind:
    says = f"whole number from {low} to {high}"

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Wrong(f"must be a {says}{_not(value)}")
        if not low <= value <= high:
            raise Wrong(f"is out of range: give a {says}")
        return value

    return Kind(says, check, lambda text: int(text) if re.fullmatch(r"-?\d{1,18}", text) else text)


def number(low: float, high: float, unit: str) -> Kind:
    says = f"number of {unit} from {low:g} to {high:g}"

    def check(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Wrong(f"must be a {says}{_not(value)}")
        if not low <= value <= high:  # false for nan too
            raise Wrong(f"is out of range: give a {says}")
        return float(value)

    return Kind(says, check, lambda text: float(text) if re.fullmatch(r"-?\d+(\.\d+)?", text) else text)


def choice(*options: str) -> Kind:
    says = "one of " + ", ".join(f'"{option}"' for option in options)

    def check(value: object) -> str:
        if value not in options or not isinstance(value, str):
            meant = did_you_mean(value, options) if isinstance(value, str) else ""
            raise Wrong(f"must be {says}.{meant}".removesuffix("."))
        return value

    return Kind(says, check)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Wrong(f"must be text in quotes{_not(value)}")
    if any(not c.isprintable() for c in value):
        raise Wrong("contains control characters: leave them out")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"must be true or false, without quotes{_not(value)}")
    return value


def _model(value: object) -> str:
    name = _text(value)
    if name and (name != name.strip() or name.startswith("/") or name.endswith("/")):
        raise Wrong("must be the name of a model as provider/model, without blanks around it")
    if "://" in name:
        raise Wrong("is an address, which goes into base_url of a provider: give the model as provider/model")
    if looks_secret(name):
        raise Wrong("looks like a key: keep keys in .env, and give the model as provider/model")
    return name


def _models(value: object) -> list[Json]:
    if not isinstance(value, list):
        raise Wrong(f'must be a list like ["provider/model", "other/model"]{_not(value)}')
    for item in value:
        if not _model(item):
            raise Wrong("has an empty entry: give each model as provider/model")
    if len(set(value)) < len(value):
        raise Wrong("names a model twice: once is enough")
    return list(value)


def _allow(value: object) -> list[Json]:
    if not isinstance(value, list) or any(isinstance(i, bool) or not isinstance(i, str | int) for i in value):
        raise Wrong(f'must be a list of user ids, as in [12345, "name"]{_not(value)}')
    return [str(item).strip() for item in value]


def _variable(value: object) -> str:
    name = _text(value)
    if name and (looks_secret(name) or not (name.isascii() and name.isidentifier())):
        what = (
            "looks like the key itself"
            if looks_secret(name) or len(name) > 30
            else "is not a variable's name"
        )
        raise Wrong(f"{what}: put the key into .env as NAME=..., and give NAME here")
    return name


def _host(value: object) -> str:
    host = _text(value).removeprefix("[").removesuffix("]")
    if not (is_ipv6(host) or all(map(is_label, host.split(".")))):
        raise Wrong('must be a host alone, as in "127.0.0.1"; its port is a setting of its own')
    return host


def _url(value: object) -> str:
    return check_base_url(_text(value))


def _endpoint(value: object) -> str:
    return check_base_url(address) if (address := _text(value)) else ""


def _webhook(value: object) -> str:
    address = _text(value)
    if address and not check_base_url(address).startswith("https://"):
        raise Wrong("must begin with https://: the Bot API brings messages over TLS only")
    return address


def _headers(value: object) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise Wrong(f'must be a table like {{ "X-Title" = "alipes" }}{_not(value)}')
    for name, text in value.items():
        if not re.fullmatch(_HEADER, name):
            raise Wrong(f"has {name[:40]!r}, which cannot be a header's name")
        if not isinstance(text, str) or not text.isascii() or any(not c.isprintable() for c in text):
            raise Wrong(f"must give {name} a plain ASCII text in quotes")
        if (re.fullmatch(_SECRET_HEADER, name) and not re.search(REFERENCE, text)) or looks_secret(text):
            raise Wrong(
                f'holds a secret in {name}: put it into .env as NAME=..., and write {name} = "${{NAME}}" here'
            )
    return dict(value)


def _body(value: object) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise Wrong(f"must be a table{_not(value)}")
    _jsonable(value, 0)
    return cast("dict[str, Json]", value)


def _names(value: object) -> list[Json]:
    if not isinstance(value, list):
        raise Wrong(f'must be a list of names like ["one", "other"]{_not(value)}')
    for item in value:
        if not isinstance(item, str) or not re.fullmatch(_PLUGIN, item):
            raise Wrong("must hold names in quotes, of letters, digits, and -, _, ., : or / between them")
    if len(set(value)) < len(value):
        raise Wrong("names something twice: once is enough")
    return list(value)


def _entry(value: object) -> dict[str, Json]:
    table = _body(value)
    if secret := _literal_in(table):
        raise Wrong(
            f'holds a secret in {secret}: put it into .env as NAME=..., and write {secret} = "${{NAME}}" here'
        )
    return table


def _literal_in(value: object, name: str = "") -> str:
    """The name of a text that is a secret in itself; empty when there is none."""
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
        raise Wrong(f"must be a list of tables: write [[hooks.NAME]] above each{_not(value)}")
    for item in value:
        _shell_hook(item)
    return list(value)


def _shell_hook(item: object) -> None:
    if not isinstance(item, dict):
        raise Wrong(f'must hold tables like {{ command = "~/bin/check" }}{_not(item)}')
    if unknown := item.keys() - {"command", "matcher", "timeout"}:
        raise Wrong(f"has {min(unknown)[:40]!r}, where only command, matcher and timeout may stand")
    if not _text(item.get("command", "")).strip():
        raise Wrong('lacks its command: write command = "PROGRAM AND ARGUMENTS"')
    try:
        re.compile(_text(item.get("matcher", "")))
    except re.error as error:
        raise Wrong(f"has a matcher that is no regular expression: {error}") from error
    _HOOK_TIME.check(item.get("timeout", 60))


def _jsonable(value: object, depth: int) -> None:
    if depth > 32:
        raise Wrong("is nested too deeply for a request")
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
            raise Wrong(f"has {_what(value)} in it, which JSON does not know: use text or ordinary numbers")


def _not(value: object) -> str:
    return f", not {_what(value)}"


def _what(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number" if math.isfinite(value) else "an infinite or undefined number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or time"


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


TEXT = Kind("text", _text)
_FLAGS = {"true": True, "1": True, "false": False, "0": False}
FLAG = Kind("true or false", _flag, lambda text: _FLAGS.get(text.lower(), text))
MODEL = Kind("provider/model", _model)
MODELS = Kind("list of provider/model", _models, _words)
ALLOW = Kind("list of user ids", _allow, _words)
VARIABLE = Kind("name of a variable", _variable)
HOST = Kind("host", _host)
URL = Kind("address", _url)
ENDPOINT = Kind("address", _endpoint)
WEBHOOK = Kind("https address", _webhook)
HEADERS = Kind("table of header = text", _headers, None)
BODY = Kind("table", _body, None)
NAMES = Kind("list of names", _names, _words)
ENTRY = Kind("table", _entry, None)
SHELL_HOOKS = Kind("list of tables", _shell_hooks, None)
_HOOK_TIME = number(0.1, 3600, "seconds as timeout")


class Key(Struct, frozen=True):
    path: str
    """Names with dots between them; `*` stands for a name the operator chooses."""
    kind: Kind
    default: Json
    doc: str
    named: str = ""
    """Its variable, where that is not called like the key."""

    @property
    def variable(self) -> str:
        """The variable that goes over the file; empty where there is none."""
        if self.named or "*" in self.path or self.kind.parse is None:
            return self.named
        return "ALIPES_" + self.path.upper().replace(".", "_")
