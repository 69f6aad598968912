"""Makes the accessibility tree of a page short, with references such as [e12] that the page cannot imitate."""

import re
from collections.abc import Iterable

from msgspec import Struct

MAX_CHARS = 20_000
MAX_TEXT_CHARS = 1500
"""Of one line; a snapshot of the element alone shows all of it."""
REF = re.compile(r"(?:f\d+)?e\d+")
_LINE = re.compile(r"(?P<indent> *)- (?P<rest>.*)")
_KEY = re.compile(
    r'(?P<role>[a-z]+)(?P<name> "(?:[^"\\]|\\.)*"| /.*?/)?(?P<attributes>(?: \[[a-z]+(?:=[^\]\s]*)?\])*)(?P<value>:.*)?'
)
_ATTRIBUTE = re.compile(r"\[([a-z]+(?:=[^\]\s]*)?)\]")
_LIKE_REF = re.compile(r"\[(\s*(?:ref\s*=\s*)?(?:f\d+)?e\d+\s*)\]", re.IGNORECASE)
_HIDDEN_ATTRIBUTES = ("active", "cursor=pointer")


class SnapshotPart(Struct, frozen=True):
    text: str
    next_line: int = 0
    """The first line that is not in it; 0 if it is complete."""
    lines: int = 0
    """Of the whole."""


def compact_snapshot(yaml: str, hidden: Iterable[str] = (), max_text: int = MAX_TEXT_CHARS) -> list[str]:
    """The lines of Playwright's snapshot, shorter. Values in `hidden` (passwords) are replaced by dots."""
    secrets = {" ".join(value.split()) for value in hidden if value}
    lines = (_compact_line(line, secrets) for line in yaml.splitlines() if line.strip())
    return [_shorten(line, max_text) for line in lines]


def cut_snapshot(lines: list[str], first: int = 1, max_chars: int = MAX_CHARS) -> SnapshotPart:
    """Whole lines from number `first` on that fit."""
    size, end = 0, first - 1
    while end < len(lines) and (size + len(lines[end]) <= max_chars or end == first - 1):
        size += len(lines[end]) + 1
        end += 1
    return SnapshotPart("\n".join(lines[first - 1 : end]), 0 if end >= len(lines) else end + 1, len(lines))


def _compact_line(line: str, secrets: set[str]) -> str:
    found = _LINE.fullmatch(line)
    if found is None:
        return _defuse(line)
    indent, rest = found["indent"], found["rest"]
    if rest.startswith("'"):  # a key in YAML quotes
        key, _, value = _unquote(rest)
        rest = key + value
    parsed = _KEY.fullmatch(rest)
    if parsed is None:
        return f"{indent}- {_defuse(rest)}"
    role, name, value = parsed["role"], parsed["name"] or "", parsed["value"] or ""
    attributes = _ATTRIBUTE.findall(parsed["attributes"])
    ref = next((each.removeprefix("ref=") for each in attributes if each.startswith("ref=")), "")
    if role == "generic" and "cursor=pointer" not in attributes:
        ref = ""  # a plain container
    shown = [each for each in attributes if each not in _HIDDEN_ATTRIBUTES and not each.startswith("ref=")]
    if role == "textbox" and value.removeprefix(":").strip().strip('"') in secrets:
        value = ": ••••"
    marks = "".join(f" [{each}]" for each in (*shown, *((ref,) if ref else ())))
    return f"{indent}- {role}{_defuse(name)}{marks}{_defuse(value)}"


def _unquote(text: str) -> tuple[str, str, str]:
    """A key in single quotes without them, and what follows it."""
    found = re.match(r"'((?:[^']|'')*)'", text)
    if found is None:
        return text, "", ""
    return found[1].replace("''", "'"), "", text[found.end() :]


def _defuse(text: str) -> str:
    """Text of the page, without anything that looks like a reference."""
    return _LIKE_REF.sub(r"(\1)", text)


def _shorten(line: str, max_text: int) -> str:
    if len(line) <= max_text:
        return line
    return f"{line[:max_text]} … ({len(line) - max_text:,} more characters; take a snapshot of this ref)"
