"""Decides what a line of Markdown does: which containers it continues or opens, and its block kind."""

import re
from copy import copy
from typing import Literal, Self, TypeAlias

from msgspec import Struct

from alipes.console.markdown.maths import FORMULA_BLOCK
from alipes.console.markdown.wrap import Row

MAX_DEPTH = 12
"""Maximum nesting of containers; deeper ones are text."""

BlockKind: TypeAlias = Literal[
    "blank", "text", "line", "heading", "setext", "rule", "fence", "indented", "html", "held", "table", "formula"
]

LINE_START = re.compile(r"[-+*_=#>~`:|.)\d \t]{0,1000}[^-+*_=#>~`:|.)\d \t]")
"""The start of a line that shows whether it is plain text; other lines need to be complete."""

FENCE = re.compile(r" {0,3}(?:(`{3,})([^`]*)|(~{3,})(.*))$")
HEADING = re.compile(r" {0,3}(#{1,6})(?: +(.*))?$")
UNDERLINE = re.compile(r" {0,3}(={2,}|-{2,}) *$")
DELIMITERS = re.compile(r" {0,3}\|? *:?-+:? *(?:\| *:?-+:? *)*\|?$")
TASK = re.compile(r"\[([ xX])\] +")
_QUOTE = re.compile(r" {0,3}> ?")
_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *$")
_MARKER = re.compile(r" {0,3}(?:([-+*])|(\d{1,9})([.)]))(?: {1,4}(?! )| |$)")
_BULLET = re.compile(r"[-+*](?: |$)")
_BAR = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")
_UNSURE = re.compile(r" {0,3}(?:#{1,6} |```|~~~|<|\||\$|\\)")
_BLOCK_TAGS = (
    "address|article|aside|blockquote|body|center|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|"
    "form|frame|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|nav|ol|optgroup|option|p|pre|script|"
    "search|section|style|summary|table|tbody|td|textarea|tfoot|th|thead|title|tr|ul"
)
_HTML = re.compile(
    rf" {{0,3}}<(?:!--|[?!][A-Za-z\[]|/?(?:{_BLOCK_TAGS})(?=[\s/>]|$)|/?[A-Za-z][\w-]*(?:[\s/][^<>]*)?>\s*$)",
    re.IGNORECASE,
)


class QuoteBlock(Struct):
    empty: bool = True
    """Nothing was shown in it yet."""


class ListItem(Struct):
    indent: int
    number: str
    """Marker of an ordered item; empty for a bullet."""
    marker: str = ""
    style: str = ""
    empty: bool = True


Container: TypeAlias = QuoteBlock | ListItem


class LeafBlock:
    """The innermost open block. A fork is a draft that is shown once and discarded."""

    whole_lines = True
    """It accepts only complete lines."""
    keeps_outdented = False
    """Lines with too little indentation for the list item still belong to it."""
    closed = False
    """Its closing line was read."""
    source = ""
    """Its only line, while that can still become a heading or a table head."""

    def accepts(self, text: str) -> bool:
        raise NotImplementedError

    def line(self, text: str) -> list[Row]:
        raise NotImplementedError

    def close(self) -> list[Row]:
        return []

    def fork(self) -> Self:
        return copy(self)

    def resize(self, width: int) -> list[Row]:
        """Change the width; returns the rows that this finishes."""
        return []


class LineAction(Struct, frozen=True):
    """Effect of a line: it continues `matched` containers, opens `opened`; `rest` is of `kind`."""

    kind: BlockKind
    rest: str
    matched: int
    opened: list[Container]
    continues: bool = False
    """It continues the open paragraph."""


def parse_line(line: str, stack: list[Container], leaf: LeafBlock | None, *, whole: bool) -> LineAction | None:
    """The effect of a line on the open blocks; None if its start is not enough to decide."""
    text = line.expandtabs(4) if "\t" in line else line
    matched, pos = _match_containers(text, stack, keeps_outdented=leaf is not None and leaf.keeps_outdented)
    if leaf is not None and leaf.whole_lines:
        if not whole:
            return None
        if matched == len(stack) and leaf.accepts(text[pos:]):
            return LineAction("line", text[pos:], matched, [])
    paragraph = leaf is not None and not leaf.whole_lines
    opened, pos = _open_containers(text, pos, room=MAX_DEPTH - matched, interrupts=paragraph and matched == len(stack))
    rest, flows = text[pos:], paragraph and not opened
    known = leaf.source if leaf is not None and flows and matched == len(stack) else ""
    kind = _kind_of_line(rest, flows, known) if whole else _kind_of_start(rest, flows, opened)
    if kind is None:
        return None
    if kind == "text" and flows:  # even if containers do not match: a lazy continuation line
        return LineAction(kind, rest, len(stack), [], continues=True)
    return LineAction(kind, rest, matched, opened)


def split_cells(line: str) -> list[str]:
    """The cells of a table row; an escaped bar or one in code belongs to its cell."""
    text = line.strip().removeprefix("|")
    if text.endswith("|") and not text.endswith("\\|"):
        text = text[:-1]
    if "`" in text and len(text) < 4000:
        text = _CODE.sub(lambda code: code[0].replace("\\|", "|").replace("|", "\\|"), text)
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(text)]


def _match_containers(text: str, stack: list[Container], *, keeps_outdented: bool) -> tuple[int, int]:
    """How many containers the line continues, and where their content starts."""
    pos = 0
    for matched, container in enumerate(stack):
        if isinstance(container, QuoteBlock):
            if not (found := _QUOTE.match(text, pos)):
                return matched, pos
            pos = found.end()
            continue
        indent = len(text) - len(text[pos:].lstrip(" ")) - pos
        if indent >= container.indent or pos + indent == len(text):
            pos = min(pos + container.indent, len(text))
        elif keeps_outdented or (container.number and indent >= 2 and _BULLET.match(text, pos + indent)):
            pos += indent
        else:
            return matched, pos
    return len(stack), pos


def _open_containers(text: str, pos: int, *, room: int, interrupts: bool) -> tuple[list[Container], int]:
    opened: list[Container] = []
    while len(opened) < room:
        if found := _QUOTE.match(text, pos):
            opened.append(QuoteBlock())
        elif (found := _MARKER.match(text, pos)) and not _RULE.match(text, pos):
            empty = not text[found.end() :].strip()
            if interrupts and (empty or found[2] not in (None, "1")):
                break
            number = f"{found[2]}{found[3]}" if found[2] else ""
            opened.append(ListItem(found.end() - pos + (found.end() == len(text.rstrip())), number))
        else:
            break
        pos, interrupts = found.end(), False
    return opened, pos


def _kind_of_line(rest: str, flows: bool, known: str) -> BlockKind:
    """The kind of a complete line. `known`: the open paragraph if it is one line and not shown yet."""
    if not (text := rest.rstrip()):
        return "blank"
    if text.startswith("    "):
        return "text" if flows else "indented"
    if known and UNDERLINE.match(text):
        return "setext"
    if known and "|" in known and DELIMITERS.match(text) and len(split_cells(known)) == len(split_cells(text)):
        return "table"
    for kind, pattern in _KINDS:
        if pattern.match(text):
            return kind
    return "text"


_KINDS: tuple[tuple[BlockKind, re.Pattern[str]], ...] = (
    ("fence", FENCE),
    ("heading", HEADING),
    ("rule", _RULE),
    ("html", _HTML),
    ("held", re.compile(r" {0,3}\|")),
    ("formula", FORMULA_BLOCK),
)


def _kind_of_start(rest: str, flows: bool, opened: list[Container]) -> BlockKind | None:
    if rest.startswith("    ") and not flows:
        return None
    if _UNSURE.match(rest) or (opened and rest.startswith("[")):
        return None
    return "text"
