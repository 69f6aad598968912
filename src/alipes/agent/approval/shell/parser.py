"""Reads a text of bash into the commands it would run. It runs nothing and rules on nothing.

What it cannot know it says: a word that depends on the run is not `sure`, and what is no shell,
or too clever, raises `Unclear`. Variables that the text itself sets are followed.
"""

import re
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from alipes.agent.approval.shell.lexer import (
    BREAKS,
    HOLE,
    PLAIN,
    Unclear,
    Word,
    WordReader,
    is_arithmetic,
    matching,
)

DEPTH = 12
LONGEST = 100_000
_BLANKS = r"(?:[ \t\r]|\\\r?\n)*(?:#[^\n]*)?"
_REDIRECT = r"(?:\d+|\{\w+\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())"
_CONTROL = r";;&|;;|;&|&&|\|\||\|&|[;&|()\n]"
_ASSIGNMENT = r"([A-Za-z_]\w*)(?:\[[^]\s]*\])?\+?="
_NO_PARAMETERS = r"\([ \t]*\)"
_CONDITION = r"(?s)(.*?)(?<=\s)\]\](?=$|[\s;&|)])"
_PATTERN = r"(?!\s*esac\b)\s*\(?[^()]{0,500}\)"
_RESERVED = {"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "!"}
_DECLARING = {"export", "declare", "typeset", "readonly", "local"}
_SETTING = {"for", "select", "read", "mapfile", "readarray", "getopts", "printf", "unset", "let"}


class Redirect(Struct, frozen=True):
    operator: str
    target: Word


class Command(Struct):
    """One simple command."""

    words: list[Word] = []
    assigned: list[tuple[str, Word]] = []
    redirects: list[Redirect] = []
    stdin: Word | None = None
    """The text of a here-document or here-string."""
    upstream: "Command | None" = None
    """Whose output it reads through a pipe."""
    sign: str = ""
    """What ended it: `&&`, `;`, `|` and so on."""


def read(text: str, known: Mapping[str, str], depth: int = 0) -> list[Command]:
    """The commands of `text` in the order they begin, those of a substitution before the one it is in.

    `known` are values of variables; one that the text sets more than once is not known. Raises Unclear.
    """
    if len(text) > LONGEST:
        raise Unclear("it is too long")
    if re.search(r"\r(?!\n)", text):  # a letter to a shell, and a blank to who reads it
        raise Unclear("there is a carriage return in it")
    given = Counter(re.findall(r"(?<![\w$])([A-Za-z_]\w*)\+?=", text))
    unsteady = {name: HOLE for name, times in given.items() if times > 1}
    reader = _Reader(text, {"IFS": " \t\n", **known, **unsteady}, depth)
    reader.script()
    return reader.found


class _Reader:
    """One pass over one text; the text of a substitution gets a reader of its own."""

    def __init__(self, text: str, known: dict[str, str], depth: int) -> None:
        if depth > DEPTH:
            raise Unclear("it is nested too deeply")
        self.found: list[Command] = []
        self._known, self._depth = known, depth
        self._words = WordReader(text, known, self._inside)
        self._draft = Command()
        self._awaited: list[tuple[Command, str, bool, bool]] = []
        self._brackets = self._cases = 0
        self._split = True

    def script(self) -> None:
        """Read the whole text."""
        words = self._words
        while (blank := re.compile(_BLANKS).match(words.text, words.at)) and blank.end() < len(words.text):
            words.at = blank.end()
            if redirect := re.compile(_REDIRECT).match(words.text, words.at):
                self._redirect(redirect)
            elif control := re.compile(_CONTROL).match(words.text, words.at):
                self._control(control[0])
            else:
                self._word()
        if self._brackets or self._cases:
            raise Unclear("a bracket or a `case` is not closed")
        self._end()
        words.at = len(words.text)
        self._here_documents()

    def _inside(self, text: str) -> str:
        inner = _Reader(text, self._known, self._depth + 1)
        inner.script()
        self.found += inner.found
        last = inner.found[-1].words if inner.found else []
        # the one substitution whose value is as good as known
        return "/tmp/mktemp/new" if last and last[0].text == "mktemp" else HOLE

    def _control(self, sign: str) -> None:
        if sign == "(" and self._steps_over():
            return
        self._words.at += len(sign)
        self._end(sign)
        if sign == "\n":
            self._here_documents()
        elif sign == "(":
            self._brackets += 1
        elif sign == ")" and self._brackets:
            self._brackets -= 1
        elif sign == ")":
            raise Unclear("a closing bracket has no opening one")
        elif sign in (";;", ";&", ";;&") and self._cases:
            self._pattern()

    def _pattern(self) -> None:
        """Step over the pattern of a `case`, which runs nothing."""
        if found := re.compile(_PATTERN).match(self._words.text, self._words.at):
            self._words.at = found.end()

    def _steps_over(self) -> bool:
        """At an opening bracket: step over arithmetic, or the brackets after a function's name."""
        words, draft = self._words, self._draft
        if not draft.words and is_arithmetic(words.text, words.at):
            end = matching(words.text, words.at)
            WordReader(words.text[words.at : end], self._known, self._inside).value()
            words.at = end + 1
            return True
        if found := re.compile(_NO_PARAMETERS).match(words.text, words.at):
            draft.words.clear()
            words.at = found.end()
            return True
        if draft.words:
            raise Unclear("a bracket stands where none is expected")
        return False

    def _end(self, sign: str = "") -> None:
        done, self._draft = self._draft, Command()
        done.sign = sign
        if done.words or done.assigned or done.redirects:
            self.found.append(done)
            self._remember(done)
        if sign in ("|", "|&"):
            self._draft.upstream = done

    def _remember(self, done: Command) -> None:
        names = [word.text for word in done.words]
        given = done.assigned if not names else []
        if names and names[0] in _DECLARING:
            pairs = [name.partition("=") for name in names[1:]]
            given = [(name.rstrip("+"), Word(value)) for name, sign, value in pairs if sign]
        if names and names[0] in _SETTING:
            given = [(name, Word(HOLE)) for name in names[1:]]
        if any(name == "IFS" for name, _ in given):  # from here on words are split as nobody foresees
            self._known.update(dict.fromkeys(self._known, HOLE))
            self._split = False
        for name, word in given:
            unknown = self._known.get(name) == HOLE or not self._split
            self._known[name] = HOLE if unknown else word.text

    def _word(self) -> None:
        """Take the next word as what it is: a word of the language, an assignment, or a word of a command."""
        words, draft = self._words, self._draft
        plain = re.compile(PLAIN).match(words.text, words.at)
        literal = plain[0] if plain and words.text[plain.end() : plain.end() + 1] in ("", *BREAKS) else ""
        if literal in ("{", "}") and not draft.words:
            words.at += 1
        elif not draft.words and not draft.assigned and self._is_language(literal):
            return
        elif not draft.words and (found := re.compile(_ASSIGNMENT).match(words.text, words.at)):
            words.at = found.end()
            draft.assigned.append((found[1], self._assigned()))
        else:
            start = words.at
            draft.words += words.words()
            written = words.text[start : words.at]
            if "\\\n" in written and re.match(_ASSIGNMENT, written.replace("\\\n", "")):
                raise Unclear("a line goes on in the middle of a name")

    def _is_language(self, literal: str) -> bool:
        """Step over a reserved word and what belongs to it."""
        words = self._words
        if literal == "[[":
            found = re.compile(_CONDITION).match(words.text, words.at)
            if not found:
                raise Unclear("`[[` is not closed")
            WordReader(found[1], self._known, self._inside).value(code=True)
            words.at = found.end()
        elif literal == "case":
            self._cases += 1
            self._skip(2)  # `case` and its subject
            self._skip(1)  # `in`
            self._pattern()
        elif literal == "esac":
            self._cases -= 1
            self._skip(1)
        elif literal == "function":
            self._skip(2)
        elif literal == "coproc":
            raise Unclear("it runs something beside itself")
        elif literal in _RESERVED:
            self._skip(1)
        else:
            return False
        return True

    def _skip(self, count: int) -> None:
        for _ in range(count):
            blank = re.compile(_BLANKS).match(self._words.text, self._words.at)
            self._words.at = blank.end() if blank else self._words.at
            self._words.words()

    def _assigned(self) -> Word:
        words = self._words
        if not words.text.startswith("(", words.at):
            return next(iter(words.words(split=False)), Word(""))
        end = matching(words.text, words.at)
        WordReader(words.text[words.at + 1 : end], self._known, self._inside).value(code=True)
        words.at = end + 1
        if words.text[words.at : end + 2] not in ("", *BREAKS):
            raise Unclear("something is glued to a list")
        return Word(HOLE)

    def _redirect(self, found: re.Match[str]) -> None:
        words = self._words
        blank = re.compile(_BLANKS).match(words.text, found.end())
        words.at = start = blank.end() if blank else found.end()
        target = next(iter(words.words(split=False)), None)
        if target is None:
            raise Unclear("a redirection leads nowhere")
        if found[1] in ("<<", "<<-"):
            written = words.text[start : words.at]
            quoted = any(mark in written for mark in "'\"\\")
            self._awaited.append((self._draft, _delimiter(written), quoted, found[1] == "<<-"))
        elif found[1] == "<<<":
            self._draft.stdin = target
        else:
            self._draft.redirects.append(Redirect(found[1], target))

    def _here_documents(self) -> None:
        words = self._words
        for command, delimiter, quoted, indented in self._awaited:
            lines: list[str] = []
            while words.at < len(words.text):
                end = words.text.find("\n", words.at)
                line = words.text[words.at : end if end >= 0 else None]
                words.at += len(line) + 1
                line = line.lstrip("\t") if indented else line
                if line == delimiter:
                    break
                lines.append(line)
            else:
                raise Unclear("a here-document does not end")
            body = "\n".join(lines)
            command.stdin = Word(body if quoted else WordReader(body, self._known, self._inside).value())
        self._awaited.clear()


def _delimiter(written: str) -> str:
    """The line that ends a here-document: as it is written, without quotes; nothing in it is expanded."""
    if "$'" in written or '$"' in written:
        raise Unclear("what ends a here-document is not clear")
    return re.sub(
        r"(?s)\\(.)|'([^']*)'|\"([^\"]*)\"", lambda part: next(filter(None, part.groups()), ""), written
    )
