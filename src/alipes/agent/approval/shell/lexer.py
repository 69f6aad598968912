"""Reads the words of a text of bash: quotes, escapes and expansions. What is run inside them it hands on."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

HOLE = "\0"
"""Stands in a word for what is known only when it runs."""
DEEPEST = 20
MOST = 200
"""Words that one word may become."""
BREAKS = " \t\r\n;&|<>()"
PLAIN = r"[^ \t\r\n\\'\"$`<>;&|()]+"
"""Other blanks, such as a form feed, are letters like any other."""
_NAME = r"[A-Za-z_]\w*|[0-9@*#?$!-]"
_BACKTICK = r"(?s)((?:[^`\\]|\\.)*)`"
_ESCAPE = r"(?s)\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))"
_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_RANGE = r"(-?\d+)\.\.-?\d+(?:\.\.-?\d+)?"


class Unclear(Exception):
    """The text cannot be read with certainty; the message says why."""


class Word(Struct, frozen=True):
    text: str
    """Without quotes; a `HOLE` for each part that is not known."""
    glob: bool = False
    """Has an unquoted wildcard."""

    @property
    def sure(self) -> bool:
        return HOLE not in self.text


class Char(NamedTuple):
    char: str
    kind: str
    """`l` literal, `q` quoted, `e` the value of an unquoted expansion."""


class WordReader:
    """Reads words of `text` from `at` on, which it moves.

    `inside` is called with the text of every substitution and gives its value, or a `HOLE`.
    """

    def __init__(self, text: str, known: Mapping[str, str], inside: Callable[[str], str]) -> None:
        self.text, self.at = text, 0
        self._known, self._inside = known, inside

    def words(self, *, split: bool = True) -> list[Word]:
        """The words that the next word becomes: one, unless it expands to more or to none."""
        chars: list[Char] = []
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if found := re.compile(PLAIN).match(self.text, self.at):
                self.at = found.end()
                chars += [Char(char, "l") for char in found[0]]
            elif char in "<>" and self.text.startswith("(", self.at + 1):
                self._substitution(self.at + 1)
                chars.append(Char(HOLE, "q"))
            elif char in BREAKS:
                break
            else:
                chars += self._special()
        home = self._known.get("HOME", HOLE) if self.text.startswith(("~", "{"), start) else "~"
        return _finished(chars, home, split=split)

    def value(self, ending: str = "", *, code: bool = False) -> str:
        """The value of the text up to `ending`, read as between double quotes; the ending is stepped over.

        `code`: it stands between none, so that `<( )` is run in it too.
        """
        value: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == ending:
                self.at += 1
                return "".join(value)
            if code and char in "<>" and self.text.startswith("(", self.at + 1):
                value.append(self._substitution(self.at + 1))
            elif char in "$`":
                value += (part.char for part in self._special(quoted=True))
            elif char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                value.append(self.text[self.at + 1].strip("\n"))
                self.at += 2
            else:
                value.append(char)
                self.at += 1
        if ending:
            raise Unclear("a quote is not closed")
        return "".join(value)

    def _special(self, *, quoted: bool = False) -> list[Char]:
        """What begins with a quote, a backslash, a backtick or a dollar sign."""
        char = self.text[self.at]
        self.at += 1
        if char == "$":
            text, kind = self._dollar(quoted=quoted)
        elif char == "`":
            text, kind = self._backtick(), "e"
        elif char == "\\":
            text, kind = self.text[self.at : self.at + 1].strip("\n"), "q"
            self.at += 1
        elif char == '"':
            text, kind = self.value('"'), "q"
        else:
            end = self.text.find("'", self.at)
            if end < 0:
                raise Unclear("a quote is not closed")
            text, kind = self.text[self.at : end], "q"
            self.at = end + 1
        if not text and (char in "'\"" or (char, kind) == ("$", "q")):
            return [Char("", "q")]  # nothing, and yet a word
        return [Char(each, "q" if quoted else kind) for each in text]

    def _dollar(self, *, quoted: bool) -> tuple[str, str]:
        following = self.text[self.at : self.at + 1]
        if following == "(":
            return self._substitution(self.at), "e"
        if following == "{":
            return self._braced(), "e"
        if following == "'" and not quoted:
            return self._ansi(), "q"
        if following == '"' and not quoted:
            self.at += 1
            return self.value('"'), "q"
        if found := re.compile(_NAME).match(self.text, self.at):
            self.at = found.end()
            return self._known.get(found[0], HOLE), "e"
        return "$", "q"

    def _substitution(self, at: int) -> str:
        """Step over the brackets that open at `at`; the value of what is run inside."""
        end = matching(self.text, at)
        inner = self.text[at + 1 : end]
        self.at = end + 1
        if is_arithmetic(self.text, at):  # in which a substitution may stand
            WordReader(inner[1:-1], self._known, self._inside).value()
            return "1"
        return self._inside(inner)

    def _braced(self) -> str:
        end = matching(self.text, self.at)
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        if inner.isidentifier():
            return self._known.get(inner, HOLE)
        WordReader(inner, self._known, self._inside).value(code=True)
        return HOLE

    def _backtick(self) -> str:
        found = re.compile(_BACKTICK).match(self.text, self.at)
        if not found:
            raise Unclear("a backtick is not closed")
        self.at = found.end()
        return self._inside(re.sub(r"\\([`\\$])", r"\1", found[1]))

    def _ansi(self) -> str:
        found = re.compile(r"'((?:[^'\\]|\\.)*)'", re.S).match(self.text, self.at)
        if not found:
            raise Unclear("a quote is not closed")
        self.at = found.end()
        return re.compile(_ESCAPE).sub(_unescaped, found[1])


def matching(text: str, at: int, deep: int = 0) -> int:
    """Where the bracket that opens at `at` closes, heeding quotes."""
    if deep > DEEPEST:
        raise Unclear("it is nested too deeply")
    opening, closing = text[at], {"(": ")", "{": "}"}[text[at]]
    depth = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "'":
            at = text.find("'", at + 1)
        elif char in '"`':
            at = _closing_quote(text, at, deep)
        depth += (char == opening) - (char == closing)
        if at < 0 or not depth:
            break
        at += 1
    if at < 0 or depth:
        raise Unclear("a bracket or a quote is not closed")
    return at


def is_arithmetic(text: str, at: int) -> bool:
    """Do double brackets open at `at`, that is: do both close together?"""
    return text.startswith("((", at) and matching(text, at + 1) == matching(text, at) - 1


def _closing_quote(text: str, at: int, deep: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        if text[at] == "\\":
            at += 1
        elif quote == '"' and text.startswith(("$(", "${"), at):
            at = matching(text, at + 1, deep + 1)
        at += 1
    return at if at < len(text) else -1


def _unescaped(found: re.Match[str]) -> str:
    for digits, base in ((found[1], 16), (found[2], 16), (found[3], 16), (found[4], 8)):
        if digits:
            return chr(min(int(digits, base), 0x10FFFF))
    return _LETTERS.get(found[5].lower(), found[5])


def _finished(chars: list[Char], home: str, *, split: bool) -> list[Word]:
    parts: list[list[Char]] = []
    for alternative in _braces(chars) if split else [chars]:
        parts.append([])
        for char in alternative:
            if split and char.kind == "e" and char.char.isspace():
                parts.append([])
            else:
                parts[-1].append(char)
    return [_word(part, home) for part in parts if part]


def _word(chars: list[Char], home: str) -> Word:
    text = "".join(char.char for char in chars)
    if chars and chars[0] == ("~", "l"):
        person, slash, rest = text[1:].partition("/")
        text = text if home == "~" else (HOLE if person else home) + slash + rest
    return Word(text, any(char.char in "*?[" and char.kind != "q" for char in chars))


def _braces(chars: list[Char], deep: int = 0) -> list[list[Char]]:
    """Brace expansion; a range of numbers is taken for its first, of letters for something unknown."""
    if deep > DEEPEST:
        raise Unclear("a word becomes too many")
    for start, char in enumerate(chars):
        if char != ("{", "l"):
            continue
        options, end = _options(chars, start)
        if not options:
            continue
        tails = _braces(chars[end + 1 :], deep + 1)
        found = [
            chars[:start] + middle + tail
            for option in options
            for middle in _braces(option, deep + 1)
            for tail in tails
        ]
        if len(found) > MOST:
            raise Unclear("a word becomes too many")
        return found
    return [chars]


def _options(chars: list[Char], start: int) -> tuple[list[list[Char]], int]:
    """What stands between the commas of the braces that open at `start`, and where they close."""
    depth = 0
    options: list[list[Char]] = [[]]
    for at in range(start + 1, len(chars)):
        char = chars[at]
        if char == ("}", "l") and not depth:
            if len(options) > 1:
                return options, at
            inner = "".join(each.char for each in options[0])
            if found := re.compile(_RANGE).fullmatch(inner):
                return [[Char(digit, "l") for digit in found[1]]], at
            if ".." in inner:
                return [[Char(HOLE, "l")]], at
            options[-1].append(char)  # braces around one thing are no braces; the next may close
            continue
        if char == (",", "l") and not depth:
            options.append([])
            continue
        depth += (char == ("{", "l")) - (char == ("}", "l"))
        options[-1].append(char)
    return [], start


class Args:
    """Sorted arguments. An option counts also when it is abbreviated, as most programs allow."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = list(words)
        self.operands: list[Word] = []
        self.options: list[Word] = []
        self._letters = ""
        self._names: list[str] = []
        for at, word in enumerate(self.words):
            text = word.text
            if text == "--":
                self.operands += self.words[at + 1 :]
                break
            if len(text) < 2 or not text.startswith("-"):
                self.operands.append(word)
                continue
            self.options.append(word)
            if text.startswith("--"):
                self._names.append(text[2:].partition("=")[0])
            else:
                self._letters += text[1:]
                self._names += [text[1:].partition("=")[0]] if len(text) > 2 else []

    def has(self, letters: str, *names: str) -> bool:
        """Is one of the letters, or the beginning of one of the names, among the options?"""
        if any(letter in self._letters for letter in letters):
            return True
        return any(name.startswith(given) for given in self._names if given for name in names)

    def values(self, letters: str, *names: str) -> list[Word]:
        """The values of options: what stands after each of them, or in it."""
        found: list[Word] = []
        for at, word in enumerate(self.words):
            following = self.words[at + 1] if at + 1 < len(self.words) else Word("")
            text, sign, value = word.text.partition("=")
            if text.startswith("--"):
                if len(text) > 2 and any(name.startswith(text[2:]) for name in names):
                    found.append(Word(value) if sign else following)
            elif text.startswith("-") and any(letter in text[1:] for letter in letters):
                found.append(following)
                if text[1:2] in letters and len(word.text) > 2:  # as in -ofile
                    found.append(Word(word.text[2:]))
        return found

    @property
    def uncertain(self) -> bool:
        """Could an argument be an option we cannot see?"""
        return any(word.text.startswith("\0") for word in self.operands)
