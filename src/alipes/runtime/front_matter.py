"""Front matter: the fields between two lines of `---` at the start of a Markdown file.

Reads the part of YAML that such files use: texts (plain, quoted, `|` and `>`), lists and nested fields, also in
brackets. Every value is a text, a list or a dict: `1.0`, `true` and dates stay the texts they are. What is not valid
YAML but clear, such as `description: Use when: ...`, is read as a person means it.
"""

import re
from typing import TypeAlias

from alipes.kernel.lazy import lazy_pattern

FieldValue: TypeAlias = str | list["FieldValue"] | dict[str, "FieldValue"]
MAX_CHARS = 64_000
MAX_DEPTH = 16
_FRONT = lazy_pattern(r"\A\s*---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_NAME = r"""("[^"]*"|'[^']*'|[^\s"'\[{#&*!|>%@`-][^:#]*?|-[^\s:][^:#]*?)"""
_KEY = lazy_pattern(_NAME + r"[ \t]*:(?:[ \t]+(.*)|)\Z", re.DOTALL)
_BLOCK = lazy_pattern(r"([|>])(?:([1-9])?([+-])?|([+-])([1-9]))[ \t]*(?:#.*)?")
_ESCAPE = lazy_pattern(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.)|\n[ \t]*)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "e": "\x1b", "a": "\a", "b": "\b", "N": "\x85", "_": "\xa0"}
_COMMENT = lazy_pattern(r"(?:^|[ \t])#.*")


def split_front_matter(text: str) -> tuple[str | None, str]:
    """The front matter, None if there is none, and the rest of the text."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    front = _FRONT.match(text)
    return (front[1], text[front.end() :]) if front else (None, text)


def parse_fields(front: str, *, verbatim: tuple[str, ...] = ()) -> dict[str, FieldValue]:
    """The fields by name. `verbatim`: fields whose text is taken as it is, even in brackets.

    Raises ValueError with the number of the line, for a text that cannot be read.
    """
    if len(front) > MAX_CHARS:
        raise ValueError(f"the front matter is longer than {MAX_CHARS:,} characters")
    return _Parser(front, verbatim).parse()


def field_text(value: FieldValue | None) -> str:
    """The value as one text: the items of a list with commas between them; empty for nested fields."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(field_text, value)))
    return value if isinstance(value, str) else ""


class _Parser:
    def __init__(self, front: str, verbatim: tuple[str, ...]) -> None:
        self._lines = [line.rstrip() for line in front.split("\n")]
        self._verbatim, self._at = verbatim, 0

    def parse(self) -> dict[str, FieldValue]:
        found: dict[str, FieldValue] = {}
        while self._skip_blank():
            start = self._at
            value = self._parse_fields(_indent(self._lines[start]), 0)
            found |= value
            if self._at == start:
                raise ValueError(f"line {start + 2}: expected `name: value`")
        return found

    def _skip_blank(self) -> bool:
        """Go to the next line with content; False at the end."""
        while self._at < len(self._lines):
            line = self._lines[self._at].lstrip()
            if line and not line.startswith("#") and line != "...":
                return True
            self._at += 1
        return False

    def _parse_fields(self, indent: int, depth: int) -> dict[str, FieldValue]:
        self._check_depth(depth)
        fields: dict[str, FieldValue] = {}
        while self._skip_blank() and _indent(line := self._lines[self._at]) == indent:
            found = _KEY.fullmatch(line.strip())
            if found is None:
                break
            name = _unquote(found[1])
            self._at += 1
            fields[name] = self._parse_value((found[2] or "").strip(), indent, depth, verbatim=name in self._verbatim)
        return fields

    def _parse_list(self, indent: int, depth: int) -> list[FieldValue]:
        self._check_depth(depth)
        items: list[FieldValue] = []
        while self._skip_blank():
            line = self._lines[self._at]
            text = line.lstrip()
            if _indent(line) != indent or not (text == "-" or text.startswith("- ")):
                break
            inner = text[1:].lstrip()
            if _KEY.fullmatch(inner) and not inner.startswith(('"', "'")):
                # a list of fields: its first line becomes a line of the fields
                within = indent + len(text) - len(inner)
                self._lines[self._at] = " " * within + inner
                items.append(self._parse_fields(within, depth + 1))
            else:
                self._at += 1
                items.append(self._parse_value(inner, indent, depth))
        return items

    def _parse_value(self, rest: str, indent: int, depth: int, *, verbatim: bool = False) -> FieldValue:
        if block := _BLOCK.fullmatch(rest):
            return self._parse_block(block, indent)
        if verbatim and rest:
            return _unquote(rest)
        if not rest or rest.startswith("#"):
            return self._parse_nested(indent, depth)
        if rest[0] in "\"'" and (quoted := self._parse_quoted(rest, indent)) is not None:
            return quoted
        if rest[0] in "[{" and (flow := self._parse_flow(rest)) is not None:
            return flow
        return self._parse_plain(rest, indent)

    def _parse_nested(self, indent: int, depth: int) -> FieldValue:
        """What follows a name with nothing after it: fields or a list, further right; a list may be at the same
        place as the name; a text."""
        if not self._skip_blank():
            return ""
        line = self._lines[self._at]
        inner, text = _indent(line), line.strip()
        if text == "-" or text.startswith("- "):
            return self._parse_list(inner, depth + 1) if inner >= indent else ""
        if inner <= indent:
            return ""
        if _KEY.fullmatch(text):
            return self._parse_fields(inner, depth + 1)
        self._at += 1
        return self._parse_value(text, indent, depth)

    def _parse_block(self, block: re.Match[str], indent: int) -> str:
        """A text after `|` (lines are kept) or `>` (lines are joined)."""
        lines: list[str] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line and _indent(line) <= indent:
                break
            lines.append(line)
            self._at += 1
        given = block[2] or block[5]
        first = next((_indent(line) for line in lines if line), indent + 1)
        cut = indent + int(given) if given else first
        lines = [line[min(cut, _indent(line)) :] for line in lines]
        text = "\n".join(lines) if block[1] == "|" else _fold(lines)
        keep = block[3] or block[4]
        return text.strip("\n") + ("\n" if keep == "+" else "")

    def _parse_quoted(self, rest: str, indent: int) -> str | None:
        """A text in quotes, perhaps over several lines; None if it is not one, such as `"a" and "b"`."""
        mark, text, used = rest[0], rest, 0
        while True:
            end = _find_quote(text, mark)
            if end >= 0:
                after = text[end + 1 :].strip()
                if after and not after.startswith("#"):
                    return None
                self._at += used
                return _unquote(_fold_quoted(text[: end + 1]))
            at = self._at + used
            if at >= len(self._lines) or (self._lines[at] and _indent(self._lines[at]) <= indent):
                return None
            text += f"\n{self._lines[at].strip()}"
            used += 1

    def _parse_flow(self, rest: str) -> FieldValue | None:
        """A list or fields in brackets, perhaps over several lines; None if it cannot be read as such."""
        text, used = rest, 0
        while not (flow := _Flow(text)).closes():
            at = self._at + used
            if at >= len(self._lines) or len(text) > MAX_CHARS:
                return None
            text += f"\n{self._lines[at].strip()}"
            used += 1
        try:
            value = flow.parse()
        except ValueError:
            return None
        self._at += used
        return value

    def _parse_plain(self, rest: str, indent: int) -> str:
        """A text without quotes, and the lines that continue it: they are further right, or not a field."""
        lines = [_COMMENT.sub("", rest).strip()]
        while self._at < len(self._lines):
            line = self._lines[self._at]
            text = line.strip()
            is_item = text == "-" or text.startswith("- ")
            ends = _indent(line) <= indent and (is_item or text.startswith("#") or _KEY.fullmatch(text) is not None)
            if line and ends:
                break
            lines.append(_COMMENT.sub("", text))
            self._at += 1
        return _fold(lines).strip()

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"line {self._at + 2}: the fields are nested too deeply")


class _Flow:
    """Lists and fields in brackets: `[a, "b"]`, `{name: value}`."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def closes(self) -> bool:
        """True if the brackets that the text opens are closed."""
        depth, at = 0, 0
        while at < len(self._text):
            sign = self._text[at]
            if sign in "\"'":
                end = _find_quote(self._text[at:], sign)
                if end < 0:
                    return False
                at += end
            depth += (sign in "[{") - (sign in "]}")
            at += 1
        return depth <= 0

    def parse(self) -> FieldValue:
        value = self._parse(0)
        after = self._text[self._at :].strip()
        if after and not after.startswith("#"):
            raise ValueError("text after the closing bracket")
        return value

    def _parse(self, depth: int) -> FieldValue:
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        sign = self._peek()
        if sign == "[":
            return self._parse_items(depth)
        if sign == "{":
            return self._parse_pairs(depth)
        return self._parse_scalar(",]}")

    def _parse_items(self, depth: int) -> list[FieldValue]:
        self._at += 1
        items: list[FieldValue] = []
        while self._peek() != "]":
            items.append(self._parse(depth + 1))
            self._pass_comma("]")
        self._at += 1
        return items

    def _parse_pairs(self, depth: int) -> dict[str, FieldValue]:
        self._at += 1
        pairs: dict[str, FieldValue] = {}
        while self._peek() != "}":
            name = self._parse_scalar(":,}")
            if self._peek() == ":":
                self._at += 1
                pairs[name] = "" if self._peek() in ",}" else self._parse(depth + 1)
            else:
                pairs[name] = ""
            self._pass_comma("}")
        self._at += 1
        return pairs

    def _pass_comma(self, closing: str) -> None:
        sign = self._peek()
        if sign == ",":
            self._at += 1
        elif sign != closing:
            raise ValueError(f"expected a comma or {closing}")

    def _parse_scalar(self, ends: str) -> str:
        if self._peek() in "\"'":
            end = _find_quote(self._text[self._at :], self._text[self._at])
            if end < 0:
                raise ValueError("a quote is not closed")
            text = _unquote(_fold_quoted(self._text[self._at : self._at + end + 1]))
            self._at += end + 1
            return text
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in ends:
            self._at += 1
        return " ".join(self._text[start : self._at].split())

    def _peek(self) -> str:
        """The next character that is not blank. Raises ValueError at the end."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        if self._at >= len(self._text):
            raise ValueError("a bracket is not closed")
        return self._text[self._at]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _find_quote(text: str, mark: str) -> int:
    """Where the quoted text that starts `text` ends; -1 if it does not."""
    at = 1
    while at < len(text):
        if mark == '"' and text[at] == "\\":
            at += 1
        elif text[at] == mark:
            if mark == "'" and text[at + 1 : at + 2] == "'":
                at += 1
            else:
                return at
        at += 1
    return -1


def _unquote(text: str) -> str:
    """The text without its quotes, and with what its escapes mean."""
    text = text.strip()
    if len(text) < 2 or text[0] not in "\"'" or text[-1] != text[0]:
        return text
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    return _ESCAPE.sub(_unescape, text[1:-1])


def _unescape(found: re.Match[str]) -> str:
    if code := found[1] or found[2] or found[3]:
        number = int(code, 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
    return _ESCAPED.get(found[4], found[4]) if found[4] else ""


def _fold_quoted(text: str) -> str:
    """A quoted text of several lines: a line break is a space, an empty line is a line break."""
    return text if "\n" not in text else _fold(text.split("\n"))


def _fold(lines: list[str]) -> str:
    """The lines joined by spaces; an empty line is a line break, and lines further right stay lines."""
    text, breaks = "", 0
    for line in lines:
        if not line.strip():
            breaks += 1
            continue
        joint = "\n" * breaks if breaks else " "
        if text and line.startswith((" ", "\t")):
            joint = "\n" * (breaks + 1)
        text = f"{text}{joint}{line}" if text else line
        breaks = 0
    return text
