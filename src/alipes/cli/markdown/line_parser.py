"""What a line of Markdown begins: its containers and its kind of block. It decides and changes nothing."""

import re
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.cli.markdown.wrap import Row

DEEPEST = 12
"""Containers within containers; what goes deeper is text."""

Kind: TypeAlias = Literal[
    "blank", "text", "line", "heading", "setext", "rule", "fence", "indented", "html", "held", "table"
]

HEAD = re.compile(r"[-+*_=#>~`:|.)\d \t]{0,1000}[^-+*_=#>~`:|.)\d \t]")
"""So much of a line tells whether it is ordinary text; what has none is judged as a whole."""

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
_UNSURE = re.compile(r" {0,3}(?:#{1,6} |```|~~~|<|\|)")
_BLOCK_TAGS = (
    "address|article|aside|blockquote|body|center|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|"
    "form|frame|h[1-6]|head|header|hr|html|iframe|legend|li|link|main|menu|nav|ol|optgroup|option|p|pre|script|"
    "search|section|style|summary|table|tbody|td|textarea|tfoot|th|thead|title|tr|ul"
)
_HTML = re.compile(
    rf" {{0,3}}<(?:!--|[?!][A-Za-z\[]|/?(?:{_BLOCK_TAGS})(?=[\s/>]|$)|/?[A-Za-z][\w-]*(?:[\s/][^<>]*)?>\s*$)",
    re.IGNORECASE,
)


class Quote(Struct):
    fresh: bool = True
    """Nothing was shown in it yet."""


class Item(Struct):
    indent: int
    number: str
    """The marker of an ordered item; empty for a bullet."""
    marker: str = ""
    style: str = ""
    fresh: bool = True


Container: TypeAlias = Quote | Item


class Leaf(Protocol):
    """The innermost block that is open. A fork is a draft: it is shown as it stands and thrown away."""

    @property
    def whole_lines(self) -> bool:
        """It takes lines only when they are complete."""

    @property
    def patient(self) -> bool:
        """Lines that are indented too little for its list item are still its own."""

    @property
    def over(self) -> bool:
        """Its last line was its closing one."""

    @property
    def source(self) -> str:
        """The one line it consists of, while that can still become a heading or the head of a table."""

    def accepts(self, text: str) -> bool: ...
    def line(self, text: str) -> list[Row]: ...
    def close(self) -> list[Row]: ...
    def fork(self) -> "Leaf": ...
    def resize(self, width: int) -> list[Row]:
        """There is another width now; the rows that are finished by that."""


class Plan(Struct, frozen=True):
    """What a line does: `matched` containers go on, `opened` ones begin, `rest` is a block of `kind`."""

    kind: Kind
    rest: str
    matched: int
    opened: list[Container]
    continues: bool = False
    """It is more text of the paragraph that is open."""


def plan(line: str, stack: list[Container], leaf: Leaf | None, *, whole: bool) -> Plan | None:
    """What the line does to the open blocks. None where its beginning alone does not tell."""
    text = line.expandtabs(4) if "\t" in line else line
    matched, pos = _match(text, stack, patient=leaf is not None and leaf.patient)
    if leaf is not None and leaf.whole_lines:
        if not whole:
            return None
        if matched == len(stack) and leaf.accepts(text[pos:]):
            return Plan("line", text[pos:], matched, [])
    paragraph = leaf is not None and not leaf.whole_lines
    opened, pos = _open(text, pos, room=DEEPEST - matched, interrupts=paragraph and matched == len(stack))
    rest, flows = text[pos:], paragraph and not opened
    known = leaf.source if leaf is not None and flows and matched == len(stack) else ""
    kind = _kind(rest, flows, known) if whole else _kind_of_head(rest, flows, opened)
    if kind is None:
        return None
    if kind == "text" and flows:  # also where containers are not matched: a lazy line
        return Plan(kind, rest, len(stack), [], continues=True)
    return Plan(kind, rest, matched, opened)


def cells(line: str) -> list[str]:
    """The cells of a row; a bar behind a backslash or in code belongs to its cell."""
    text = line.strip().removeprefix("|")
    if text.endswith("|") and not text.endswith("\\|"):
        text = text[:-1]
    if "`" in text and len(text) < 4000:
        text = _CODE.sub(lambda code: code[0].replace("\\|", "|").replace("|", "\\|"), text)
    return [cell.strip().replace("\\|", "|") for cell in _BAR.split(text)]


def _match(text: str, stack: list[Container], *, patient: bool) -> tuple[int, int]:
    """How many containers go on in this line, and where what they hold begins."""
    pos = 0
    for matched, container in enumerate(stack):
        if isinstance(container, Quote):
            if not (found := _QUOTE.match(text, pos)):
                return matched, pos
            pos = found.end()
            continue
        indent = len(text) - len(text[pos:].lstrip(" ")) - pos
        if indent >= container.indent or pos + indent == len(text):
            pos = min(pos + container.indent, len(text))
        elif patient or (container.number and indent >= 2 and _BULLET.match(text, pos + indent)):
            pos += indent
        else:
            return matched, pos
    return len(stack), pos


def _open(text: str, pos: int, *, room: int, interrupts: bool) -> tuple[list[Container], int]:
    opened: list[Container] = []
    while len(opened) < room:
        if found := _QUOTE.match(text, pos):
            opened.append(Quote())
        elif (found := _MARKER.match(text, pos)) and not _RULE.match(text, pos):
            empty = not text[found.end() :].strip()
            if interrupts and (empty or found[2] not in (None, "1")):
                break
            number = f"{found[2]}{found[3]}" if found[2] else ""
            opened.append(Item(found.end() - pos + (found.end() == len(text.rstrip())), number))
        else:
            break
        pos, interrupts = found.end(), False
    return opened, pos


def _kind(rest: str, flows: bool, known: str) -> Kind:
    """The kind of a whole line. `known` is the paragraph so far, where it is one line nobody has seen."""
    if not (text := rest.rstrip()):
        return "blank"
    if text.startswith("    "):
        return "text" if flows else "indented"
    if known and UNDERLINE.match(text):
        return "setext"
    if known and "|" in known and DELIMITERS.match(text) and len(cells(known)) == len(cells(text)):
        return "table"
    for kind, pattern in _KINDS:
        if pattern.match(text):
            return kind
    return "text"


_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("fence", FENCE),
    ("heading", HEADING),
    ("rule", _RULE),
    ("html", _HTML),
    ("held", re.compile(r" {0,3}\|")),
)


def _kind_of_head(rest: str, flows: bool, opened: list[Container]) -> Kind | None:
    if rest.startswith("    ") and not flows:
        return None
    if _UNSURE.match(rest) or (opened and rest.startswith("[")):
        return None
    return "text"
