"""Markdown as lines of IRC, and the cutting of lines that are too long for one. It sends nothing."""

import re
from itertools import groupby

from alipes.kernel.platforms import Piece
from alipes.platforms.markup import LINE, Border, Flow, Spans, cut, plain
from alipes.platforms.markup.reading import read

LONGEST = 4000
"""Letters of one piece: a line of the text, however many lines of IRC it takes."""
_SIGNS = {"bold": "\x02", "italic": "\x1d"}
_TOGGLES = "".join(_SIGNS.values())
_BLANK = re.compile(r"\s")
_CLINGING = re.compile(r"[\u0300-\u036f\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff]")


def pieces(markdown: str) -> tuple[Piece, ...]:
    """A piece for every line of the text: what arrived is known line by line. Empty ones cannot be sent."""
    flow = read(markdown)
    parts = cut(_by_lines(flow), _one_line, LONGEST)
    return tuple(Piece(text=_written(part), plain=plain(part)) for part in parts)


def lines(text: str, room: int) -> list[str]:
    """`text` in lines of at most `room` bytes, cut between words where there are some. Bold and italic
    that a cut falls into go on behind it."""
    made: list[str] = []
    opened = ""
    for line in text.split("\n"):
        rest = line.rstrip()
        while rest:
            whole = opened + rest
            end = _end(whole, room)
            part, rest = whole[:end], whole[end:]
            rest = rest.lstrip(" ") if rest and end < len(whole) else rest
            opened = "".join(sign for sign in _TOGGLES if part.count(sign) % 2) if rest else ""
            if part.strip(f" {_TOGGLES}"):
                made.append(part.rstrip())
        opened = ""
    return made


def _end(text: str, room: int) -> int:
    if len(text.encode()) <= room:
        return len(text)
    # What does not end between two characters ends before the one it fell into.
    fit = len(text.encode()[:room].decode("utf-8", "ignore"))
    blanks = [match.start() for match in _BLANK.finditer(text, 0, fit + 1)]
    if blanks and blanks[-1] > fit // 3:
        return blanks[-1]
    while fit > 1 and (_CLINGING.match(text[fit]) or text[fit - 1] == "\u200d"):
        fit -= 1
    return max(1, fit)


def _one_line(spans: Spans) -> bool:
    text = "".join(span.text for span in spans)
    return "\n" not in text.strip("\n")


def _by_lines(flow: Flow) -> Flow:
    """The same, where every line is a border and none is better than another."""
    borders: list[Border] = []
    size = 0
    for span in flow.spans:
        borders += [(size + match.end(), LINE) for match in re.finditer(r"\n", span.text)]
        size += len(span.text)
    return Flow(flow.spans, tuple(borders))


def _written(spans: Spans) -> str:
    out = ""
    for link, group in groupby(
        spans, lambda span: next((m.value for m in span.marks if m.kind == "link"), "")
    ):
        inside = tuple(group)
        for span in inside:
            kinds = {mark.kind for mark in span.marks} if span.text.strip() else set()
            signs = "" if "pre" in kinds else "".join(_SIGNS[kind] for kind in _SIGNS if kind in kinds)
            quote = "> " if "quote" in {m.kind for m in span.marks} and not out else ""
            out += f"{quote}{signs}{span.text}{signs[::-1]}"
        shown = "".join(span.text for span in inside).strip()
        out += f" ({link})" if link and link not in (shown, f"mailto:{shown}") else ""
    for sign in _TOGGLES:
        out = out.replace(sign * 2, "")
    return out
