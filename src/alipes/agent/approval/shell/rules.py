"""Decides which shell commands in a sandbox need approval: those that change what it does not contain.

That is work in the project, its repository and its trusted files, and what is published or deleted elsewhere. On a
machine without a sandbox the rules of `host` apply, which add to these.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Counts, Risk
from alipes.agent.approval.shell.carriers import (
    CARRIERS,
    RUNNERS,
    SHELL_CARRIERS,
    fill_placeholders,
    find_exec_commands,
    name_found,
    split_string,
)
from alipes.agent.approval.shell.code import check_written, find_code, language_of
from alipes.agent.approval.shell.git import check_git
from alipes.agent.approval.shell.lexer import SOME_NAME, UNKNOWN, ShellArguments, ShellWord, Unparsable
from alipes.agent.approval.shell.nested import nested_commands, nested_texts
from alipes.agent.approval.shell.parser import Redirect, ShellCommand, matches_own_name, parse_commands
from alipes.agent.approval.shell.printed import join_printed, unescape
from alipes.agent.approval.shell.programs import FILE_RULES, Rule
from alipes.agent.approval.shell.subcommands import SUBCOMMANDS
from alipes.agent.approval.shell.variables import TEXT_VARIABLES
from alipes.tools.common import Places

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"}
PATH_VARIABLES = {"HOME", "PWD", "OLDPWD", "CDPATH", "TMPDIR", "ALIPES_HOME"}
FD_PATHS = ("/dev/fd/", "/proc/self/fd/", "/dev/tcp/")
HIDDEN = Risk("hidden", "runs a command that is only known at run time", unseen=True)
TOO_COMPLEX = Risk("unclear", "cannot be parsed reliably: too complex", unseen=True)
_BUILTINS = {".", "source", "cd", "pushd", "popd", "eval", "alias", "trap", "hash", "enable"}
_MAX_DEPTH = 8
_MAX_GUESS_DEPTH = 3
"""Nesting beyond which only texts that are certainly run are checked."""
_SPOKEN_RULES = {"credential", "send", "network", "own"}
"""Rules for programs whose names are everyday words: not for texts that are only perhaps commands."""
_MAX_WORK = 12_000
"""Budget of words and characters before a text counts as too complex."""


def judge(command: str, places: Places, workdir: str, start: str = "", *, counts: Counts | None = None) -> Risk | None:
    """The risk of running `command` in a sandbox; None if it needs no approval.

    `workdir` is the project directory, where more is allowed; `start` is where it runs, if elsewhere.
    """
    return CommandChecker(PathChecker(places, workdir, start), counts or any_risk).check(command)


def judge_code(code: str, places: Places, workdir: str, *, counts: Counts | None = None) -> Risk | None:
    """The risk of running Python code in a sandbox."""
    risk = check_written(ShellWord(code), PathChecker(places, workdir))
    return risk if risk and (counts or any_risk)(risk) else None


def any_risk(risk: Risk) -> bool:
    return True


class CommandChecker:
    """Checks the commands of a text in order, and the commands inside them."""

    rules: Mapping[str, Rule] = FILE_RULES
    subcommands: Mapping[str, Sequence[tuple[str, Risk]]] = SUBCOMMANDS

    def __init__(self, paths: PathChecker, counts: Counts) -> None:
        self._paths, self.counts = paths, counts
        self._depth = 0
        self._work = 0
        self._functions: set[str] = set()
        self._functions_move = False
        self._is_trial = False
        """The word may be an argument of a program that runs others, rather than a command."""

    def check(self, text: str) -> Risk | None:
        risk = self.check_text(text) or (TOO_COMPLEX if self.is_exhausted else None)
        return risk if risk and self.counts(risk) else None

    @property
    def is_exhausted(self) -> bool:
        return self._work > _MAX_WORK

    def _first(self, risks: Iterable[Risk | None]) -> Risk | None:
        found = (each for risk in risks if risk for each in (risk, *risk.also))
        return next((risk for risk in found if self.counts(risk)), None)

    def check_text(self, text: str) -> Risk | None:
        if self._depth > _MAX_DEPTH or UNKNOWN in text:
            return HIDDEN
        if self.is_exhausted:
            return TOO_COMPLEX
        self._work += len(text) // 8 if self._depth else 0
        self._depth += 1
        try:
            return self._first(map(self._check_step, parse_commands(text, self._paths.known_variables())))
        except Unparsable as why:
            return Risk("unclear", f"cannot be parsed reliably: {why}", unseen=True)
        finally:
            self._depth -= 1

    def _check_step(self, command: ShellCommand) -> Risk | None:
        if command.function:
            self._functions.add(command.function)
            if command.function in ("cd", "pushd", "popd", "builtin", "command", UNKNOWN):
                self._paths.directories.is_predictable = False
            return None
        time.sleep(0)  # lets the event loop take the interpreter lock
        risk = self._check_command(command)
        self._paths.directories.end_command(command.operator)
        return risk

    def _check_command(self, command: ShellCommand) -> Risk | None:
        risk = self._first(self._check_around(command))
        return risk or (self._check_words(command.words, command) if command.words else None)

    def _check_around(self, command: ShellCommand) -> Iterable[Risk | None]:
        """Risks of what a command is given besides its words."""
        for redirect in command.redirects:
            yield from self._check_redirect(redirect, command)
        yield from (self._check_assignment(name, value) for name, value in command.assignments)

    def _check_redirect(self, redirect: Redirect, command: ShellCommand) -> Iterable[Risk | None]:
        if ">" in redirect.operator:
            yield self._paths.check_write(redirect.target)

    def _check_assignment(self, name: str, value: ShellWord) -> Risk | None:
        """A variable that holds a command; what others do in the sandbox is contained."""
        if name in PATH_VARIABLES:
            self._paths.forget_variable(name)
        return self.check_text(value.text) if re.match(TEXT_VARIABLES, name) else None

    def _check_words(self, words: Sequence[ShellWord], command: ShellCommand) -> Risk | None:
        self._work += len(words) + 4
        if self.is_exhausted:
            return TOO_COMPLEX
        first, args = words[0], ShellArguments(words[1:])
        if is_unknown_command(first):
            return HIDDEN
        name = os.path.basename(first.text)
        if name.startswith("mkfs."):
            name = "mkfs"
        if name in ("cd", "pushd", "popd"):
            self._change_directory(name, args, command)
            return None
        if name == "shopt" and any(word.text in ("cdable_vars", "autocd") for word in args.operands):
            self._paths.directories.is_predictable = False
        if name in self._functions and self._functions_move:
            self._paths.directories.lose()
        return self._first(self._check_program(name, words, args, command))

    def _check_program(
        self, name: str, words: Sequence[ShellWord], args: ShellArguments, command: ShellCommand
    ) -> Iterable[Risk | None]:
        yield from self._check_arguments(name, args)
        yield self.check_text(line) if (line := split_string(name, args)) else None
        yield self._check_carried(name, args, command)
        yield self._check_fed(name, args, command)
        yield self._check_nested(name, words[1:], command)

    def _check_arguments(self, name: str, args: ShellArguments) -> Iterable[Risk | None]:
        """What the program itself does."""
        yield from self._check_subcommand(name, args)
        yield check_git(args, self._paths) if name == "git" else None
        yield self.rules[name](args, self._paths) if name in self.rules else None

    def _check_subcommand(self, name: str, args: ShellArguments) -> Iterable[Risk | None]:
        whole = " ".join(word.text for word in args.words)
        operands = " ".join(word.text for word in args.operands) if name != "crontab" else whole
        for pattern, risk in self.subcommands.get(name, ()):
            if operands.startswith(UNKNOWN):
                yield HIDDEN
            elif re.match(pattern, operands[:4000]) or re.match(pattern, whole[:4000]):
                yield risk

    def _change_directory(self, name: str, args: ShellArguments, command: ShellCommand) -> None:
        back = name == "popd" or any(word.text == "-" for word in args.operands) or len(args.operands) > 1
        target = ShellWord(UNKNOWN) if back else next(iter(args.operands), None)
        self._paths.directories.change(target)
        self._functions_move |= command.in_function

    def _check_carried(self, name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
        """Check the command that a program such as `env` or `xargs` runs."""
        if name == "find":
            return self._first(
                self._check_words(inner, command) for inner in find_exec_commands(args.words, self._paths)
            )
        if name in RUNNERS and args.operands[:1] == [ShellWord("run")]:
            rest = [word for word in args.words[args.words.index(ShellWord("run")) + 1 :]]
            started = next((at for at, word in enumerate(rest) if not word.text.startswith("-")), len(rest))
            return self._check_inner(rest[started:], command) if rest[started:] else None
        if name not in CARRIERS or (name == "command" and args.has("vV")):
            return None
        added = self._find_input_words(command) if name in ("xargs", "parallel") else []
        if added:
            value, has_mark = added[0] if len(added) == 1 else ShellWord(UNKNOWN), args.has("I", "replace")
            args = ShellArguments(fill_placeholders(args.words, value))
            added = [] if has_mark else added
        if name == "env" and (folder := args.values("C", "chdir")):
            self._paths.directories.change(folder[0])
        plain = [at for at, word in enumerate(args.words) if not word.text.startswith("-") and "=" not in word.text]
        if any(is_unknown_command(args.words[at]) for at in plain[: CARRIERS[name] + 1]):
            return HIDDEN
        with self._paths.directories.restored(keep=name in SHELL_CARRIERS), self._trials():
            for at in plain:  # which word is the command depends on the options of the program: try each
                inner = args.words[at:]
                if inner[0].text in _BUILTINS and name not in SHELL_CARRIERS:
                    continue
                spoken = self.check_text(inner[0].text) if " " in inner[0].text.strip() else None
                if risk := self._first((spoken, self._check_inner([*inner, *added], command))):
                    return risk
                self._is_trial = True
        return self._first(self._read_assignment(word) for word in args.words if "=" in word.text)

    @contextmanager
    def _trials(self) -> Iterator[None]:
        before = self._is_trial
        yield
        self._is_trial = before

    def _find_input_words(self, command: ShellCommand) -> list[ShellWord]:
        """What `xargs` gets: words that are known, plain names of the project, or `UNKNOWN`."""
        if any(word.text in SHELLS or language_of(word.text) for word in command.words):
            return [ShellWord(UNKNOWN)]
        stdin = self._find_stdin(command)
        if stdin is not None and stdin.is_known:
            return [ShellWord(text) for text in stdin.text.split()[:100]] or [ShellWord(UNKNOWN)]
        words = list(command.upstream.words) if command.upstream else [ShellWord("")]
        name, args = words[0].text, ShellArguments(words[1:])
        if name in ("ls", "printf", "realpath", "readlink") and args.operands:
            return [word for word in args.operands if "%" not in word.text]
        if name == "find":
            return [name_found(args.words, self._paths)]
        named = (
            name in ("lsof", "fuser")
            or (name in ("pgrep", "pidof") and not any(matches_own_name(word.text) for word in args.operands))
            or (name == "git" and args.operands[:1] in ([ShellWord("ls-files")], [ShellWord("diff")]))
        )
        return [ShellWord(SOME_NAME if named else UNKNOWN)]

    def _check_inner(self, words: list[ShellWord], command: ShellCommand) -> Risk | None:
        return None if not words[0].is_known or words[0].has_glob else self._check_words(words, command)

    def _read_assignment(self, word: ShellWord) -> Risk | None:
        name, _, value = word.text.partition("=")
        return self._check_assignment(name, ShellWord(value)) if name.isidentifier() else None

    def _check_fed(self, name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
        """Check the code or commands given to a shell or interpreter."""
        if name in SHELLS:
            return self._check_shell(args, command)
        if name == "eval":
            return self.check_text(" ".join(word.text for word in args.words))
        if name == "trap":
            return self.check_text(args.operands[0].text) if args.operands else None
        if not (base := language_of(name)):
            return None
        given = find_code(base, args, self._find_stdin(command))
        return self._first(check_written(code, self._paths) for code in given)

    def _check_shell(self, args: ShellArguments, command: ShellCommand) -> Risk | None:
        if args.has("c"):
            return self._first(self.check_text(script.text) for script in (*args.values("c"), *args.operands[:1]))
        if not args.operands or args.has("s") or args.operands[0].text in ("-", "/dev/stdin", "/proc/self/fd/0"):
            stdin = self._find_stdin(command)
            return self.check_text(stdin.text) if stdin is not None else None
        if not args.operands[0].is_known or args.operands[0].text.startswith(FD_PATHS):
            return HIDDEN
        return self._first(self._check_file(word, "sh") for word in args.operands[:3])  # after `+x`, `-o pipefail`

    def _check_nested(self, name: str, words: Sequence[ShellWord], command: ShellCommand) -> Risk | None:
        """Check for clearly dangerous commands in the arguments of any program."""
        if self._depth > _MAX_GUESS_DEPTH or name in SHELLS or name in ("sed", "gsed") or language_of(name):
            return None
        stdin = self._find_stdin(command) if name in ("make", "ed", "m4", "expect", "sqlite3") else command.stdin
        with self._paths.directories.restored():
            others = [self.check_text(text) for text in nested_texts(name, words, stdin)]
            runs = any(word.text in ("run", "exec", "x", "dlx") for word in words[:2])
            if runs or not (name in self.rules or name in self.subcommands or name == "git"):
                others += [self._check_inner(inner, command) for inner in nested_commands(name, words)]
        risk = self._first(risk for risk in others if risk and not risk.unseen and risk.rule not in _SPOKEN_RULES)
        return risk and Risk(risk.rule, risk.reason, risk.scope)  # a guess is asked about, never forbidden

    def _check_file(self, word: ShellWord | None, kind: str) -> Risk | None:
        """A file that is run; what it holds is contained."""
        return None

    def _read_file(self, word: ShellWord) -> str:
        """What a redirection reads, if it can be seen."""
        return ""

    def _find_stdin(self, command: ShellCommand) -> ShellWord | None:
        """Input of the command in this text; `UNKNOWN` if it cannot be seen, None if there is none."""
        if command.stdin is not None:
            return command.stdin
        for redirect in command.redirects:
            if redirect.operator == "<" and not redirect.target.is_known:
                return ShellWord(UNKNOWN)
            if redirect.operator == "<" and (content := self._read_file(redirect.target)):
                return ShellWord(content)
        source = command.upstream
        if source is None:
            return None
        name = source.words[0].text if source.words else ""
        plain = unescape(join_printed(source.words[1:]))
        if name in ("echo", "printf") and "%" not in plain and "\\" not in plain:
            return ShellWord(plain)
        if name in ("cat", "tee") and len(source.words) == 1 and not source.redirects:
            return self._find_stdin(source)
        return ShellWord(UNKNOWN)


def is_unknown_command(word: ShellWord) -> bool:
    """True if the command name is only known at run time."""
    return not word.is_known or SOME_NAME in word.text or (word.has_glob and word.text != "[")
