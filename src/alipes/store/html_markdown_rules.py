"""Rules of Markdown that GitHub and models use and CommonMark does not have: formulas, footnotes, tasks, one tilde."""

import re

from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

from alipes.store.html_addresses import find_url

_FOOTNOTE = re.compile(r"\[\^([^\]\s]{1,100})\]:[ \t]*")
_FOOTNOTE_MARK = re.compile(r"\[\^([^\]\s[]{1,100})\](?!\()")
_MATHS_FENCES = (("$$", "$$"), ("\\[", "\\]"))
_BEGIN = re.compile(r"\\begin\{([a-zA-Z]+\*?)\}")
_MATHS = re.compile(
    r"\\\(([\s\S]+?)\\\)|\\\[([\s\S]+?)\\\]|\$\$([^$]+?)\$\$|\$(?![\s$])([^$\n]*?[^\s$\\])\$(?![^\W_]|\$)"
)
_TASK = re.compile(r"\[([ xX])\](?=\s)")
_LETTER = re.compile(r"[^\W_]")
ONE_TILDE, TWO_TILDES = ord("~"), 0x7E7E


def _line_at(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _maths_fence(line: str) -> tuple[str, str] | None:
    """How a formula begins and ends."""
    for opening, closing in _MATHS_FENCES:
        if line.startswith(opening):
            return opening, closing
    begin = _BEGIN.match(line)
    return ("", f"\\end{{{begin[1]}}}") if begin else None


def add_maths_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A formula in lines of its own."""
    fence = None if state.is_code_block(start) else _maths_fence(_line_at(state, start))
    if fence is None:
        return False
    opening, closing = fence
    text, following = _line_at(state, start)[len(opening) :], start + 1
    while not text.rstrip().endswith(closing):
        if closing in text or following >= end or not _line_at(state, following):
            return False
        if state.sCount[following] < state.blkIndent:
            return False
        text += f"\n{_line_at(state, following)}"
        following += 1
    formula = text.rstrip()[: -len(closing)] if opening else text
    if not formula.strip() or (opening and closing in formula):
        return False
    if silent:
        return True
    state.line = following
    token = state.push("maths_block", "", 0)
    token.content, token.map = formula.strip(), [start, following]
    return True


def add_maths(state: StateInline, silent: bool) -> bool:
    """A formula in a text."""
    found = _MATHS.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    formula = next((each for each in found.groups() if each is not None), "")
    before = state.src[state.pos - 1 : state.pos]
    if not _LETTER.search(formula) or (found[4] is not None and before and (_LETTER.match(before) or before in "$\\")):
        return False
    if not silent:
        state.push("maths", "", 0).content = formula.strip()
    state.pos = found.end()
    return True


def add_footnote(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The text of a footnote, shown where it is written."""
    found = None if state.is_code_block(start) else _FOOTNOTE.match(_line_at(state, start))
    if found is None or silent:
        return found is not None
    following, rules = start + 1, state.md.block.ruler.getRules("paragraph")
    while following < end and _line_at(state, following) and not _FOOTNOTE.match(_line_at(state, following)):
        if not state.is_code_block(following) and any(rule(state, following, end, True) for rule in rules):
            break
        following += 1
    state.line = following
    opening = state.push("footnote_open", "p", 1)
    opening.map, opening.info = [start, following], found[1]
    text = state.push("inline", "", 0)
    lines = state.getLines(start, following, state.blkIndent, False).strip()
    text.content, text.map, text.children = _FOOTNOTE.sub("", lines, count=1), [start, following], []
    state.push("footnote_close", "p", -1)
    return True


def add_footnote_mark(state: StateInline, silent: bool) -> bool:
    """Where a footnote belongs to."""
    found = _FOOTNOTE_MARK.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.push("footnote_mark", "", 0).content = found[1]
    state.pos = found.end()
    return True


def add_url(state: StateInline, silent: bool) -> bool:
    """An address with its scheme, without any markup."""
    found = None if state.linkLevel else find_url(state.src, state.pos, state.posMax)
    if found is None or not state.pending.endswith(state.src[found.start : state.pos]):
        return False
    if not silent:
        state.pending = state.pending[: len(state.pending) - (state.pos - found.start)]
        state.push("link_open", "a", 1).attrs = {"href": found.href}
        state.push("text", "", 0).content = found.text
        state.push("link_close", "a", -1)
    state.pos = found.start + len(found.text)
    return True


def scan_tildes(state: StateInline, silent: bool) -> bool:
    """One tilde or two on both sides strike a text out; more are text."""
    if silent or state.src[state.pos] != "~":
        return False
    scanned = state.scanDelims(state.pos, True)
    state.push("text", "", 0).content = "~" * scanned.length
    state.pos += scanned.length
    if scanned.length <= 2:
        marker = ONE_TILDE if scanned.length == 1 else TWO_TILDES
        place = len(state.tokens) - 1
        state.delimiters.append(
            Delimiter(marker, length=0, token=place, end=-1, open=scanned.can_open, close=scanned.can_close)
        )
    return True


def strike(state: StateInline) -> None:
    """Make elements of the tildes that belong together."""
    lists = [state.delimiters, *(each["delimiters"] for each in state.tokens_meta if each and "delimiters" in each)]
    for delimiters in lists:
        for start in delimiters:
            if start.marker not in (ONE_TILDE, TWO_TILDES) or start.end == -1:
                continue
            opening, closing = state.tokens[start.token], state.tokens[delimiters[start.end].token]
            opening.type, opening.tag, opening.nesting, opening.content = "s_open", "del", 1, ""
            closing.type, closing.tag, closing.nesting, closing.content = "s_close", "del", -1, ""


def mark_tasks(state: StateCore) -> None:
    """`[ ]` and `[x]` at the start of the item of a list."""
    for before, paragraph, token in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if (before.type, paragraph.type, token.type) != ("list_item_open", "paragraph_open", "inline"):
            continue
        children = token.children or []
        found = _TASK.match(children[0].content) if children and children[0].type == "text" else None
        if found is None:
            continue
        children[0].content = children[0].content[found.end() :]
        checked = {} if found[1] == " " else {"checked": ""}
        children.insert(0, Token("task", "input", 0, attrs={"type": "checkbox", "disabled": "", **checked}))
