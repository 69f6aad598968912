"""Parses bash into the commands it would run.

A word that is only known at run time has `is_known` False; text that cannot be parsed reliably raises
`Unparsable`. Variables that the text itself sets are followed.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from alipes.agent.approval.shell.lexer import (
    BREAKS,
    DECODED,
    PLAIN,
    SOME_NAME,
    UNKNOWN,
    ShellWord,
    Unparsable,
    WordLexer,
    find_closing,
    is_arithmetic,
)
from alipes.agent.approval.shell.printed import is_decoder, print_path
from alipes.agent.approval.shell.variables import ShellVariables

MAX_DEPTH = 12
MAX_BLOCKS = 40
MAX_PARTS = 10_000
"""Words, operators and redirections in one text."""
MAX_CHARS = 100_000
_BLANKS = r"(?:[ \t\r]|\\\r?\n)*(?:#[^\n]*)?"
_REDIRECT = r"(?:\d+|\{\w+\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())"
_CONTROL = r";;&|;;|;&|&&|\|\||\|&|[;&|()\n]"
_ASSIGNMENT = r"([A-Za-z_]\w*)(?:\[[^]\s]*\])?\+?="
_NO_PARAMETERS = r"\([ \t]*\)"
_CONDITION = r"(?s)(.*?)(?<=\s)\]\](?=$|[\s;&|)])"
_PATTERN = r"(?!\s*esac\b)\s*\(?[^()]{0,500}\)"
_RESERVED = {"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "esac", "!"}
_KEYWORDS = _RESERVED | {"case", "esac", "function", "coproc", "[[", "{", "}"}
_CLOSING = {"fi": ("if",), "done": ("while", "while true", "until", "for", "select"), "esac": ("case",)}
"""By closing keyword: those that open the block."""
_BRANCHES = {"then", "else", "elif", "do"}
_PRINTERS = {"echo", "realpath", "readlink", "ls"}
_SECRET_PARTS = (
    r"(?:^|[\s/\"'])(?:\.(?:ssh|aws|gnupg|netrc|kube|alipes|env)|id_(?:rsa|dsa|ecdsa|ed25519))(?:$|[\s/\"'])"
)
"""Parts of paths to secrets, as elements of an array."""
MAX_ARRAY_CHARS = 10_000
_BROAD_NAMES = {"", "bash", "sh", "python", "python3", "sshd", "init", "systemd", "node"}
_NAME_PRINTERS = {
    "date",
    "whoami",
    "hostname",
    "uname",
    "nproc",
    "id",
    "uuidgen",
    "basename",
    "seq",
    "wc",
    "lsof",
    "fuser",
}
"""Commands that print a plain name or a number."""


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
    function: str = ""
    """The function that is defined here; it has no words."""
    in_function: bool = False
    """It is part of the body of a function."""
    in_endless_loop: bool = False


def parse_commands(text: str, known: Mapping[str, str], depth: int = 0) -> list[ShellCommand]:
    """The commands of `text` in order; those of a substitution come before the command that contains it.

    `known` are values of variables; one that the text sets more than once is unknown. Raises Unparsable.
    """
    if len(text) > MAX_CHARS:
        raise Unparsable("too long")
    if re.search(r"\r(?!\n)|\\\r", text):  # part of a word for bash, but invisible to a parser
        raise Unparsable("contains a carriage return")
    parser = _Parser(text, ShellVariables(text, known), depth)
    parser.parse()
    return parser.commands


def parse_substitutions(text: str, known: Mapping[str, str]) -> list[ShellCommand]:
    """The commands in the substitutions of a text that the shell may expand later, as in `PS4='$(x)'`."""
    parser = _Parser("", ShellVariables(text, known), 1)
    parser.expand(text)
    return parser.commands


class _Parser:
    """Parses one text; a substitution gets its own parser."""

    def __init__(self, text: str, variables: ShellVariables, depth: int, *, outer: "_Parser | None" = None) -> None:
        if depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        self.commands: list[ShellCommand] = []
        self._variables, self._depth = variables, depth
        self._words = WordLexer(text, variables, self._parse_substitution)
        self._command = ShellCommand()
        self._heredocs: list[tuple[ShellCommand, str, bool, bool]] = []
        self._blocks: list[str] = []
        """The opening word of each open block; `function` for a body."""
        self._starts_function = False
        self._is_inside_function = outer is not None and outer._is_in_function
        self._left: list[int] = outer._left if outer else [MAX_PARTS]
        """How many more commands and words may follow."""

    def parse(self) -> None:
        words = self._words
        while (blank := words.match(_BLANKS)) and blank.end() < len(words.text):
            words.at = blank.end()
            self._left[0] -= 1
            if self._left[0] < 0:
                raise Unparsable("too complex")
            if redirect := words.match(_REDIRECT):
                self._read_redirect(redirect)
            elif control := words.match(_CONTROL):
                self._read_operator(control[0])
            else:
                self._read_word()
        if self._blocks:
            raise Unparsable(f"unclosed `{self._blocks[-1]}`")
        self._end_command()
        words.at = len(words.text)
        self._read_heredocs()

    def expand(self, text: str) -> None:
        """Parse only the substitutions of `text`."""
        self._words.read_inner(text)

    def _parse_substitution(self, text: str) -> str:
        inner = _Parser(text, self._variables.copy(), self._depth + 1, outer=self)
        inner.parse()
        self.commands += inner.commands
        value = _substitution_value(inner.commands, self._variables)
        last = inner.commands[-1].words[:1] if inner.commands else []
        is_decoded = value == UNKNOWN and any(is_decoder(word.text) for word in last)
        return UNKNOWN + DECODED if is_decoded else value

    def _read_operator(self, operator: str) -> None:
        if operator == "(" and self._skip_parentheses():
            return
        self._words.at += len(operator)
        self._end_command(operator)
        if operator == "\n":
            self._read_heredocs()
        elif operator == "(":
            self._open_block("(")
        elif operator == ")":
            self._close_block("(")
        elif operator in (";;", ";&", ";;&") and self._blocks[-1:] == ["case"]:
            self._variables.next_branch()
            self._skip_case_pattern()

    @property
    def _is_in_function(self) -> bool:
        return self._is_inside_function or "function" in self._blocks

    def _open_block(self, word: str) -> None:
        if len(self._blocks) > MAX_BLOCKS:
            raise Unparsable("nested too deeply")
        self._blocks += ["function", word] if self._starts_function else [word]
        self._starts_function = False
        self._variables.open_block()

    def _close_block(self, *words: str) -> None:
        if not self._blocks or self._blocks.pop() not in words:
            raise Unparsable("unmatched closing parenthesis or keyword")
        if self._blocks[-1:] == ["function"]:
            self._blocks.pop()
        self._variables.close_block()

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
            self._define_function(command.words[-1].text if command.words else "")
            words.at = found.end()
            return True
        if [word.text for word in command.words] in (["time"], ["time", "-p"]):
            command.words.clear()
        if command.words:
            raise Unparsable("unexpected parenthesis")
        return False

    def _define_function(self, name: str) -> None:
        self._command = ShellCommand()
        self.commands.append(ShellCommand(function=name or UNKNOWN))
        self._starts_function = True

    def _end_command(self, operator: str = "") -> None:
        done, self._command = self._command, ShellCommand()
        done.operator, done.in_function = operator, self._is_in_function
        done.in_endless_loop = "while true" in self._blocks
        if done.words or done.assignments or done.redirects or done.stdin:
            self.commands.append(done)
        self._variables.end_command(done.words, done.assignments, operator)
        if operator in ("|", "|&"):
            self._command.upstream = done

    def _read_word(self) -> None:
        """Read a keyword, an assignment or a word of the command."""
        words, command = self._words, self._command
        plain = words.match(PLAIN)
        literal = plain[0] if plain and words.text[plain.end() : plain.end() + 1] in ("", *BREAKS) else ""
        if literal in ("{", "}") and not command.words and not command.assignments:
            words.at += 1
            if literal == "{":
                self._open_block("{")
            else:
                self._close_block("{")
        elif not command.words and not command.assignments and self._skip_keyword(literal):
            return
        elif not command.words and (found := words.match(_ASSIGNMENT)):
            words.at = found.end()
            command.assignments.append((found[1], self._read_assignment()))
        else:
            start = words.at
            if literal in ("for", "select") and not command.words:
                self._open_block(literal)
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
            self._open_block("case")
            self._skip(2)  # `case` and its subject
            self._skip(1)  # `in`
            self._skip_case_pattern()
        elif literal == "function":
            self._skip(1)
            found = re.compile(r"[ \t]*([^\s(){};&|<>]+)(?:[ \t]*\([ \t]*\))?").match(words.text, words.at)
            if not found:
                raise Unparsable("a function without a name")
            words.at = found.end()
            self._define_function(found[1])
        elif literal == "coproc":
            raise Unparsable("uses coproc")
        elif literal in _RESERVED:
            self._enter_keyword(literal)
            self._skip(1)
        else:
            return False
        return True

    def _enter_keyword(self, word: str) -> None:
        if word in ("if", "while", "until"):
            self._open_block(word)
        elif word in _BRANCHES:
            if word == "do" and self.commands and _is_endless(self._blocks[-1:], self.commands[-1]):
                self._blocks[-1] = "while true"
            if word in ("else", "elif"):
                self._variables.next_branch()
        elif word in _CLOSING:
            self._close_block(*_CLOSING[word])

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
        inner = words.text[words.at + 1 : end]
        self._words.read_inner(inner, code=True)
        words.at = end + 1
        if words.text[words.at : end + 2] not in ("", *BREAKS):
            raise Unparsable("text directly after an array")
        names_secret = re.search(_SECRET_PARTS, inner[:MAX_ARRAY_CHARS]) is not None
        return ShellWord(UNKNOWN + DECODED if names_secret else UNKNOWN)

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


def _is_endless(block: list[str], condition: ShellCommand) -> bool:
    words = [word.text for word in condition.words]
    return (block == ["while"] and words in (["true"], [":"])) or (block == ["until"] and words == ["false"])


def matches_own_name(pattern: str) -> bool:
    """True if a pattern for process names may match alipes, or very many processes."""
    bare = re.sub(r"[\^$.*?+\[\](){}\\|\s]", "", pattern).lower()
    return bare in _BROAD_NAMES or bare in "alipesserve" or "alipes" in bare or UNKNOWN in bare


def _substitution_value(commands: list[ShellCommand], variables: ShellVariables) -> str:
    """What a substitution prints, if that is certain."""
    command = commands[-1] if commands else ShellCommand()
    names = [word.text for word in command.words]
    if not names:
        return UNKNOWN
    if len(commands) == 1 and (path := print_path(names)):
        return path
    printed = [text for text in names[1:] if not text.startswith("-")]
    if names[0] == "mktemp" and not printed:
        return "/tmp/mktemp/new"
    if names[0] in _NAME_PRINTERS or (names[:2] == ["git", "rev-parse"] and "HEAD" in printed):
        return SOME_NAME
    if names[0] in ("pgrep", "pidof") and printed and not any(map(matches_own_name, printed)):
        return SOME_NAME
    if len(commands) > 1 or any(redirect.operator not in ("2>", "<") for redirect in command.redirects):
        return UNKNOWN
    if names[0] == "pwd":
        return variables.get("PWD")
    if names[0] in _PRINTERS and any("/" in text for text in printed) and not any("\\" in text for text in printed):
        return " ".join(printed)  # a path; other text may become a command
    return UNKNOWN
