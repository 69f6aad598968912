"""Whether a mail is from whom it says: what the receiving server found out about it. Pure.

Anybody can write any sender, and also the headers in which servers tell what they checked. So those of
one server alone count: the operator's, or the one that is seen to have received the mail last.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

_COMMENT = re.compile(r"\((?:[^()\\]|\\.)*\)")
_METHOD = re.compile(r"^([a-z0-9-]+)(?:/\d+)?\s*=\s*([a-z]+)\b(.*)$", re.IGNORECASE | re.DOTALL)
_PROPERTY = re.compile(r"\b([a-z]+\.[a-z0-9-]+)\s*=\s*(\"[^\"]*\"|[^\s;]+)", re.IGNORECASE)
_BY = re.compile(r"\bby\s+([\w.-]+)", re.IGNORECASE)


class Checked(Struct, frozen=True):
    """One check and its outcome."""

    method: str
    result: str
    about: dict[str, str]


def vouched(headers: Sequence[tuple[str, str]], sender: str, server: str = "") -> bool:
    """Does the receiving server vouch for `sender`? `headers`: all of them, in order; `server`: its name."""
    found = _results(headers, server)
    if found is None:
        return False
    address, domain = sender.lower(), sender.lower().rpartition("@")[2]
    if any(each.method == "dmarc" and each.result == "fail" for each in found):
        return False
    return any(each.result == "pass" and _about(each, address, domain) for each in found)


def _about(checked: Checked, address: str, domain: str) -> bool:
    """Is it this sender that passed, and not somebody else in the same mail?"""
    about = checked.about
    match checked.method:
        case "dmarc":
            return _covers(about.get("header.from", ""), domain)
        case "dkim":
            return _covers(about.get("header.d", "") or about.get("header.i", ""), domain)
        case "spf":
            return _covers(about.get("smtp.mailfrom", ""), domain)
        case "auth":
            return about.get("smtp.auth", "") == address
    return False


def _covers(name: str, domain: str) -> bool:
    """A domain that vouches does so for its own, and for what lies below it."""
    its = name.rpartition("@")[2].strip(".")
    return "." in its and (domain == its or domain.endswith(f".{its}"))


def _results(headers: Sequence[tuple[str, str]], server: str) -> list[Checked] | None:
    """What the first trusted header tells; None: there is none."""
    for at, (name, value) in enumerate(headers):
        if name.lower() != "authentication-results":
            continue
        id, *methods = _COMMENT.sub(" ", value).split(";")
        teller = id.split()[0].lower() if id.split() else ""
        if server:
            if teller == server.lower():
                return _checked(methods)
        else:
            return _checked(methods) if teller in _receivers(headers, at) else None
    return None


def _receivers(headers: Sequence[tuple[str, str]], at: int) -> set[str]:
    """Who passed the mail on above this place, and next below it: some tell before they sign for it."""
    signed = [(place, value) for place, (name, value) in enumerate(headers) if name.lower() == "received"]
    above, below = [v for p, v in signed if p < at], [v for p, v in signed if p > at]
    found = [_BY.search(_COMMENT.sub(" ", value)) for value in (*above, *below[:1])]
    return {by[1].lower() for by in found if by}


def _checked(methods: Sequence[str]) -> list[Checked]:
    found = []
    for method in methods:
        if match := _METHOD.match(method.strip()):
            pairs = _PROPERTY.findall(match[3])
            about = {name.lower(): value.strip('"').lower() for name, value in pairs}
            found.append(Checked(match[1].lower(), match[2].lower(), about))
    return found
