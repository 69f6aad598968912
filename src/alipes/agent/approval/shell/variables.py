"""Values of the variables of a shell text.

A value counts as known only if the text gives it once, in the shell itself and unconditionally. What is given
in a branch, a loop, a subshell, a pipe or after `||` is known until that ends, and unknown afterwards.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from alipes.agent.approval.shell.lexer import DECODED, SOME_NAME, UNKNOWN, ShellWord, split_pieces

_GIVEN = r"(?<![\w$])([A-Za-z_]\w*)(?:\[[^]\s]{0,200}\])?\+?=|\$\{([A-Za-z_]\w*):?="
_NAMING_COMMANDS = (
    r"\b(?:read|mapfile|readarray|getopts|unset|let|printf\s+-v|declare|typeset|local|export|readonly|wait\s+-p)"
    r"\s([^;&|\n]{1,400})"
)
_ALIAS = r"\b(?:declare|typeset|local)\s+-\w*n"
_MOVES = r"\b(?:cd|pushd|popd|eval|source|CDPATH)\b|(?:^|[\s;&|(])\.\s"
_LOCAL = r"(?![-.~/])(?!.*(?:^|/)\.)[^\0]+"
"""A relative path without hidden parts or `..`."""
_PLAIN_VALUES = ("$", "?", "#", "!", "RANDOM", "SECONDS", "UID", "EUID", "USER", "LOGNAME", "HOSTNAME", "LINENO")
DECLARE_COMMANDS = {"export", "declare", "typeset", "readonly", "local"}
_READ_COMMANDS = {"read", "mapfile", "readarray", "getopts", "printf", "unset", "let", "wait"}
_KEPT = ("HOME", "ALIPES_HOME", "TMPDIR")
# Variables by what they do to other programs: hold a command, load or run something, load something by an option.
TEXT_VARIABLES = (
    r"\w{0,40}(?:PAGER|EDITOR|ASKPASS)$|VISUAL$|SHELL$|CONFIG_SHELL$|RSYNC_RSH$|CVS_RSH$|TAR_COMPRESS\w*$|BROWSER$|LESSOPEN$|LESSCLOSE$|PROMPT_COMMAND$"
    r"|GIT_\w{0,40}(?:COMMAND|DIFF|SSH)$|\w{0,40}_WRAPPER$"
)
TRUSTED_VARIABLES = (
    r"LD_\w+$|DYLD_\w+$|BASH_ENV$|ENV$|BASH_FUNC_|SHELLOPTS$|BASHOPTS$|BASH_LOADABLES_PATH$|PYTHON(?:STARTUP|HOME|USERBASE)$"
    r"|PYTHON(?:BREAKPOINT|INSPECT|WARNINGS)$|PERL5(?:OPT|DB|LIB)$|PERLLIB$|RUBY(?:OPT|LIB)$|LUA_INIT|GIT_CONFIG\w*$"
    r"|GIT_(?:TEMPLATE_DIR|EXEC_PATH|PROXY_COMMAND|WORK_TREE)$|MAKEFILES$|(?:VIM|EX)INIT$|PHPRC$|PHP_INI_SCAN_DIR$|GCONV_PATH$|OPENSSL_CONF$"
    r"|R_PROFILE\w*$|DOTNET_STARTUP_HOOKS$|CLASSPATH$|NODE_PATH$|KUBECONFIG$|(?:NPM|PIP)_CONFIG_\w+$|SSLKEYLOGFILE$|ZDOTDIR$"
    r"|npm_config_(?:script.shell|shell|node.options|globalconfig|userconfig|git|editor|viewer|init.module)$|RSYNC_CONNECT_PROG$"
)
LOADING_VARIABLES = r"NODE_OPTIONS$|JAVA_TOOL_OPTIONS$|_JAVA_OPTIONS$|MAKEFLAGS$|GREP_OPTIONS$"
LOADING_OPTIONS = r"-r\b|--require|--import|--loader|--experimental-loader|-javaagent|-agentlib|--eval|-f\b|SHELL="
_OPAQUE_COMMANDS = {"eval", "source", "."}
"""Commands after which every variable may have another value."""


class ShellVariables:
    """Follows assignments in the order of the text; gives `UNKNOWN` when a value is not certain."""

    def __init__(self, text: str, known: Mapping[str, str]) -> None:
        self._values = {"IFS": " \t\n", **dict.fromkeys(_PLAIN_VALUES, SOME_NAME), **known}
        counts = _count_assignments(text)
        self._unstable = {name for name, times in counts.items() if times > 1 or name in self._values}
        self._all_unstable = any(map(re.compile(_ALIAS).search, split_pieces(text)))
        if any(map(re.compile(_MOVES).search, split_pieces(text))):
            self._unstable |= {"PWD", "OLDPWD"}
        self._blocks: list[set[str]] = [set()]
        self._list: set[str] = set()
        self._uncertain: set[str] = set()
        self._in_list = False

    def get(self, name: str, default: str = UNKNOWN, /) -> str:
        if name in self._unstable or self._all_unstable:
            return UNKNOWN + DECODED if DECODED in self._values.get(name, "") else UNKNOWN
        return self._values.get(name, default)

    def copy(self) -> "ShellVariables":
        """For a substitution, whose assignments do not last."""
        other = object.__new__(ShellVariables)
        other.__dict__.update(self.__dict__)
        other._values, other._unstable = dict(self._values), set(self._unstable)
        other._blocks, other._list, other._uncertain, other._in_list = [set()], set(), set(), False
        return other

    def open_block(self) -> None:
        self._blocks.append(set())

    def next_branch(self) -> None:
        """`else`, `elif`, `;;`: what the last branch assigned is not certain."""
        self._forget(self._blocks[-1])

    def close_block(self) -> None:
        closed = self._blocks.pop() if len(self._blocks) > 1 else self._blocks[-1]
        self._forget(closed)
        self._blocks[-1] |= closed

    def end_command(self, words: Sequence[ShellWord], given: Sequence[tuple[str, ShellWord]], operator: str) -> None:
        """Follow the assignments of a command, and the operator after it."""
        names = self._assign(words, given)
        self._list |= names
        self._uncertain |= names if self._in_list else set()
        self._blocks[-1] |= names
        if operator in ("|", "|&", "&"):
            self._forget(self._list)
        elif operator != "&&":
            self._forget(self._uncertain)
        self._in_list = operator in ("&&", "||", "|", "|&")
        if not self._in_list:
            self._list, self._uncertain = set(), set()

    def _assign(self, words: Sequence[ShellWord], given: Sequence[tuple[str, ShellWord]]) -> set[str]:
        """Follow the assignments of a command. Returns the names that got a value."""
        names = [word.text for word in words]
        while names and names[0] in ("builtin", "command"):
            del names[0]
        first = names[0] if names else ""
        if first in _OPAQUE_COMMANDS or UNKNOWN in first:
            self._forget_all()
        given = given if not words else _named_values(names, words)  # `x=1 command` lasts only for the command
        if any(UNKNOWN in name for name, _ in given):
            self._forget_all()
        if any(name == "IFS" for name, _ in given):
            self._all_unstable = True  # word splitting is not predictable from here on
        for name, word in given:
            self._values[name] = UNKNOWN if name in self._unstable else word.text
        return {name for name, _ in given}

    def _forget(self, names: set[str]) -> None:
        self._values.update(dict.fromkeys(names, UNKNOWN))

    def _forget_all(self) -> None:
        self._values |= {name: UNKNOWN for name in self._values if name not in _KEPT}


def _named_values(names: Sequence[str], words: Sequence[ShellWord]) -> list[tuple[str, ShellWord]]:
    """What a command such as `export`, `read` or `for` assigns."""
    first = names[0] if names else ""
    if first in DECLARE_COMMANDS:
        pairs = [name.partition("=") for name in names[1:] if not name.startswith("-")]
        return [
            (name.rstrip("+"), ShellWord(UNKNOWN if name.endswith("+") else value))
            for name, sign, value in pairs
            if sign
        ]
    if first in _READ_COMMANDS and (first != "printf" or "-v" in names):
        return [
            (name.partition("=")[0].partition("[")[0], ShellWord(UNKNOWN))
            for name in names[1 : 3 if first == "printf" else None]
        ]
    if first in ("for", "select") and len(names) > 1:
        return [(names[1], _loop_value(words))]
    return []


def _count_assignments(text: str) -> Counter[str]:
    """How often each name is given a value, as far as it can be seen without parsing; loops count only besides."""
    found, loops = Counter[str](), set[str]()
    for piece in split_pieces(text):
        found.update(name or other for name, other in re.findall(_GIVEN, piece))
        for names in re.findall(_NAMING_COMMANDS, piece):
            found.update(re.findall(r"(?<![\w$=-])([A-Za-z_]\w*)(?![\w=\[])", names))
        loops.update(re.findall(r"\b(?:for|select)\s+([A-Za-z_]\w*)", piece))
    found.update(name for name in loops if name in found)
    return found


def _loop_value(words: Sequence[ShellWord]) -> ShellWord:
    """The value of the variable of `for x in ...`."""
    if len(words) < 4 or words[2].text != "in":
        return ShellWord(UNKNOWN)
    items = words[3:]
    if len(items) == 1 and items[0].is_known and not items[0].has_glob:
        return items[0]
    return ShellWord(SOME_NAME if all(re.fullmatch(_LOCAL, item.text, re.S) for item in items) else UNKNOWN)
