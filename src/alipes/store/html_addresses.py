"""Web and mail addresses in a text without any markup, by the rules of GitHub."""

import re

from msgspec import Struct

_SCHEME = re.compile(r"(?i)(?:https?|ftp)$")
_MAIL_SCHEME = re.compile(r"(?i)(?:mailto|xmpp)$")
_BEFORE = re.compile(r"[\s*_~(]$")
_WWW = re.compile(r"(?i)(?:^|[\s*_~(])(www\.[^\s<]+)")
_MAIL = re.compile(r"[A-Za-z0-9._+-]+@[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_PLACE = re.compile(r"/[A-Za-z0-9@.]+")
_ENTITY_END = re.compile(r"&[A-Za-z0-9]+;$")
_HOST = re.compile(r"[^/?#:]*")
_NUMBERS = re.compile(r"(?i)\[[0-9a-f:.]+\]")
_MAX_SCHEME = 10


class FoundAddress(Struct, frozen=True):
    start: int
    text: str
    href: str


def find_url(text: str, colon: int, end: int) -> FoundAddress | None:
    """The address whose scheme ends at a colon."""
    before = text[max(0, colon - _MAX_SCHEME) : colon]
    scheme = _SCHEME.search(before) or _MAIL_SCHEME.search(before)
    if text[colon : colon + 1] != ":" or scheme is None:
        return None
    start = colon - len(scheme[0])
    if start > 0 and not _BEFORE.search(text[start - 1 : start]):
        return None
    found = re.match(r"[^\s<]+", text[start:end])
    whole = found[0] if found else ""
    if _MAIL_SCHEME.search(scheme[0]):
        return _find_mail_url(start, whole, scheme[0])
    if not whole[len(scheme[0]) + 1 :].startswith("//"):
        return None
    shown = _trim_end(whole)
    rest = shown[len(scheme[0]) + 3 :]
    host = _HOST.match(rest)
    is_host = host is not None and _is_host(host[0].rpartition("@")[2], short=True)
    return FoundAddress(start, shown, shown) if _NUMBERS.match(rest) or is_host else None


def _find_mail_url(start: int, whole: str, scheme: str) -> FoundAddress | None:
    mail = _MAIL.match(whole, len(scheme) + 1)
    if mail is None:
        return None
    place = _PLACE.match(whole, mail.end()) if scheme.lower() == "xmpp" else None
    text = whole[: place.end() if place else mail.end()].rstrip(".")
    return None if text[-1] in "-_" else FoundAddress(start, text, text)


def find_address(text: str) -> FoundAddress | None:
    """The first www address or mail address."""
    found = [each for each in (_find_www(text), _find_mail(text)) if each is not None]
    return min(found, key=lambda each: each.start, default=None)


def _find_www(text: str) -> FoundAddress | None:
    for match in _WWW.finditer(text):
        shown = _trim_end(match[1])
        host = _HOST.match(shown)
        if host is not None and _is_host(host[0]):
            return FoundAddress(match.start(1), shown, f"http://{shown}")
    return None


def _find_mail(text: str) -> FoundAddress | None:
    for match in _MAIL.finditer(text):
        if match[0][-1] not in "-_" and text[match.end() : match.end() + 1] != "/":
            return FoundAddress(match.start(), match[0], f"mailto:{match[0]}")
    return None


def _is_host(host: str, *, short: bool = False) -> bool:
    """It has a dot, and no underscore in its last two parts; `short`: without a dot too."""
    parts = host.split(".")
    if not short and len(parts) < 2:
        return False
    return all(re.fullmatch(r"[\w-]+", part) for part in parts) and not any("_" in part for part in parts[-2:])


def _trim_end(text: str) -> str:
    """Without punctuation at its end that belongs to the sentence."""
    while True:
        if entity := _ENTITY_END.search(text):
            text = text[: entity.start()]
        elif text and (text[-1] in "?!.,:*_~'\"" or (text[-1] == ")" and text.count(")") > text.count("("))):
            text = text[:-1]
        else:
            return text
