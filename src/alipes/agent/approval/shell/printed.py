"""What the command in a substitution prints, if that can be seen in the text."""

import re
from collections.abc import Sequence

from alipes.agent.approval.shell.lexer import UNKNOWN, ShellWord

_DECODERS = r"base64|base32|basenc|xxd|rev|openssl|uudecode|tr|od|gpg|iconv|zcat|gunzip"
_FORMAT = r"%([sbq%])"
_CODES = r"\\(?:x([0-9a-fA-F]{1,2})|0?([0-7]{1,3}))"
MAX_PRINTED = 4_000


def print_format(words: Sequence[str]) -> str:
    """The output of `printf`; `UNKNOWN` if it is not certain."""
    pattern, *values = words or [""]
    if any(UNKNOWN in word for word in words) or len(pattern) > MAX_PRINTED:
        return UNKNOWN
    rest = iter(values)
    filled = re.sub(_FORMAT, lambda found: "%" if found[1] == "%" else next(rest, ""), pattern)
    if re.search(r"%[^\s/]", filled) or next(rest, None) is not None:
        return UNKNOWN
    return re.sub(_CODES, lambda found: chr(int(found[1], 16) if found[1] else int(found[2], 8)), filled)


def print_path(words: Sequence[str]) -> str:
    """The path that `dirname`, `basename` or `printf` prints; empty if it is not certain."""
    name, *rest = words
    if any(UNKNOWN in word for word in rest):
        return ""
    if name == "printf":
        text = print_format(rest)
        return text if "/" in text and "\\" not in text else ""
    if len(rest) != 1 or not rest[0].strip("/"):
        return ""
    folder, _, last = rest[0].rstrip("/").rpartition("/")
    if name == "dirname" and rest[0].startswith("/"):
        return folder or "/"
    return last if name == "basename" else ""


def is_decoder(name: str) -> bool:
    """True for a program that can make any text of another one."""
    return re.fullmatch(_DECODERS, name) is not None


def join_printed(words: Sequence[ShellWord]) -> str:
    printed = [word.text for word in words]
    while printed and re.fullmatch(r"-[neE]{1,3}", printed[0]):
        del printed[0]
    return " ".join(printed)


def unescape(text: str) -> str:
    """Line breaks and tabs of `printf`; other escapes stay as they are."""
    return text.replace("\\n", "\n").replace("\\t", "\t")
