"""Finds secrets in notes: known ones, keys by their shape, and values that are called a password or a token."""

import re

from alipes.config.display import is_secret_name, looks_secret
from alipes.runtime.redaction import Mask

_NAMED = re.compile(
    r"\b(?P<name>[\w-]*(?:password|passwd|passphrase|passwort|secret|token|api[ _-]?key|access[ _-]?key|pin))\b"
    r"(?:\s+(?:is|was|ist|lautet)\s+|\s*[:=]\s*)[\"'`]?(?P<value>[^\s\"'`]{4,})",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z][\w-]{2,60})\s*[:=]\s*[\"'`]?(?P<value>[^\s\"'`]{6,})")
_IN_URL = re.compile(r"\w://[^/\s:@]*:[^/\s@]{3,}@")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_HARMLESS = re.compile(
    r"[$<{%*(]|(?:in|not|never|the|a|an|kept|stored|saved|set|read|from|required|needed|optional|env|unknown|empty)\b",
    re.IGNORECASE,
)
"""How a value starts that only says where the secret is."""


def contains_secret(text: str, mask: Mask) -> bool:
    """True if the text holds a known secret, or something that looks like one."""
    if mask(text) != text or _PRIVATE_KEY.search(text) or _IN_URL.search(text):
        return True
    named = (*_NAMED.finditer(text), *(each for each in _ASSIGNED.finditer(text) if is_secret_name(each["name"])))
    if any(not _HARMLESS.match(each["value"]) for each in named):
        return True
    return any(looks_secret(word.strip(".,;:()[]{}<>")) for word in re.split(r"[\s\"'`=]+", text))
