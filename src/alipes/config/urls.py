"""Checks URLs of providers and proxies as text, with an error message that says how to fix them.

Nothing is resolved or connected.
"""

import re
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

from msgspec import Struct

from alipes.config.display import looks_secret
from alipes.kernel.formatting import did_you_mean

PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/models")
_DOMAIN = r"(localhost|[\w-]+(\.[\w-]+)*\.[a-zA-Z]{2,}|\d+(\.\d+){3})(:\d+)?(/|$)"


class InvalidValue(ValueError):
    """An invalid value. The text continues a sentence about the value: `must be ...`, `has no host: ...`."""


class UrlParts(Struct, frozen=True):
    """A URL in parts; `port` is 0 if there is none."""

    scheme: str
    user: str
    host: str
    port: int
    rest: str
    """Path, query and fragment as written."""

    def __str__(self) -> str:
        at = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.scheme}://{at}{self.host}{port}{self.rest}"


def check_base_url(text: str) -> str:
    """`text` as providers use it, without a trailing slash. Raises InvalidValue."""
    address = split_url(text, ("http", "https"), "http://HOST:PORT/v1")
    if address.user:
        raise InvalidValue(
            "contains a user name or password, which does not belong in a configuration file: "
            'move it to .env as NAME=... and send it with headers = { Authorization = "Basic ${NAME}" }'
        )
    path, query = address.rest, ""
    if found := re.fullmatch(r"([^?#]*)(\?api-version=[\w.-]+)", address.rest):
        path, query = found[1], found[2]  # Azure's dated versions
    if "?" in path or "#" in path:
        raise InvalidValue("has a query or fragment: end it with the path, as in https://HOST/v1")
    path = path.rstrip("/")
    for ending in _ENDPOINTS:
        if path.endswith(ending):
            raise InvalidValue(f"is the URL of one endpoint: remove {ending}, which is added automatically")
    return str(UrlParts(address.scheme, "", address.host, address.port, f"{path}{query}"))


def check_proxy(text: str) -> str:
    """`text` as the clients use it. Raises InvalidValue."""
    if text.lower().startswith("socks://"):
        text = "socks5" + text[5:]  # what desktops write; they mean version 5
    address = split_url(text, PROXY_SCHEMES, "http://HOST:PORT")
    if address.rest.strip("/"):
        if address.rest.endswith((".pac", ".dat")):
            raise InvalidValue(
                "is a proxy script, which is not supported: give the proxy itself, as in http://HOST:PORT"
            )
        raise InvalidValue(f"has a path: remove {address.rest.split('?')[0][:40]}")
    return str(UrlParts(address.scheme, address.user, address.host, address.port, ""))


def check_usable(proxy: str) -> str:
    """`proxy` if the installed packages support it. Raises InvalidValue."""
    if proxy.startswith("socks") and find_spec("socksio") is None:
        raise InvalidValue(
            "is a SOCKS proxy, which needs another package: run `pip install socksio`, or use an http:// one"
        )
    return proxy


def check_no_proxy(text: str) -> tuple[str, ...]:
    """The hosts that NO_PROXY excludes. Raises InvalidValue that names the invalid entry."""
    if any(not (c.isprintable() or c in "\t\n") for c in text):
        raise InvalidValue("contains control characters: give host names separated by commas")
    entries = []
    for entry in re.split(r"[,\s]+", text):
        if "://" in entry:
            raise InvalidValue("contains a URL: give host names only, as in localhost,.example.com")
        if entry and entry != "*":
            host, _, net = entry.removeprefix("*").rpartition("/") if "/" in entry else (entry, "", "0")
            if not net.isdecimal():
                raise InvalidValue("has an entry with a path: give host names only, as in localhost,.example.com")
            name = host.removeprefix("*").removeprefix(".")
            if not is_ipv6(name):
                _host_and_port(name, "HOST")
        if entry:
            entries.append(entry.removeprefix("*") if entry.startswith("*.") else entry)
    return tuple(entries)


def split_url(text: str, schemes: tuple[str, ...], example: str) -> UrlParts:
    """Split a URL. Raises InvalidValue that says what is missing and how to write it."""
    _refuse_invalid_characters(text, example)
    scheme, mark, rest = text.partition("://")
    if not mark:
        raise _without_scheme(text, example)
    if scheme.lower() not in schemes:
        meant, either = did_you_mean(scheme, schemes), " or ".join(f"{each}://" for each in schemes)
        raise InvalidValue(f"starts with {scheme[:20]!r}: start it with {either}.{meant}".rstrip("."))
    if "://" in rest:
        raise InvalidValue(f"has two schemes: write one, as in {example}")
    cut = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:]
    if "@" in path and ":" in authority and not authority.rpartition(":")[2].isdecimal():
        raise InvalidValue("has a / ? or # in its user name or password: write it as %2F, %3F or %23")
    user, _, place = authority.rpartition("@")
    host, port = _host_and_port(place, example)
    return UrlParts(scheme.lower(), user, host, port, path)


def _refuse_invalid_characters(text: str, example: str) -> None:
    if not text:
        raise InvalidValue(f"is empty: write {example}")
    if any(not c.isprintable() for c in text):
        raise InvalidValue("contains control characters, perhaps a pasted line break: remove them")
    if " " in text:
        raise InvalidValue("contains a space: remove it" if text.strip() else f"is blank: write {example}")
    if "\\" in text:
        raise InvalidValue("contains a backslash: write /")
    if text[0] in "\"'<" or text[-1] in "\"'>":
        raise InvalidValue("has stray quotes: remove them")


def _without_scheme(text: str, example: str) -> InvalidValue:
    if looks_secret(text):
        return InvalidValue(f"looks like a key, not a URL: write {example}, and put keys into .env")
    if begun := re.match(r"(https?|socks5h?)(:/?|//|;//|:\\\\)", text, re.I):
        return InvalidValue(f"starts with {begun[0]!r}: write {begun[1].lower()}://")
    if re.match(_DOMAIN, text) or re.match(r"^(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d+(/|$)", text):
        near_by = re.match(r"localhost|127\.|\[::1|10\.|192\.168\.", text)
        guess = "http" if near_by or "/v1" not in example else "https"
        return InvalidValue(f"has no scheme: write {guess}://{text}")
    if "/v1" in example:
        return InvalidValue(f"looks like a model name, which belongs in `model`: write a URL like {example}")
    return InvalidValue(f"is not a URL (a model name?): write {example}")


def _host_and_port(place: str, example: str) -> tuple[str, int]:
    if place.startswith("["):
        host, closed, after = place[1:].partition("]")
        if not closed or not is_ipv6(host) or after[:1] not in ("", ":"):
            raise InvalidValue("has a broken IPv6 address: write it as in http://[::1]:8080")
        host = f"[{host}]"
    else:
        host, colon, after = place.partition(":")
        if ":" in after:
            raise InvalidValue("has more than one colon in its host: put an IPv6 address in [brackets]")
        after = colon + after
        _check_host(host, example)
    return host.lower(), _port(after[1:]) if after else 0


def _port(text: str) -> int:
    if not text:
        raise InvalidValue("ends with a colon: add the port, or remove the colon")
    if not (text.isascii() and text.isdecimal()):
        glued = re.match(r"^(\d+)[A-Za-z]", text)
        hint = f": perhaps two lines were joined after {glued[1]}" if glued else ""
        raise InvalidValue(f"has a port that is not a number{hint}; give one from 1 to 65535")
    if not 0 < int(text[:6]) < 65536:
        raise InvalidValue("has a port out of range: give one from 1 to 65535")
    return int(text)


def _check_host(host: str, example: str) -> None:
    if not host:
        raise InvalidValue(f"has no host: write {example}")
    if not host.isascii():
        raise InvalidValue("has non-ASCII letters in its host: write the name in its xn-- form")
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(map(is_label, labels)):
        raise InvalidValue("has an invalid host name: use letters, digits, dots and hyphens")
    if labels[-1].isdecimal() and not _is_address(host, IPv4Address):
        raise InvalidValue("has an invalid host: give a name or four numbers from 0 to 255")


def is_label(text: str) -> bool:
    """True if `text` can be one label of a host name."""
    return (
        0 < len(text) < 64
        and text.isascii()
        and text[0] != "-" != text[-1]
        and text.replace("-", "").replace("_", "a").isalnum()
    )


def is_ipv6(text: str) -> bool:
    return "%" not in text and _is_address(text, IPv6Address)


def _is_address(text: str, kind: type[IPv4Address | IPv6Address]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def strip_credentials(url: str) -> str:
    """Scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
