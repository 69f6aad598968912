"""Reads words of bash: quotes, escapes and expansions; sorts arguments into options and operands."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

UNKNOWN = "\0"
"""Placeholder in a word for a part that is only known at run time."""
SOME_NAME = "\x01"
"""Placeholder for a part that is a plain name below the working directory: no slash at its start, no `..`."""
DECODED = "\x02"
"""Besides `UNKNOWN`: the part is decoded from other text, which hides what it says."""
_PIECE, _OVERLAP = 4_000, 450
MAX_NESTING = 20
MAX_BRACKETS = 200
"""Brackets of one kind inside each other."""
MAX_EXPANSIONS = 200
"""Most words that one word may expand to."""
BREAKS = " \t\r\n;&|<>()"
PLAIN = r"[^ \t\r\n\\'\"$`<>;&|()]+"
"""For bash other white space, such as a form feed, is part of a word."""
_NAME = r"[A-Za-z_]\w*|[0-9@*#?$!-]"
_BACKTICK = r"(?s)((?:[^`\\]|\\.)*)`"
_ESCAPE = r"(?s)\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))"
_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_RANGE = r"(-?\d+)\.\.-?\d+(?:\.\.-?\d+)?"


def split_pieces(text: str) -> Iterator[str]:
    """Overlapping pieces of a text, so that patterns do not keep the interpreter lock for long."""
    for at in range(0, max(len(text), 1), _PIECE):
        yield text[at : at + _PIECE + _OVERLAP]
        time.sleep(0)  # lets the event loop take the lock


class Unparsable(Exception):
    """The text cannot be parsed reliably; the message says why."""


class ShellWord(Struct, frozen=True):
    text: str
    """Without quotes; `UNKNOWN` for each part that is not known."""
    has_glob: bool = False
    """Has an unquoted wildcard."""

    @property
    def is_known(self) -> bool:
        return UNKNOWN not in self.text


class VariableValues(Protocol):
    """Values of variables."""

    def get(self, name: str, default: str, /) -> str: ...


class WordChar(NamedTuple):
    char: str
    kind: str
    """`l` literal, `q` quoted, `e` the value of an unquoted expansion."""


class WordLexer:
    """Reads words of `text` from position `at`.

    `parse_substitution` is called with the text of every substitution and returns its value or `UNKNOWN`.
    """

    def __init__(
        self, text: str, known: VariableValues, parse_substitution: Callable[[str], str], *, deep: int = 0
    ) -> None:
        if deep > MAX_NESTING:
            raise Unparsable("nested too deeply")
        self.text, self.at, self._deep = text, 0, deep
        self._known, self._parse_substitution = known, parse_substitution

    def read_words(self, *, split: bool = True) -> list[ShellWord]:
        """The next word after expansion: usually one word, but it may become several or none."""
        chars: list[WordChar] = []
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if found := self.match(PLAIN):
                self.at = found.end()
                chars += [WordChar(char, "l") for char in found[0]]
            elif char in "<>" and self.text.startswith("(", self.at + 1):
                self._read_substitution(self.at + 1)
                chars.append(WordChar(UNKNOWN, "q"))
            elif char in BREAKS:
                break
            else:
                chars += self._read_special()
        home = self._known.get("HOME", UNKNOWN) if "~" in self.text[start : self.at] else "~"
        return _expand(chars, home, split=split)

    def read_value(self, ending: str = "", *, code: bool = False) -> str:
        """Value of the text up to and including `ending`, as inside double quotes.

        `code`: it is not quoted, so `<( )` is a substitution too.
        """
        value: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == ending:
                self.at += 1
                return "".join(value)
            if code and char in "<>" and self.text.startswith("(", self.at + 1):
                value.append(self._read_substitution(self.at + 1))
            elif char in "$`":
                value += (part.char for part in self._read_special(quoted=True))
            elif char == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                value.append(self.text[self.at + 1].strip("\n"))
                self.at += 2
            else:
                value.append(char)
                self.at += 1
        if ending:
            raise Unparsable("unclosed quote")
        return "".join(value)

    def read_inner(self, text: str, *, code: bool = False) -> str:
        """Value of another text that is part of this one; its substitutions are parsed too."""
        return WordLexer(text, self._known, self._parse_substitution, deep=self._deep + 1).read_value(code=code)

    def match(self, pattern: str) -> re.Match[str] | None:
        return re.compile(pattern).match(self.text, self.at)

    def _read_special(self, *, quoted: bool = False) -> list[WordChar]:
        """Read what starts with a quote, backslash, backtick or dollar sign."""
        char = self.text[self.at]
        self.at += 1
        if char == "$":
            text, kind = self._read_dollar(quoted=quoted)
        elif char == "`":
            text, kind = self._read_backtick(), "e"
        elif char == "\\":
            text, kind = self.text[self.at : self.at + 1].strip("\n"), "q"
            self.at += 1
        elif char == '"':
            text, kind = self.read_value('"'), "q"
        else:
            end = self.text.find("'", self.at)
            if end < 0:
                raise Unparsable("unclosed quote")
            text, kind = self.text[self.at : end], "q"
            self.at = end + 1
        if not text and (char in "'\"" or (char, kind) == ("$", "q")):
            return [WordChar("", "q")]  # empty, but still a word
        return [WordChar(each, "q" if quoted else kind) for each in text]

    def _read_dollar(self, *, quoted: bool) -> tuple[str, str]:
        following = self.text[self.at : self.at + 1]
        if self.text.startswith("\\\n", self.at):
            raise Unparsable("a line is continued after a dollar sign")
        if following == "(":
            return self._read_substitution(self.at), "e"
        if following == "{":
            return self._read_braced(), "e"
        if following == "'" and not quoted:
            return self._read_ansi(), "q"
        if following == '"' and not quoted:
            self.at += 1
            return self.read_value('"'), "q"
        if found := self.match(_NAME):
            self.at = found.end()
            return self._known.get(found[0], UNKNOWN), "e"
        return "$", "q"

    def _read_substitution(self, at: int) -> str:
        """Skip the parentheses that open at `at`; returns the value of the substitution."""
        end = find_closing(self.text, at)
        inner = self.text[at + 1 : end]
        self.at = end + 1
        if is_arithmetic(self.text, at):  # may contain a substitution
            self.read_inner(inner[1:-1])
            return "1"
        return self._parse_substitution(inner)

    def _read_braced(self) -> str:
        end = find_closing(self.text, self.at)
        inner = self.text[self.at + 1 : end]
        self.at = end + 1
        if inner.isidentifier():
            return self._known.get(inner, UNKNOWN)
        if inner.endswith("@P"):
            raise Unparsable("expands the value of a variable as a prompt, which runs the commands in it")
        self.read_inner(inner, code=True)
        if DECODED in (array := self._known.get(inner.partition("[")[0], "") if "[" in inner else ""):
            return array
        if inner.startswith("#") and inner[1:].isidentifier():
            return "1"
        shortened = re.compile(r"([A-Za-z_]\w*)(?:%%?|##?|,,?|\^\^?)[^$`]*").fullmatch(inner)
        value = self._known.get(shortened[1], UNKNOWN) if shortened else UNKNOWN
        if shortened and value.startswith("/") and UNKNOWN not in value and SOME_NAME not in value:
            sign = inner[len(shortened[1]) :]
            return {"%/*": value.rpartition("/")[0], "##*/": value.rpartition("/")[2]}.get(sign, UNKNOWN)
        return value if SOME_NAME in value else UNKNOWN

    def _read_backtick(self) -> str:
        found = self.match(_BACKTICK)
        if not found:
            raise Unparsable("unclosed backtick")
        self.at = found.end()
        return self._parse_substitution(re.sub(r"\\([`\\$])", r"\1", found[1]))

    def _read_ansi(self) -> str:
        found = self.match(r"(?s)'((?:[^'\\]|\\.)*)'")
        if not found:
            raise Unparsable("unclosed quote")
        self.at = found.end()
        return re.compile(_ESCAPE).sub(_unescape, found[1])


def find_closing(text: str, at: int, deep: int = 0) -> int:
    """Position of the bracket that closes the one at `at`, outside quotes."""
    if deep > MAX_NESTING:
        raise Unparsable("nested too deeply")
    opening, closing = text[at], {"(": ")", "{": "}"}[text[at]]
    depth = 0
    while at < len(text):
        if depth > MAX_BRACKETS:
            raise Unparsable("nested too deeply")
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
        raise Unparsable("unclosed bracket or quote")
    return at


def is_arithmetic(text: str, at: int) -> bool:
    """True if `((` opens at `at` and both close together."""
    return text.startswith("((", at) and find_closing(text, at + 1) == find_closing(text, at) - 1


def _closing_quote(text: str, at: int, deep: int) -> int:
    quote = text[at]
    at += 1
    while at < len(text) and text[at] != quote:
        if text[at] == "\\":
            at += 1
        elif quote == '"' and text.startswith(("$(", "${"), at):
            at = find_closing(text, at + 1, deep + 1)
        at += 1
    return at if at < len(text) else -1


def _unescape(found: re.Match[str]) -> str:
    for digits, base in ((found[1], 16), (found[2], 16), (found[3], 16), (found[4], 8)):
        if digits:
            return chr(min(int(digits, base), 0x10FFFF))
    return _LETTERS.get(found[5].lower(), found[5])


def _expand(chars: list[WordChar], home: str, *, split: bool) -> list[ShellWord]:
    parts: list[list[WordChar]] = []
    for alternative in _expand_braces(chars) if split else [chars]:
        parts.append([])
        for char in alternative:
            if split and char.kind == "e" and char.char.isspace():
                parts.append([])
            else:
                parts[-1].append(char)
    return [_build_word(part, home) for part in parts if part]


def _build_word(chars: list[WordChar], home: str) -> ShellWord:
    text = "".join(char.char for char in chars)
    name, sign, value = text.partition("=")
    head = name + sign if sign and name.isidentifier() else ""  # bash expands x=~ too
    if len(chars) > len(head) and chars[len(head)] == ("~", "l") and home != "~":
        person, slash, rest = (value if head else text)[1:].partition("/")
        text = head + (UNKNOWN if person else home) + slash + rest
    return ShellWord(text, any(char.char in "*?[" and char.kind != "q" for char in chars))


def _expand_braces(chars: list[WordChar], deep: int = 0) -> list[list[WordChar]]:
    """Brace expansion. A number range counts as its first number, a letter range as unknown."""
    if deep > MAX_NESTING or (not deep and chars.count(WordChar("{", "l")) > MAX_EXPANSIONS):
        raise Unparsable("a word expands to too many words")
    for start, char in enumerate(chars):
        if char != ("{", "l"):
            continue
        options, end = _brace_options(chars, start)
        if not options:
            continue
        tails = _expand_braces(chars[end + 1 :], deep + 1)
        found = [
            chars[:start] + middle + tail
            for option in options
            for middle in _expand_braces(option, deep + 1)
            for tail in tails
        ]
        if len(found) > MAX_EXPANSIONS:
            raise Unparsable("a word expands to too many words")
        return found
    return [chars]


def _brace_options(chars: list[WordChar], start: int) -> tuple[list[list[WordChar]], int]:
    """The alternatives of the braces that open at `start`, and where they close."""
    depth = 0
    options: list[list[WordChar]] = [[]]
    for at in range(start + 1, len(chars)):
        char = chars[at]
        if char == ("}", "l") and not depth:
            if len(options) > 1:
                return options, at
            inner = "".join(each.char for each in options[0])
            if found := re.compile(_RANGE).fullmatch(inner):
                return [[WordChar(digit, "l") for digit in found[1]]], at
            if ".." in inner:
                return [[WordChar(UNKNOWN, "l")]], at
            options[-1].append(char)  # braces around a single item are literal; the next one may close
            continue
        if char == (",", "l") and not depth:
            options.append([])
            continue
        depth += (char == ("{", "l")) - (char == ("}", "l"))
        options[-1].append(char)
    return [], start


class ShellArguments:
    """Arguments sorted into options and operands. Long options may be abbreviated."""

    def __init__(self, words: Sequence[ShellWord]) -> None:
        self.words = list(words)
        self.operands: list[ShellWord] = []
        self.options: list[ShellWord] = []
        self._short_options = ""
        self._long_options: list[str] = []
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
                self._long_options.append(text[2:].partition("=")[0])
            else:
                self._short_options += text[1:]
                self._long_options += [text[1:].partition("=")[0]] if len(text) > 2 else []

    def has(self, letters: str, *names: str) -> bool:
        """True if one of the letters, or a prefix of one of the names, is an option."""
        if any(letter in self._short_options for letter in letters):
            return True
        return any(name.startswith(given) for given in self._long_options if given for name in names)

    def values(self, letters: str, *names: str) -> list[ShellWord]:
        """Values of options: the word after each, or the part after `=`."""
        found: list[ShellWord] = []
        for at, word in enumerate(self.words):
            following = self.words[at + 1] if at + 1 < len(self.words) else ShellWord("")
            text, sign, value = word.text.partition("=")
            if text.startswith("--"):
                if len(text) > 2 and any(name.startswith(text[2:]) for name in names):
                    found.append(ShellWord(value) if sign else following)
            elif text.startswith("-") and any(letter in text[1:] for letter in letters):
                found.append(following)
                if text[1:2] in letters and len(word.text) > 2:  # as in -ofile
                    found.append(ShellWord(word.text[2:]))
        return found

    @property
    def may_hide_option(self) -> bool:
        """True if an argument may turn out to be an option at run time."""
        return any(word.text.startswith("\0") for word in self.operands)
