"""Extracts what a person wrote in a mail: HTML as text, without quotes and signatures."""

import re
from html.parser import HTMLParser

from msgspec import Struct

MAX_QUOTE_CHARS = 20_000
"""Characters of a quote that are kept."""
MAX_OPEN_TAGS = 300
"""Open tags at most; no person writes more."""
_BLOCKS = frozenset(
    ("p", "div", "ul", "ol", "table", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "hr", "section", "article")
)
_UNSEEN = frozenset(("style", "script", "head", "title", "template"))
_VOID = frozenset(("br", "img", "hr", "input", "meta", "link", "wbr", "col"))
_QUOTING = re.compile(r"gmail_quote|yahoo_quoted|moz-cite|protonmail_quote", re.IGNORECASE)
_WROTE = re.compile(
    r"^(?:On|Am|Le|El|Il|Op|Em|Den|Dnia|W dniu)\b.{3,250}"
    r"(?:wrote|schrieb|a écrit|escribió|ha scritto|schreef|escreveu|skrev|napisał\(?a?\)?)\b.{0,120}:\s*$",
    re.IGNORECASE | re.DOTALL,
)
_OVER = re.compile(
    r"^\s*(?:-{2,}\s*(?:Original Message|Ursprüngliche Nachricht|Message d'origine|Mensaje original|"
    r"Forwarded message|Weitergeleitete Nachricht)\s*-{2,}|_{20,}|Begin forwarded message:)\s*$",
    re.IGNORECASE,
)
_HEAD = re.compile(r"^\s*\*?(?:From|Von|De|Da|Van)\s*:\*?\s+\S.*$", re.IGNORECASE)
_HEAD_CONTINUED = re.compile(r"^\s*\*?(?:Sent|Date|To|Cc|Gesendet|Datum|An|Envoyé|À|Enviado|Para)\s*:", re.IGNORECASE)
_SIGNED = re.compile(r"^-- ?$")
_DEVICE = re.compile(
    r"^(?:Sent from (?:my|Outlook|Mail)\b|Get Outlook for|Von meinem \S+ gesendet|Envoyé de mon).{0,60}$", re.IGNORECASE
)


class ReplyText(Struct, frozen=True):
    own: str
    quoted: str = ""
    woven: str = ""
    """Own text and quotes as written, if they wrote between or below the quotes; otherwise empty."""


def split_reply(text: str) -> ReplyText:
    """Split a mail into the person's own text and the quotes."""
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    end = _over(lines)
    lines, rest = lines[:end], lines[end:]
    own: list[str] = []
    quoted: list[str] = []
    for line in lines:
        if line.startswith(">"):
            if not quoted or own[-1:] != [""]:
                _drop_attribution(own)
            quoted.append(re.sub(r"^(?:> ?)+", "", line))
        else:
            own.append(line)
    words = "\n".join(_unsigned(own)).strip()
    quote = "\n".join([*quoted, *rest]).strip()[:MAX_QUOTE_CHARS]
    woven = "\n".join(_unsigned(lines)).strip() if quoted and _below(lines) else ""
    return ReplyText(re.sub(r"\n{3,}", "\n\n", words), quote, woven)


def _below(lines: list[str]) -> bool:
    """True if they wrote something after the first quote."""
    last = max((at for at, line in enumerate(lines) if line.startswith(">")), default=-1)
    first = next((at for at, line in enumerate(lines) if line.startswith(">")), len(lines))
    behind = [line for line in _unsigned(lines[last + 1 :]) if line.strip()]
    between = [line for line in lines[first:last] if line.strip() and not line.startswith(">")]
    return bool(behind or between)


def _over(lines: list[str]) -> int:
    """Index where someone else's text starts that is not quoted line by line."""
    for at, line in enumerate(lines):
        if _OVER.match(line):
            return at
        following = [each for each in lines[at + 1 : at + 4] if each.strip()]
        if _HEAD.match(line) and sum(bool(_HEAD_CONTINUED.match(each)) for each in following) >= 2:
            return at
        if _WROTE.match(line) or _WROTE.match("\n".join(lines[at : at + 2])):
            after = lines[at + 1 :] if _WROTE.match(line) else lines[at + 2 :]
            quote = [each for each in after if each.strip()]
            if quote and not quote[0].startswith(">"):
                return at
    return len(lines)


def _drop_attribution(own: list[str]) -> None:
    """Remove `On Monday Ada wrote:` before a quote, also if it spans two or three lines."""
    while own and not own[-1].strip():
        own.pop()
    for count in (1, 2, 3):
        if len(own) >= count and _WROTE.match("\n".join(own[-count:])):
            del own[-count:]
            return


def _unsigned(lines: list[str]) -> list[str]:
    for at, line in enumerate(lines):
        if _SIGNED.match(line):
            lines = lines[:at]
            break
    end = len(lines)
    while end and (not lines[end - 1].strip() or _DEVICE.match(lines[end - 1].strip())):
        end -= 1
    return lines[:end]


def html_to_text(html: str) -> str:
    """HTML as text: blocks become lines, link addresses are written out, quotes get `>`."""
    page = _Page()
    page.feed(_sane(html))
    page.close()
    return page.text


def _sane(html: str) -> str:
    """Remove comments and unclosed tags: with those alone the parser can be kept busy for a minute."""
    first, *others = html.split("<!--")
    rest = first + "".join(each.partition("-->")[2] for each in others)
    return re.sub(r"<(?![^<>]*>)", "&lt;", re.sub(r"<[!?][^<>]*>", "", rest))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._lines: list[str] = [""]
        self._hidden, self._quotes, self._pre = 0, 0, 0
        self._links: list[tuple[str, int, int]] = []
        """Address, line and column of each open link."""
        self._open: list[tuple[str, bool]] = []

    @property
    def text(self) -> str:
        text = "\n".join(re.sub(r"[ \t\u00a0]+$", "", line) for line in self._lines)
        return re.sub(r"\n(?:> ?)*\n(?:(?:> ?)*\n)+", "\n\n", text).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        quotes = tag == "blockquote" or bool(_QUOTING.search(given.get("class", "")))
        if tag not in _VOID:
            if len(self._open) >= MAX_OPEN_TAGS:
                return
            self._open.append((tag, quotes))
        self._hidden += tag in _UNSEEN
        self._pre += tag == "pre"
        if tag in _BLOCKS or quotes or tag == "li":
            self._line()
        if quotes:
            self._quotes += 1
            self._line()
        self._begin(tag, given)

    def _begin(self, tag: str, given: dict[str, str]) -> None:
        match tag:
            case "br":
                self._break()
            case "li":
                self._write_text("• ")
            case "td" | "th":
                self._write_text(" ")
            case "p" | "h1" | "h2" | "h3":
                self._blank_line()
            case "a":
                self._links.append((given.get("href", ""), len(self._lines) - 1, len(self._lines[-1])))
            case "img":
                self._write_text(given.get("alt", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag not in [name for name, _ in self._open]:
            return
        while self._open:
            name, quotes = self._open.pop()
            self._hidden -= name in _UNSEEN
            self._pre -= name == "pre"
            if name == "a" and self._links:
                self._end_link()
            if name in _BLOCKS or quotes:
                self._line()
            if quotes:
                self._quotes -= 1
                self._line()
            if name == tag:
                return

    def handle_data(self, data: str) -> None:
        if self._pre:
            for number, line in enumerate(data.split("\n")):
                if number:
                    self._break()
                self._write_text(line)
            return
        words = re.sub(r"[ \t\r\n]+", " ", data)
        self._write_text(words.lstrip(" ") if self._bare() or self._lines[-1].endswith(" ") else words)

    def _write_text(self, text: str) -> None:
        if text and not self._hidden:
            self._lines[-1] += text

    def _bare(self) -> bool:
        return not self._lines[-1].lstrip("> ")

    def _position(self) -> str:
        return "> " * min(self._quotes, 5)

    def _break(self) -> None:
        if not self._hidden:
            self._lines.append(self._position())

    def _line(self) -> None:
        if self._hidden:
            return
        if self._bare():
            self._lines[-1] = self._position()
        else:
            self._lines.append(self._position())

    def _blank_line(self) -> None:
        if any(line.strip() for line in self._lines) and not self._hidden:
            self._lines[-1] = self._position()
            self._lines.append(self._position())

    def _end_link(self) -> None:
        leads, line, column = self._links.pop()
        shown = "\n".join(self._lines[line:])[column:].strip()
        if leads.startswith(("http:", "https:")) and leads.rstrip("/") != shown.rstrip("/"):
            self._write_text(f" ({leads})")
