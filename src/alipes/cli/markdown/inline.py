"""Text with emphasis, code and links becomes styled spans while it is still coming in. It knows no lines."""

import re
from copy import copy

from markdown_it import MarkdownIt
from markdown_it.token import Token

from alipes.cli.markdown.flow import Row
from alipes.cli.markdown.marks import Marks
from alipes.cli.theme import Theme

_PARSER = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
_BLANKS = re.compile(r"[ \t]{2,}")
_UNSHOWABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HOST = re.compile(r"(?:\w+://)?([\w-]+(?:\.[\w-]+)+)")


def harmless(text: str) -> str:
    """The text without what a terminal would obey: controls but line break and tab, turns of direction."""
    return text if text.isprintable() else _UNSHOWABLE.sub("", text)


class Inline:
    """Takes text piece by piece and gives spans as soon as nothing that may come can change them.

    It is cut where no mark is open, and each part is parsed for itself; the cuts depend on the
    text alone, never on the pieces it came in.
    """

    __slots__ = ("_base", "_marks", "_theme")

    def __init__(self, theme: Theme, base: str = "") -> None:
        self._theme, self._base = theme, base
        self._marks = Marks()

    def feed(self, text: str) -> Row:
        row: Row = []
        for part, plain in self._marks.feed(text):
            row += self._spans(part, plain)
        return row

    def close(self, *, draft: bool = False) -> Row:
        """The rest. A draft takes for closed what is still open, as it most likely will be."""
        part, plain = self._marks.close(draft=draft)
        return self._spans(part, plain) if part else []

    def fork(self) -> "Inline":
        other = copy(self)
        other._marks = self._marks.fork()
        return other

    def _spans(self, part: str, plain: bool) -> Row:
        if plain:
            return [(_BLANKS.sub(" ", part) if "  " in part or "\t" in part else part, self._base, "")]
        body = part.rstrip(" \t\n")
        blank = part[len(body) :]
        if blank[:1] == "\n" and body[-1:] == "\\":  # the other way to write a line break
            body, blank = body + "\n", ""
        row = _Spans(self._theme, self._base).read(_PARSER.inline.parse(body, _PARSER, {}, []))
        if blank:
            row.append(("\n" if "\n" in blank else " ", self._base, ""))
        return row


def whole(text: str, theme: Theme, base: str = "") -> Row:
    """The spans of a text that is complete."""
    inline = Inline(theme, base)
    return inline.feed(text) + inline.close()


class _Spans:
    """A fold over the tokens of one part."""

    def __init__(self, theme: Theme, base: str) -> None:
        self._theme = theme
        self._styles = [base]
        self._link = ""
        self._row: Row = []
        self._begun = 0
        """Where the text of the link that is open begins."""

    def read(self, tokens: list[Token]) -> Row:
        for token in tokens:
            self._take(token)
        return self._row

    def _take(self, token: Token) -> None:
        theme = self._theme
        match token.type:
            case "text" | "text_special":
                self._say(_BLANKS.sub(" ", token.content))
            case "softbreak" | "hardbreak":
                self._say("\n")
            case "code_inline":
                self._say(f"`{token.content}`" if theme.marks else token.content, theme.code)
            case "strong_open" | "strong_close":
                self._turn(token, theme.bold, "**")
            case "em_open" | "em_close":
                self._turn(token, theme.italic, "*")
            case "s_open" | "s_close":
                self._turn(token, theme.strike, "~~")
            case "link_open":
                self._link, self._begun = _address(token, "href"), len(self._row)
                self._styles.append(_both(self._styles[-1], theme.link))
            case "link_close":
                self._close_link()
            case "image":
                self._say(f"[image: {token.content}] ")
                address = _address(token, "src")
                self._row.append((address, _both(self._styles[-1], theme.url), self._link or address))

    def _say(self, text: str, style: str = "") -> None:
        if text := harmless(text):
            self._row.append((text, _both(self._styles[-1], style), self._link))

    def _turn(self, token: Token, style: str, mark: str) -> None:
        if self._theme.marks:
            self._say(mark)
        if token.nesting > 0:
            self._styles.append(_both(self._styles[-1], style))
        else:
            self._styles.pop()

    def _close_link(self) -> None:
        self._styles.pop()
        link, self._link = self._link, ""
        shown = "".join(text for text, _, _ in self._row[self._begun :])
        if link and (not self._theme.links or _misleads(shown, link)) and shown.strip() not in link:
            self._row.append((f" ({link})", _both(self._styles[-1], self._theme.url), link))


def _misleads(shown: str, link: str) -> bool:
    """Whether the text of a link names another host than the one it leads to."""
    names, leads = _HOST.match(shown.strip()), _HOST.match(link)
    return names is not None and (leads is None or names[1].lower() != leads[1].lower())


def _address(token: Token, name: str) -> str:
    """Only what cannot end or begin an escape sequence: an address is printed between two of them."""
    found = token.attrGet(name)
    return "".join(char for char in str(found or "") if "!" <= char <= "~")


def _both(style: str, other: str) -> str:
    """One style within another, no code twice. What is bold stays so; of two colours the last one counts."""
    if not (style and other):
        return style or other
    outer = style.split(";")
    inner = [code for code in other.split(";") if len(code) > 1 or code not in outer]
    return ";".join([*(code for code in outer if code not in inner), *inner])
