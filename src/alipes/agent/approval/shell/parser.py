"""Parses bash into the commands it would run.

A word that is only known at run time has `is_known` False; text that cannot be parsed reliably raises
`Unparsable`. Variables that the text itself sets are followed.
"""

import re
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from alipes.agent.approval.shell.lexer import (
    BREAKS,
    PLAIN,
    UNKNOWN,
    ShellWord,
    Unparsable,
    WordLexer,
    find_closing,
    is_arithmetic,
)

MAX_DEPTH = 12
MAX_CHARS = 100_000
_BLANKS = r"(?:[ \t\r]|\\\r?\n)*(?:#[^\n]*)?"
_REDIRECT = r"(?:\d+|\{\w+\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())"
_CONTROL = r";;&|;;|;&|&&|\|\||\|&|[;&|()\n]"
_ASSIGNMENT = r"([A-Za-z_]\w*)(?:\[[^]\s]*\])?\+?="
_NO_PARAMETERS = r"\([ \t]*\)"
_CONDITION = r"(?s)(.*?)(?<=\s)\]\](?=$|[\s;&|)])"
_PATTERN = r"(?!\s*esac\b)\s*\(?[^()]{0,500}\)"
_RESERVED = {"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "!"}
_KEYWORDS = _RESERVED | {"case", "esac", "function", "coproc", "[[", "{", "}"}
_DECLARE_COMMANDS = {"export", "declare", "typeset", "readonly", "local"}
_ASSIGN_COMMANDS = {"for", "select", "read", "mapfile", "readarray", "getopts", "printf", "unset", "let"}


class Redirect(Struct, frozen=True):
    operator: str
    target: ShellWord


class ShellCommand(Struct):
    """One simple command."""

    words: list[ShellWord] = []
    assignments: list[tuple[str, ShellWord]] = []
    redirects: list[Redirect] = []
    stdin: ShellWord | None = None
    """Text of a here-document or here-string."""
    upstream: "ShellCommand | None" = None
    """The command whose output it reads through a pipe."""
    operator: str = ""
    """The operator after it: `&&`, `;`, `|` and so on."""


def parse_commands(text: str, known: Mapping[str, str], depth: int = 0) -> list[ShellCommand]:
    """The commands of `text` in order; those of a substitution come before the command that contains it.

    `known` are values of variables; one that the text sets more than once is unknown. Raises Unparsable.
    """
    if len(text) > MAX_CHARS:
        raise Unparsable("too long")
    if re.search(r"\r(?!\n)|\\\r", text):  # part of a word for bash, but invisible to a parser
        raise Unparsable("contains a carriage return")
    given = Counter(re.findall(r"(?<![\w$])([A-Za-z_]\w*)\+?=", text))
    reassigned = {name: UNKNOWN for name, times in given.items() if times > 1}
    parser = _Parser(text, {"IFS": " \t\n", **known, **reassigned}, depth)
    parser.parse()
    return parser.commands


class _Parser:
    """Parses one text; a substitution gets its own parser."""

    def __init__(self, text: str, known: dict[str, str], depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        self.commands: list[ShellCommand] = []
        self._known, self._depth = known, depth
        self._words = WordLexer(text, known, self._parse_substitution)
        self._command = ShellCommand()
        self._heredocs: list[tuple[ShellCommand, str, bool, bool]] = []
        self._open_parentheses = self._open_cases = 0
        self._splits_words = True

    def parse(self) -> None:
        words = self._words
        while (blank := words.match(_BLANKS)) and blank.end() < len(words.text):
            words.at = blank.end()
            if redirect := words.match(_REDIRECT):
                self._read_redirect(redirect)
            elif control := words.match(_CONTROL):
                self._read_operator(control[0])
            else:
                self._read_word()
        if self._open_parentheses or self._open_cases:
            raise Unparsable("unclosed parenthesis or `case`")
        self._end_command()
        words.at = len(words.text)
        self._read_heredocs()

    def _parse_substitution(self, text: str) -> str:
        inner = _Parser(text, self._known, self._depth + 1)
        inner.parse()
        self.commands += inner.commands
        last = inner.commands[-1].words if inner.commands else []
        # the only substitution with a predictable value
        return "/tmp/mktemp/new" if last and last[0].text == "mktemp" else UNKNOWN

    def _read_operator(self, operator: str) -> None:
        if operator == "(" and self._skip_parentheses():
            return
        self._words.at += len(operator)
        self._end_command(operator)
        if operator == "\n":
            self._read_heredocs()
        elif operator == "(":
            self._open_parentheses += 1
        elif operator == ")" and self._open_parentheses:
            self._open_parentheses -= 1
        elif operator == ")":
            raise Unparsable("unmatched closing parenthesis")
        elif operator in (";;", ";&", ";;&") and self._open_cases:
            self._skip_case_pattern()

    def _skip_case_pattern(self) -> None:
        """Skip the pattern of a `case`; only substitutions in it run anything."""
        if found := self._words.match(_PATTERN):
            self._words.at = found.end()
            self._words.read_inner(found[0], code=True)

    def _skip_parentheses(self) -> bool:
        """At an opening parenthesis: skip arithmetic, or `()` after a function name."""
        words, command = self._words, self._command
        if not command.words and is_arithmetic(words.text, words.at):
            end = find_closing(words.text, words.at)
            self._words.read_inner(words.text[words.at : end])
            words.at = end + 1
            return True
        if found := words.match(_NO_PARAMETERS):
            command.words.clear()
            words.at = found.end()
            return True
        if command.words:
            raise Unparsable("unexpected parenthesis")
        return False

    def _end_command(self, operator: str = "") -> None:
        done, self._command = self._command, ShellCommand()
        done.operator = operator
        if done.words or done.assignments or done.redirects:
            self.commands.append(done)
            self._track_variables(done)
        if operator in ("|", "|&"):
            self._command.upstream = done

    def _track_variables(self, done: ShellCommand) -> None:
        names = [word.text for word in done.words]
        given = done.assignments if not names else []
        if names and names[0] in _DECLARE_COMMANDS:
            pairs = [name.partition("=") for name in names[1:]]
            given = [(name.rstrip("+"), ShellWord(value)) for name, operator, value in pairs if operator]
        if names and names[0] in _ASSIGN_COMMANDS:
            given = [(name, ShellWord(UNKNOWN)) for name in names[1:]]
        if any(name == "IFS" for name, _ in given):  # from here on word splitting is not predictable
            self._known.update(dict.fromkeys(self._known, UNKNOWN))
            self._splits_words = False
        for name, word in given:
            unknown = self._known.get(name) == UNKNOWN or not self._splits_words
            self._known[name] = UNKNOWN if unknown else word.text

    def _read_word(self) -> None:
        """Read a keyword, an assignment or a word of the command."""
        words, command = self._words, self._command
        plain = words.match(PLAIN)
        literal = plain[0] if plain and words.text[plain.end() : plain.end() + 1] in ("", *BREAKS) else ""
        if literal in ("{", "}") and not command.words:
            words.at += 1
        elif not command.words and not command.assignments and self._skip_keyword(literal):
            return
        elif not command.words and (found := words.match(_ASSIGNMENT)):
            words.at = found.end()
            command.assignments.append((found[1], self._read_assignment()))
        else:
            start = words.at
            command.words += words.read_words()
            written = words.text[start : words.at]
            joined = written.replace("\\\n", "")
            if joined != written and (joined in _KEYWORDS or re.match(_ASSIGNMENT, joined)):
                raise Unparsable("a line is continued inside a name or keyword")

    def _skip_keyword(self, literal: str) -> bool:
        """Skip a keyword and what belongs to it; False if it is none."""
        words = self._words
        if literal == "[[":
            found = words.match(_CONDITION)
            if not found:
                raise Unparsable("unclosed `[[`")
            self._words.read_inner(found[1], code=True)
            words.at = found.end()
        elif literal == "case":
            self._open_cases += 1
            self._skip(2)  # `case` and its subject
            self._skip(1)  # `in`
            self._skip_case_pattern()
        elif literal == "esac":
            self._open_cases -= 1
            self._skip(1)
        elif literal == "function":
            self._skip(2)
        elif literal == "coproc":
            raise Unparsable("uses coproc")
        elif literal in _RESERVED:
            self._skip(1)
        else:
            return False
        return True

    def _skip(self, count: int) -> None:
        for _ in range(count):
            blank = self._words.match(_BLANKS)
            self._words.at = blank.end() if blank else self._words.at
            self._words.read_words()

    def _read_assignment(self) -> ShellWord:
        words = self._words
        if not words.text.startswith("(", words.at):
            return next(iter(words.read_words(split=False)), ShellWord(""))
        end = find_closing(words.text, words.at)
        self._words.read_inner(words.text[words.at + 1 : end], code=True)
        words.at = end + 1
        if words.text[words.at : end + 2] not in ("", *BREAKS):
            raise Unparsable("text directly after an array")
        return ShellWord(UNKNOWN)

    def _read_redirect(self, found: re.Match[str]) -> None:
        words = self._words
        blank = re.compile(_BLANKS).match(words.text, found.end())
        words.at = start = blank.end() if blank else found.end()
        target = next(iter(words.read_words(split=False)), None)
        if target is None:
            raise Unparsable("redirection without a target")
        if found[1] in ("<<", "<<-"):
            written = words.text[start : words.at]
            quoted = any(mark in written for mark in "'\"\\")
            self._heredocs.append((self._command, _heredoc_delimiter(written), quoted, found[1] == "<<-"))
        elif found[1] == "<<<":
            self._command.stdin = target
        else:
            self._command.redirects.append(Redirect(found[1], target))

    def _read_heredocs(self) -> None:
        words = self._words
        for command, delimiter, quoted, indented in self._heredocs:
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
                raise Unparsable("unclosed here-document")
            body = "\n".join(lines)
            command.stdin = ShellWord(body if quoted else self._words.read_inner(body))
        self._heredocs.clear()


def _heredoc_delimiter(written: str) -> str:
    """The line that ends a here-document: the word without quotes; it is not expanded."""
    if "$'" in written or '$"' in written:
        raise Unparsable("unclear here-document delimiter")
    return re.sub(r"(?s)\\(.)|'([^']*)'|\"([^\"]*)\"", lambda part: next(filter(None, part.groups()), ""), written)
