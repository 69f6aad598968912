"""Addresses: what makes a usable base_url or proxy, and what to say of one that is not.

Everything here is a check of text. Nothing is resolved, nothing is connected.
"""

import re
from importlib.util import find_spec

from msgspec import Struct

from alipes.config.display import looks_secret
from alipes.kernel.formatting import did_you_mean

PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings", "/models")
_DOMAIN = r"(localhost|[\w-]+(\.[\w-]+)*\.[a-zA-Z]{2,}|\d+(\.\d+){3})(:\d+)?(/|$)"
_GROUPS = r"([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*)?"


class Wrong(ValueError):
    """A value that will not do. The text goes on after the value: `must be ...`, `has no host: ...`."""


class Address(Struct, frozen=True):
    """An address in its parts; `port` is 0 when it names none."""

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
    """`text` as providers use it, without a slash at its end; raises Wrong."""
    address = split(text, ("http", "https"), "http://HOST:PORT/v1")
    if address.user:
        raise Wrong(
            "holds a user name or password, which a configuration file never does: "
            'move it to .env as NAME=... and send it with headers = { Authorization = "Basic ${NAME}" }'
        )
    if "?" in address.rest or "#" in address.rest:
        raise Wrong("goes on after a ? or #: end it with the path, as in https://HOST/v1")
    path = address.rest.rstrip("/")
    for ending in _ENDPOINTS:
        if path.endswith(ending):
            raise Wrong(f"is the address of one call: leave out {ending}, which we add")
    return str(Address(address.scheme, "", address.host, address.port, path))


def check_proxy(text: str) -> str:
    """`text` as the clients use it; raises Wrong."""
    if text.lower().startswith("socks://"):
        text = "socks5" + text[5:]  # what desktops write; they mean version 5
    address = split(text, PROXY_SCHEMES, "http://HOST:PORT")
    if address.rest.strip("/"):
        if address.rest.endswith((".pac", ".dat")):
            raise Wrong(
                "is a proxy script, which we cannot run: give the proxy itself, as in http://HOST:PORT"
            )
        raise Wrong(f"goes on after the host: leave out {address.rest.split('?')[0][:40]}")
    return str(Address(address.scheme, address.user, address.host, address.port, ""))


def check_usable(proxy: str) -> str:
    """`proxy` if our clients can speak to it as installed; raises Wrong."""
    if proxy.startswith("socks") and find_spec("socksio") is None:
        raise Wrong(
            "is a SOCKS proxy, which needs another package: run `pip install socksio`, or use an http:// one"
        )
    return proxy


def check_no_proxy(text: str) -> tuple[str, ...]:
    """The hosts that NO_PROXY spares, one by one; raises Wrong naming the entry that makes no sense."""
    if any(not (c.isprintable() or c in "\t\n") for c in text):
        raise Wrong("contains control characters: give host names with commas between them")
    entries = []
    for entry in re.split(r"[,\s]+", text):
        if "://" in entry:
            raise Wrong("names an address: give host names only, as in localhost,.example.com")
        if entry and entry != "*":
            host, _, net = entry.removeprefix("*").rpartition("/") if "/" in entry else (entry, "", "0")
            if not net.isdecimal():
                raise Wrong("has an entry with a path: give host names only, as in localhost,.example.com")
            _check_spared(host.removeprefix("*").removeprefix("."))
        if entry:
            entries.append(entry.removeprefix("*") if entry.startswith("*.") else entry)
    return tuple(entries)


def _check_spared(entry: str) -> None:
    if not is_ipv6(entry):
        _host_and_port(entry, "HOST")


def split(text: str, schemes: tuple[str, ...], example: str) -> Address:
    """Take an address apart; raises Wrong that says what is missing and how it is written."""
    _refuse_blanks(text, example)
    scheme, mark, rest = text.partition("://")
    if not mark:
        raise _without_scheme(text, example)
    if scheme.lower() not in schemes:
        meant = did_you_mean(scheme, schemes)
        raise Wrong(f"begins with {scheme[:20]!r}: begin it with {_either(schemes)}.{meant}".rstrip("."))
    if "://" in rest:
        raise Wrong(f"has two schemes: write it once, as in {example}")
    cut = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:]
    if "@" in path and ":" in authority and not authority.rpartition(":")[2].isdecimal():
        raise Wrong("has a / ? or # in its user name or password: write it as %2F, %3F or %23")
    user, _, place = authority.rpartition("@")
    host, port = _host_and_port(place, example)
    return Address(scheme.lower(), user, host, port, path)


def _refuse_blanks(text: str, example: str) -> None:
    if not text:
        raise Wrong(f"is empty: write {example}")
    if any(not c.isprintable() for c in text):
        raise Wrong("contains control characters, perhaps a line break that was pasted along: leave them out")
    if " " in text:
        raise Wrong("contains a blank: leave it out" if text.strip() else f"is blank: write {example}")
    if "\\" in text:
        raise Wrong("contains a backslash: write /")
    if text[0] in "\"'<" or text[-1] in "\"'>":
        raise Wrong("has quotes around it that belong to nobody: leave them out")


def _without_scheme(text: str, example: str) -> Wrong:
    if looks_secret(text):
        return Wrong(f"looks like a key, not an address: write {example}, and keep keys in .env")
    if begun := re.match(r"(https?|socks5h?)(:/?|//|;//|:\\\\)", text, re.I):
        return Wrong(f"begins with {begun[0]!r}: write {begun[1].lower()}://")
    if re.match(_DOMAIN, text) or re.match(r"^(\[[0-9a-fA-F:.]+\]|[\w.-]+):\d+(/|$)", text):
        near_by = re.match(r"localhost|127\.|\[::1|10\.|192\.168\.", text)
        guess = "http" if near_by or "/v1" not in example else "https"
        return Wrong(f"has no scheme: write {guess}://{text}")
    if "/v1" in example:
        return Wrong(f"looks like a model's name, which goes into `model`: write an address like {example}")
    return Wrong(f"is not an address (a model's name, perhaps?): write {example}")


def _host_and_port(place: str, example: str) -> tuple[str, int]:
    if place.startswith("["):
        host, closed, after = place[1:].partition("]")
        if not closed or not is_ipv6(host) or after[:1] not in ("", ":"):
            raise Wrong("has a broken IPv6 address: write it as in http://[::1]:8080")
        host = f"[{host}]"
    else:
        host, colon, after = place.partition(":")
        if ":" in after:
            raise Wrong("has more than one colon in its host: put an IPv6 address in [brackets]")
        after = colon + after
        _check_host(host, example)
    return host.lower(), _port(after[1:]) if after else 0


def _port(text: str) -> int:
    if not text:
        raise Wrong("ends its host with a colon: add the port, or leave the colon out")
    if not (text.isascii() and text.isdecimal()):
        glued = re.match(r"^(\d+)[A-Za-z]", text)
        hint = f": perhaps two lines of a file ran together after {glued[1]}" if glued else ""
        raise Wrong(f"has a port that is not a number{hint}; give one from 1 to 65535")
    if not 0 < int(text[:6]) < 65536:
        raise Wrong("has a port out of range: give one from 1 to 65535")
    return int(text)


def _check_host(host: str, example: str) -> None:
    if not host:
        raise Wrong(f"has no host: write {example}")
    if not host.isascii():
        raise Wrong("has letters in its host that the network does not know: write the name in its xn-- form")
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or not all(map(is_label, labels)):
        raise Wrong("has a host that cannot be a name: use letters, digits, dots and hyphens")
    if labels[-1].isdecimal() and not _is_ipv4(host):
        raise Wrong("has a host that is neither a name nor four numbers from 0 to 255")


def is_label(text: str) -> bool:
    """Whether `text` can be one name between the dots of a host."""
    return (
        0 < len(text) < 64
        and text.isascii()
        and text[0] != "-" != text[-1]
        and text.replace("-", "").replace("_", "a").isalnum()
    )


def _is_ipv4(text: str) -> bool:
    numbers = text.split(".")
    return len(numbers) == 4 and all(n.isdecimal() and n == str(int(n)) and int(n) < 256 for n in numbers)


def is_ipv6(text: str) -> bool:
    head, colon, tail = text.rpartition(":")
    if "." in tail and colon:
        text = f"{head}:0:0" if _is_ipv4(tail) else "?"
    before, gap, after = text.partition("::")
    if not (re.fullmatch(_GROUPS, before) and re.fullmatch(_GROUPS, after)):
        return False
    groups = sum(len(side.split(":")) for side in (before, after) if side)
    return groups < 8 if gap else groups == 8


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(f"{word}://" for word in words)
