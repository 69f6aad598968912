"""What the terminal shows of a Markdown text, and what a tree of it says, as lists of lines that can be compared.

A line is the quotations around it, its kind and its text without white space: the terminal wraps and aligns.
"""

import re
from typing import Any

from alipes.console.markdown.stream import MarkdownStream
from alipes.console.theme import Glyphs, Theme

BULLET, BAR, RULE, FENCE = "\ue000", "\ue001", "\ue002", "\ue003"
GLYPHS = Glyphs((BULLET, BULLET, BULLET), BAR, RULE, RULE, FENCE)
HEADINGS = tuple(str(50 + level) for level in range(6))
THEME = Theme(
    headings=HEADINGS, bold="1", italic="3", strike="9", code="7", url="8", marker="5", links=True, glyphs=GLYPHS
)
COLUMNS = 100_000
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_LINK = re.compile(r"\x1b\]8;;.*?(?:\x1b\\|\x07)")
_MARKER = re.compile(r"\x1b\[[58]m[^\x1b]*(?=\x1b)")
"""Marks of list items, and the host that is shown beside a link."""
_BLOCKS = {*("p", "ul", "ol", "li", "blockquote", "pre", "hr", "table", "thead", "tbody", "tr"), *("h1", "h2", "h3")}
_BLOCKS |= {"h4", "h5", "h6"}
Line = tuple[int, str, str]


def read_terminal(text: str, step: int) -> list[Line]:
    """The lines that the terminal shows when it is fed `step` characters at a time."""
    stream = MarkdownStream(THEME, COLUMNS)
    rows = [row for at in range(0, len(text), step) for row in stream.feed(text[at : at + step])]
    lines: list[Line] = []
    inside = False
    for row in [*rows, *stream.finish()]:
        shown = _LINK.sub("", row)
        codes = {code for found in _SGR.finditer(shown) for code in found[1].split(";")}
        plain = _SGR.sub("", _MARKER.sub("", shown))
        quotes = _count_bars(plain)
        plain = re.sub(rf"^[ {BAR}]*", "", plain) if quotes else plain.lstrip(" ")
        while plain.startswith(BULLET):
            plain = plain[1:].lstrip(" ")
        if plain.startswith(FENCE):
            inside = not inside
            continue
        if inside:
            _add(lines, quotes, "code", plain)
            continue
        level = next((index + 1 for index, code in enumerate(HEADINGS) if code in codes), 0)
        body = plain.strip()
        if not body.strip(f"{RULE} "):
            continue
        _add(lines, quotes, f"h{level}" if level else "text", body.replace(BAR, ""))
    return lines


def _count_bars(text: str) -> int:
    """How many bars of quotations are before the text."""
    return len(re.match(rf"[ {BAR}]*", text)[0].replace(" ", ""))


def _add(lines: list[Line], quotes: int, kind: str, text: str) -> None:
    words = "".join(text.split())
    if words:
        lines.append((quotes, kind, words))


def read_tree(tree: list[Any], quotes: int = 0) -> list[Line]:
    """The same lines of a tree of `markdown_tree`."""
    lines: list[Line] = []
    text = ""
    for node in [*tree, None]:
        if node is not None and (isinstance(node, str) or node[0] not in _BLOCKS):
            text += words_of([node])
            continue
        for line in text.split("\n"):
            _add(lines, quotes, "text", line)
        text = ""
        lines += _read_block(node, quotes) if node else []
    return lines


def _read_block(node: list[Any], quotes: int) -> list[Line]:
    name, _detail, children = node
    kinds = {"pre": "code", "tr": "text", **{f"h{level}": f"h{level}" for level in range(1, 7)}}
    if name not in kinds:
        return read_tree(children, quotes + (name == "blockquote"))
    lines: list[Line] = []
    for line in words_of(children).split("\n"):
        _add(lines, quotes, kinds[name], line)
    return lines


def words_of(nodes: list[Any]) -> str:
    """The text of nodes; a task has its box, and a picture without a description its address."""
    words = ""
    for node in nodes:
        if isinstance(node, str):
            words += node
        elif node[0] == "br":
            words += "\n"
        elif node[0] == "input":
            words += "[x]" if node[1] else "[ ]"
        else:
            words += words_of(node[2]) or (node[1] if node[0] == "img" else "")
    return words


def join_lines(lines: list[Line]) -> list[Line]:
    """Lines of text of one kind as one: a paragraph may be wrapped differently."""
    joined: list[Line] = []
    for quotes, kind, words in lines:
        if joined and joined[-1][:2] == (quotes, kind) and kind != "code":
            joined[-1] = (quotes, kind, joined[-1][2] + words)
        else:
            joined.append((quotes, kind, words))
    return joined
