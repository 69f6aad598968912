"""Where text may be cut without cutting through emphasis, code or a link. It parses and styles nothing."""

import re
import unicodedata
from copy import copy

from alipes.cli.width import LETTERS

LONGEST = 1000
"""A mark that is not closed within so many characters is not a mark."""
MOST = 64
"""Nor is one with so many others behind it: parsing them again and again must stay cheap."""

_TOKEN = re.compile(rf"\\.|`+|\*+|_+|~+|\[|\]\(?|[()&<]|[ \t\n]+|[{LETTERS}]{{2,64}}", re.DOTALL)
_TICKS = re.compile("`+")
_SPECIAL = re.compile(r"[\\`*_~\[\]&<]")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class Marks:
    """Finds the parts of a text that comes in pieces; a part never depends on what follows it."""

    __slots__ = ("_marked", "_open", "_parens", "_pos", "_start", "_text", "_ticks")

    def __init__(self) -> None:
        self._text = ""
        self._open: list[tuple[str, int]]
        self._start: int
        self._pos: int
        self._marked: int
        self._begin(0)

    def feed(self, text: str) -> list[tuple[str, bool]]:
        """The parts that `text` completes, each with whether it is free of marks."""
        self._text += text
        parts: list[tuple[str, bool]] = []
        plain = self._start  # from here to the start all is free of marks, and need not be cut
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
        """The last part. For a draft, marks that are open are closed and half a mark is left out."""
        text = self._text
        marked = self._marked > 0 or _SPECIAL.search(text, self._pos) is not None
        if draft and marked:
            text = self._healed()
        self._text = ""
        self._begin(0)
        return text, not marked

    def fork(self) -> "Marks":
        other = copy(self)
        other._open = self._open[:]
        return other

    def _begin(self, start: int) -> None:
        self._start = self._pos = start
        self._open = []
        self._ticks = 0
        self._parens = 0
        self._marked = 0

    def _next_cut(self) -> int | None:
        """Where the part that begins at the start ends, if that is known yet."""
        text, limit = self._text, self._start + LONGEST
        while True:
            found = (_TICKS if self._ticks else _TOKEN).search(text, self._pos, limit + 1)
            if found is not None and found[0][0] > "\u3000" and self._free():
                # before any limit is asked, as how much of the letters is here is no fact of the text
                return found.end() - 1
            if found is None or found.end() > limit:
                if len(text) <= limit:
                    self._pos = found.start() if found else max(self._pos, len(text) - 1)
                    return None
                self._marked += 1
                return self._forced(limit, found)
            if found.end() == len(text):
                self._pos = found.start()
                return None
            if self._marked >= MOST:
                return found.start()
            self._pos = found.end()
            if (cut := self._take(found)) is not None:
                return cut

    def _forced(self, limit: int, found: re.Match[str] | None) -> int:
        """The cut of a part that is too long: through what is open, but not through what was closed."""
        if not self._free():
            return self._text.rfind(" ", self._start, limit) + 1 or limit
        return found.start() if found and found.start() > self._start else limit

    def _take(self, found: re.Match[str]) -> int | None:
        """Note what `found` opens or closes; the place of the cut if it is one."""
        token = found[0]
        first = token[0]
        if first > "\u3000":
            return None
        if first in " \t\n":
            return found.end() if self._free() else None
        self._marked += 1
        if first == "`":
            self._take_ticks(len(token))
        elif self._parens:
            self._take_paren(first)
        elif first in "*_~":
            self._take_run(found)
        elif first == "[":
            self._open.append(("[", 1))
        elif first == "]":
            self._take_bracket(token)
        return None

    def _free(self) -> bool:
        return not (self._open or self._ticks or self._parens)

    def _take_ticks(self, count: int) -> None:
        if not self._ticks:
            self._ticks = count
        elif self._ticks == count:
            self._ticks = 0

    def _take_paren(self, char: str) -> None:
        if char == "(":
            self._parens += 1
        elif char == ")":
            self._parens -= 1
            if not self._parens:  # what stands in the text of a link ends with it
                del self._open[self._last("[") :]

    def _take_bracket(self, token: str) -> None:
        opener = self._last("[")
        if opener < 0:
            return
        if token == "](":
            self._parens = 1
        else:
            del self._open[opener]

    def _take_run(self, found: re.Match[str]) -> None:
        char, count = found[0][0], len(found[0])
        if char == "~" and count < 2:
            return
        before = self._text[found.start() - 1] if found.start() > self._start else " "
        opens, closes = _flanks(char, before, self._text[found.end()])
        while closes and count and (opener := self._last(char)) >= 0:
            had = self._open[opener][1]
            del self._open[opener:]
            if had > count:
                self._open.append((char, had - count))
            count = max(0, count - had)
        if opens and count:
            self._open.append((char, count))

    def _last(self, char: str) -> int:
        """The place of the innermost `char` that is open; emphasis does not reach out of a bracket."""
        for place in range(len(self._open) - 1, -1, -1):
            opener = self._open[place][0]
            if opener == char:
                return place
            if opener == "[":
                break
        return -1

    def _healed(self) -> str:
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


def _flanks(char: str, before: str, after: str) -> tuple[bool, bool]:
    """Whether a run between these two characters may open and may close emphasis."""
    blank_before, blank_after = before.isspace(), after.isspace()
    mark_before, mark_after = _punctuation(before), _punctuation(after)
    left = not (blank_after or (mark_after and not (blank_before or mark_before)))
    right = not (blank_before or (mark_before and not (blank_after or mark_after)))
    if char != "_":
        return left, right
    return left and (not right or mark_before), right and (not left or mark_after)


def _punctuation(char: str) -> bool:
    return char in _PUNCTUATION or (not char.isascii() and unicodedata.category(char)[0] in "PS")
