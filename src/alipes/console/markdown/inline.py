"""Inline Markdown: splits streamed text at safe points and parses the parts into styled spans."""

import re
import unicodedata
from copy import copy

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from alipes.console.markdown.maths import MAX_FORMULA, find_formula, to_readable
from alipes.console.markdown.wrap import Row
from alipes.console.theme import Theme
from alipes.console.width import LETTERS
from alipes.runtime.links import is_misleading, link_host

MAX_PART = 1000
"""A mark that is not closed within this many characters is plain text."""
MAX_MARKS = 64
"""Maximum marks in one part, so that parsing it again stays cheap."""

_TOKEN = re.compile(rf"\\.|\$+|`+|\*+|_+|~+|\[|\]\(?|[()&<]|[ \t\n]+|[{LETTERS}]{{2,64}}", re.DOTALL)
_TICKS = re.compile("`+")
_SPECIAL = re.compile(r"[\\$`*_~\[\]&<]")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class InlineSplitter:
    """Splits streamed text into parts that do not depend on the text after them."""

    __slots__ = ("_marked", "_open", "_parens", "_pos", "_start", "_text", "_ticks")

    def __init__(self) -> None:
        self._text = ""
        self._start = self._pos = self._marked = 0
        self._begin(0)

    def feed(self, text: str) -> list[tuple[str, bool]]:
        """The parts that `text` completes, each with whether it has no marks."""
        self._text += text
        parts: list[tuple[str, bool]] = []
        plain = self._start  # the text from here to the start has no marks and needs no split
        while (cut := self._next_cut()) is not None:
            if self._marked:
                if plain < self._start:
                    parts.append((self._text[plain : self._start], True))
                parts.append((self._text[self._start : cut], False))
                plain = cut
            self._begin(cut)
        if plain < self._start:
            parts.append((self._text[plain : self._start], True))
        self._text, self._pos, self._start = self._text[self._start :], self._pos - self._start, 0
        return parts

    def close(self, *, draft: bool) -> tuple[str, bool]:
        """The last part. For a draft, open marks are closed and an incomplete mark is omitted."""
        text = self._text
        marked = self._marked > 0 or _SPECIAL.search(text, self._pos) is not None
        if draft and marked:
            text = self._close_marks()
        self._text = ""
        self._begin(0)
        return text, not marked

    def fork(self) -> "InlineSplitter":
        other = copy(self)
        other._open = self._open[:]
        return other

    def _begin(self, start: int) -> None:
        self._start = self._pos = start
        self._open: list[tuple[str, int]] = []
        self._ticks = self._parens = self._marked = 0

    def _next_cut(self) -> int | None:
        """The end of the current part, if it is known yet."""
        text, limit = self._text, self._start + MAX_PART
        while True:
            found = (_TICKS if self._ticks else _TOKEN).search(text, self._pos, limit + 1)
            if found is not None and found[0][0] > "\u3000" and self._nothing_open():
                # before the limits: the result must not depend on how many letters have arrived
                return found.end() - 1
            if found is None or found.end() > limit:
                if len(text) <= limit:
                    self._pos = found.start() if found else max(self._pos, len(text) - 1)
                    return None
                self._marked += 1
                return self._forced_cut(limit, found)
            if found.end() == len(text):
                self._pos = found.start()
                return None
            if self._marked >= MAX_MARKS:
                return found.start()
            end = self._skip_formula(found)
            if end is None:
                self._pos = found.start()
                return None
            if end:
                self._pos, self._marked = end, self._marked + 1
                continue
            self._pos = found.end()
            if (cut := self._take(found)) is not None:
                return cut

    def _skip_formula(self, found: re.Match[str]) -> int | None:
        """The end of the formula that starts here; 0 if none does; None if more text must decide that."""
        if self._ticks or self._parens or (found[0][0] != "$" and found[0] not in (r"\(", r"\[")):
            return 0
        start, text = found.start(), self._text
        if (formula := find_formula(text, start)) is not None:
            return formula[0] if formula[0] < len(text) else None
        is_complete = len(text) > start + MAX_FORMULA + 5 or "\n" in text[start:]
        return 0 if is_complete else None

    def _forced_cut(self, limit: int, found: re.Match[str] | None) -> int:
        """Where to split a part that is too long: inside open marks, but not inside closed ones."""
        if not self._nothing_open():
            return self._text.rfind(" ", self._start, limit) + 1 or limit
        return found.start() if found and found.start() > self._start else limit

    def _take(self, found: re.Match[str]) -> int | None:
        """Record what `found` opens or closes; returns the split position if it is one."""
        token = found[0]
        first = token[0]
        if first > "\u3000":
            return None
        if first in " \t\n":
            return found.end() if self._nothing_open() else None
        self._marked += 1
        if first == "`":
            if not self._ticks or self._ticks == len(token):
                self._ticks = 0 if self._ticks else len(token)
        elif self._parens:
            self._take_paren(first)
        elif first in "*_~":
            self._take_emphasis(found)
        elif first == "[":
            self._open.append(("[", 1))
        elif first == "]":
            self._take_bracket(token)
        return None

    def _nothing_open(self) -> bool:
        return not (self._open or self._ticks or self._parens)

    def _take_paren(self, char: str) -> None:
        if char == "(":
            self._parens += 1
        elif char == ")":
            self._parens -= 1
            if not self._parens:  # marks inside the link text end with it
                del self._open[self._last("[") :]

    def _take_bracket(self, token: str) -> None:
        opener = self._last("[")
        if opener < 0:
            return
        if token == "](":
            self._parens = 1
        else:
            del self._open[opener]

    def _take_emphasis(self, found: re.Match[str]) -> None:
        char, count = found[0][0], len(found[0])
        if char == "~" and count < 2:
            return
        before = self._text[found.start() - 1] if found.start() > self._start else " "
        opens, closes = _can_open_close(char, before, self._text[found.end()])
        while closes and count and (opener := self._last(char)) >= 0:
            had = self._open[opener][1]
            del self._open[opener:]
            if had > count:
                self._open.append((char, had - count))
            count = max(0, count - had)
        if opens and count:
            self._open.append((char, count))

    def _last(self, char: str) -> int:
        """The index of the innermost open `char`; emphasis does not extend beyond a bracket."""
        for place in range(len(self._open) - 1, -1, -1):
            opener = self._open[place][0]
            if opener == char:
                return place
            if opener == "[":
                break
        return -1

    def _close_marks(self) -> str:
        text = self._text[: self._pos] if self._text[self._pos :].strip("*_~`\\") == "" else self._text
        text = text.rstrip()
        if self._ticks:
            return text + "`" * self._ticks
        if self._parens:
            return text + ")" * self._parens
        for char, count in reversed(self._open):
            if char == "[" or text.endswith(char):
                break
            text += char * count
        return text


def _can_open_close(char: str, before: str, after: str) -> tuple[bool, bool]:
    """Whether a run between these two characters can open and can close emphasis."""
    blank_before, blank_after = before.isspace(), after.isspace()
    mark_before, mark_after = _is_punctuation(before), _is_punctuation(after)
    left = not (blank_after or (mark_after and not (blank_before or mark_before)))
    right = not (blank_before or (mark_before and not (blank_after or mark_after)))
    if char != "_":
        return left, right
    return left and (not right or mark_before), right and (not left or mark_after)


def _is_punctuation(char: str) -> bool:
    return char in _PUNCTUATION or (not char.isascii() and unicodedata.category(char)[0] in "PS")


_PARSER = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")


def _parse_formula(state: StateInline, silent: bool) -> bool:
    """A rule of the parser: a formula is one token, in which nothing else is parsed."""
    if state.src[state.pos] not in "$\\" or (found := find_formula(state.src, state.pos)) is None:
        return False
    if not silent:
        token = state.push("formula", "", 0)
        token.content, token.markup = found[1], state.src[state.pos : found[0]]
    state.pos = found[0]
    return True


_PARSER.inline.ruler.before("escape", "formula", _parse_formula)
_BLANKS = re.compile(r"[ \t]{2,}")
_UNSHOWABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def strip_unsafe(text: str) -> str:
    """The text without control characters (except line break and tab) and direction marks."""
    return text if text.isprintable() else _UNSHOWABLE.sub("", text)


class InlineParser:
    """Turns streamed text into spans as soon as later text cannot change them.

    The text is split where no mark is open, and each part is parsed separately. The splits depend
    only on the text, not on how it was streamed.
    """

    __slots__ = ("_base", "_marks", "_theme")

    def __init__(self, theme: Theme, base: str = "") -> None:
        self._theme, self._base = theme, base
        self._marks = InlineSplitter()

    def feed(self, text: str) -> Row:
        row: Row = []
        for part, plain in self._marks.feed(text):
            row += self._spans(part, plain)
        return row

    def close(self, *, draft: bool = False) -> Row:
        """The rest. A draft treats open marks as closed."""
        part, plain = self._marks.close(draft=draft)
        return self._spans(part, plain) if part else []

    def fork(self) -> "InlineParser":
        other = copy(self)
        other._marks = self._marks.fork()
        return other

    def _spans(self, part: str, plain: bool) -> Row:
        if plain:
            return [(_BLANKS.sub(" ", part) if "  " in part or "\t" in part else part, self._base, "")]
        body = part.rstrip(" \t\n")
        blank = part[len(body) :]
        if blank[:1] == "\n" and body[-1:] == "\\":  # a backslash also makes a line break
            body, blank = body + "\n", ""
        row = _Spans(self._theme, self._base).read(_PARSER.inline.parse(body, _PARSER, {}, []))
        if blank:
            row.append(("\n" if "\n" in blank else " ", self._base, ""))
        return row


def parse_inline(text: str, theme: Theme, base: str = "") -> Row:
    """The spans of a complete text."""
    inline = InlineParser(theme, base)
    return inline.feed(text) + inline.close()


class _Spans:
    """Converts the tokens of one part to spans."""

    def __init__(self, theme: Theme, base: str) -> None:
        self._theme = theme
        self._styles = [base]
        self._link = ""
        self._row: Row = []
        self._begun = 0
        """Index of the first span of the open link."""

    def read(self, tokens: list[Token]) -> Row:
        for token in tokens:
            self._take(token)
        return self._row

    def _take(self, token: Token) -> None:
        theme = self._theme
        match token.type:
            case "text" | "text_special":
                self._add(_BLANKS.sub(" ", token.content))
            case "softbreak" | "hardbreak":
                self._add("\n")
            case "code_inline":
                self._add(f"`{token.content}`" if theme.marks else token.content, theme.code)
            case "formula":
                self._add(token.markup if theme.marks else to_readable(token.content), theme.code)
            case "strong_open" | "strong_close" | "em_open" | "em_close" | "s_open" | "s_close":
                styles = {"strong": (theme.bold, "**"), "em": (theme.italic, "*"), "s": (theme.strike, "~~")}
                self._toggle(token, *styles[token.type.partition("_")[0]])
            case "link_open":
                self._link, self._begun = _address(token, "href"), len(self._row)
                self._styles.append(_combine_styles(self._styles[-1], theme.link))
            case "link_close":
                self._close_link()
            case "image":
                self._add(f"[image: {token.content}] ")
                address = _address(token, "src")
                self._row.append((address, _combine_styles(self._styles[-1], theme.url), self._link or address))

    def _add(self, text: str, style: str = "") -> None:
        if text := strip_unsafe(text):
            self._row.append((text, _combine_styles(self._styles[-1], style), self._link))

    def _toggle(self, token: Token, style: str, mark: str) -> None:
        if self._theme.marks:
            self._add(mark)
        if token.nesting > 0:
            self._styles.append(_combine_styles(self._styles[-1], style))
        else:
            self._styles.pop()

    def _close_link(self) -> None:
        self._styles.pop()
        link, self._link = self._link, ""
        shown = "".join(text for text, _, _ in self._row[self._begun :])
        host, bare = link_host(link), link.partition("://")[2] or link.removeprefix("mailto:")
        if not link or shown.strip().rstrip("/") in (link.rstrip("/"), bare.rstrip("/"), host):
            return
        # the target is shown: its host if the terminal shows the rest, all of it if not or if the text misleads
        target = host if self._theme.links and not is_misleading(shown, link) else link
        if target:
            self._row.append((f" ({target})", _combine_styles(self._styles[-1], self._theme.url), link))


def _address(token: Token, name: str) -> str:
    """The URL without characters that could break the surrounding escape sequence."""
    found = token.attrGet(name)
    return "".join(char for char in str(found or "") if "!" <= char <= "~")


def _combine_styles(style: str, other: str) -> str:
    """The codes of both styles without duplicates; the inner colour wins."""
    if not (style and other):
        return style or other
    outer = style.split(";")
    inner = [code for code in other.split(";") if len(code) > 1 or code not in outer]
    return ";".join([*(code for code in outer if code not in inner), *inner])
