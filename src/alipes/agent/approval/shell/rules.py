"""Decides which shell commands need approval. It is not a sandbox.

One function, `judge`, for every mode and front end. It looks through programs that run other commands;
a command that is only known at run time needs approval.
"""

import os
import re
from collections.abc import Sequence

from alipes.agent.approval.paths import PathChecker, Risk
from alipes.agent.approval.shell.embedded import check_code, find_code, language_of, nested_commands, nested_texts
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord, Unparsable
from alipes.agent.approval.shell.parser import ShellCommand, parse_commands
from alipes.agent.approval.shell.programs import ALWAYS_ASK, CHECK_OPTIONS, RULES, SUBCOMMANDS, first_risk, for_each
from alipes.tools.common import Places

_MAX_DEPTH = 8
_MAX_GUESS_DEPTH = 3
"""Nesting beyond which only texts that are certainly run are checked."""
_SHELL_NAMES = {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"}
_CARRIERS = {
    **for_each("env nohup setsid time nice ionice stdbuf command builtin exec xargs parallel watch strace ltrace", 0),
    **for_each("busybox toybox unshare unbuffer caffeinate systemd-run dbus-run-session firejail bwrap nsenter gdb", 0),
    **for_each("prlimit choom setpriv numactl chronic rlwrap valgrind proot fakeroot eatmydata xvfb-run", 0),
    **for_each("! dbus-launch linux32 linux64 i386 x86_64 npx bunx uvx pipx", 0),
    **for_each("timeout flock chroot taskset chrt ssh faketime script entr setarch", 1),
}
"""Programs that run another one, and the number of operands before it."""
_TEXT_VARIABLES = (
    r"\w*(?:PAGER|EDITOR|ASKPASS)$|VISUAL$|BROWSER$|LESSOPEN$|PROMPT_COMMAND$|GIT_\w*(?:COMMAND|DIFF|SSH)$"
)
_TRUSTED_VARIABLES = r"LD_(?:PRELOAD|LIBRARY_PATH|AUDIT)$|BASH_ENV$|ENV$|PYTHONSTARTUP$|PERL5OPT$|NODE_OPTIONS$"
_TEXT_OPTION = r"(?is)[\w.=-]*(?:exec|command|cmd|pager|filter|helper)=(.+)"
_FUNCTION = r"(?<![\w:.])([\w:.]{1,40})\(\)[{(]"
_FD_PATHS = ("/dev/fd/", "/proc/self/fd/", "/dev/tcp/")
_BANG_PROGRAMS = {"git", "vi", "vim", "nvim", "ex", "ed", "view", "man", "less", "more", "mutt"}
"""Programs in which `!` runs a shell command."""
_MAX_WORK = 12_000
"""Budget of words and characters before a text counts as too complex."""
_TOO_COMPLEX = Risk("unclear", "cannot be parsed reliably: too complex")
_HIDDEN = Risk("hidden", "runs a command that is only known at run time")


def judge(command: str, places: Places, workdir: str, start: str = "") -> Risk | None:
    """The risk of running `command`; None if it needs no approval.

    `workdir` is the project directory, where more is allowed; `start` is where it runs, if elsewhere.
    """
    checker = _Judge(PathChecker(places, workdir, start))
    return checker.check_text(command) or (_TOO_COMPLEX if checker.is_exhausted else None)


class _Judge:
    """Checks the commands of a text in order, and the commands inside them."""

    def __init__(self, paths: PathChecker) -> None:
        self._paths = paths
        self._depth = 0
        self._expands_aliases = False
        self._work = 0

    @property
    def is_exhausted(self) -> bool:
        return self._work > _MAX_WORK

    def check_text(self, text: str) -> Risk | None:
        if self._depth > _MAX_DEPTH or UNKNOWN in text:
            return _HIDDEN
        if self.is_exhausted:
            return _TOO_COMPLEX
        bare = re.sub(r"\s", "", text)
        if any(f"{name}|{name}" in bare for name in re.findall(_FUNCTION, bare)):  # it pipes itself into itself
            return Risk("bomb", "is a fork bomb (starts copies of itself endlessly)")
        self._expands_aliases |= "expand_aliases" in text
        self._work += len(text) // 8 if self._depth else 0
        self._depth += 1
        try:
            return first_risk(map(self._check_step, parse_commands(text, self._paths.known_variables())))
        except Unparsable as why:
            return Risk("unclear", f"cannot be parsed reliably: {why}")
        finally:
            self._depth -= 1

    def _check_step(self, command: ShellCommand) -> Risk | None:
        risk = self._check_command(command)
        self._paths.end_command(command.operator)
        return risk

    def _check_command(self, command: ShellCommand) -> Risk | None:
        for redirect in command.redirects:
            risk = self._paths.check_write(redirect.target) if ">" in redirect.operator else None
            if risk := risk or self._paths.check_read("<", redirect.target):
                return risk
        for name, value in command.assignments:
            if re.match(_TRUSTED_VARIABLES, name):
                return Risk("hidden", f"sets {name}, which changes what other programs load or run")
            if re.match(_TEXT_VARIABLES, name) and (risk := self.check_text(value.text)):
                return risk
        return self._check_words(command.words, command) if command.words else None

    def _check_words(self, words: Sequence[ShellWord], command: ShellCommand) -> Risk | None:
        self._work += len(words)
        if self.is_exhausted:
            return _TOO_COMPLEX
        first, args = words[0], ShellArguments(words[1:])
        if _is_unknown_command(first):
            return _HIDDEN
        name = os.path.basename(first.text)
        if name.startswith("mkfs."):
            name = "mkfs"
        if name in ("cd", "pushd", "popd"):
            back = name == "popd" or any(word.text == "-" for word in args.operands)
            self._paths.change_directory(ShellWord(UNKNOWN) if back else next(iter(args.operands), None))
            return None
        return (
            ALWAYS_ASK.get(name)
            or self._paths.check_cwd(name)
            or _check_subcommand(name, args)
            or (RULES[name](args, self._paths) if name in RULES else None)
            or self._check_carried(name, args, command)
            or self._check_fed(name, args, command)
            or first_risk(self._paths.check_read(name, word) for word in words[1:])
            or self._check_text_options(name, args)
            or self._check_nested(name, words[1:], command)
        )

    def _check_carried(self, name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
        """Check the command that a program such as `env` or `xargs` runs."""
        if name == "find":
            return first_risk(self._check_words(inner, command) for inner in _find_exec_commands(args.words))
        if name not in _CARRIERS or (name == "command" and args.has("vV")):
            return None
        unknown = [ShellWord(UNKNOWN)] if name in ("xargs", "parallel") else []
        if unknown:
            args = ShellArguments(_fill_placeholders(args.words))
        if name == "env" and (folder := args.values("C", "chdir")):
            self._paths.change_directory(folder[0])
        plain = [at for at, word in enumerate(args.words) if not word.text.startswith("-") and "=" not in word.text]
        if any(_is_unknown_command(args.words[at]) for at in plain[: _CARRIERS[name] + 1]):
            return _HIDDEN
        for at in plain:  # which word is the command depends on the options of the program: try each
            inner = args.words[at:]
            spoken = self.check_text(inner[0].text) if " " in inner[0].text.strip() else None
            if risk := spoken or self._check_inner([*inner, *unknown], command):
                return risk
        return first_risk(self._read_assignment(word) for word in args.words if "=" in word.text)

    def _check_inner(self, words: list[ShellWord], command: ShellCommand) -> Risk | None:
        return None if not words[0].is_known or words[0].has_glob else self._check_words(words, command)

    def _read_assignment(self, word: ShellWord) -> Risk | None:
        name, _, value = word.text.partition("=")
        return (
            self._check_command(ShellCommand(assignments=[(name, ShellWord(value))])) if name.isidentifier() else None
        )

    def _check_fed(self, name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
        """Check the code or commands given to a shell or interpreter."""
        if name in _SHELL_NAMES:
            return self._check_shell(args, command)
        if name in ("eval", "trap", "alias", "source", "."):
            return self._check_builtin(name, args, command)
        base = language_of(name)
        modules = [at + 1 for at, word in enumerate(args.words[:-1]) if word.text == "-m"]
        if base == "python" and modules:
            return self._check_inner(args.words[modules[0] :], command)
        stdin = self._find_stdin(command)
        return first_risk(check_code(word, self._paths) for word in find_code(base, args, stdin)) if base else None

    def _check_shell(self, args: ShellArguments, command: ShellCommand) -> Risk | None:
        if args.has("c"):
            return first_risk(self.check_text(script.text) for script in (*args.values("c"), *args.operands[:1]))
        if not args.operands or args.has("s") or args.operands[0].text in ("-", "/dev/stdin", "/proc/self/fd/0"):
            stdin = self._find_stdin(command)
            return self.check_text(stdin.text) if stdin is not None else None
        return None if args.operands[0].is_known and not args.operands[0].text.startswith(_FD_PATHS) else _HIDDEN

    def _check_builtin(self, name: str, args: ShellArguments, command: ShellCommand) -> Risk | None:
        if name == "eval":
            return self.check_text(" ".join(word.text for word in args.words))
        if name == "trap":
            return self.check_text(args.operands[0].text) if args.operands else None
        if name == "alias" and self._expands_aliases:
            return _HIDDEN
        if name == "alias":
            return first_risk(self.check_text(word.text.partition("=")[2]) for word in args.words if "=" in word.text)
        stdin = args.operands[0] if args.operands else ShellWord("")
        if stdin.text == "/dev/stdin":
            return self.check_text((self._find_stdin(command) or ShellWord("")).text)
        return None if stdin.is_known and not stdin.text.startswith(_FD_PATHS) else _HIDDEN

    def _find_stdin(self, command: ShellCommand) -> ShellWord | None:
        """Input of the command in this text; `UNKNOWN` if it cannot be seen, None if there is none."""
        if command.stdin is not None:
            return command.stdin
        if any(redirect.operator == "<" and not redirect.target.is_known for redirect in command.redirects):
            return ShellWord(UNKNOWN)
        source = command.upstream
        if source is None:
            return None
        name, printed = source.words[0].text if source.words else "", [word.text for word in source.words[1:]]
        while printed and re.fullmatch(r"-[neE]+", printed[0]):
            del printed[0]
        plain = " ".join(printed).replace("\\n", "\n")
        if name in ("echo", "printf") and "%" not in plain and "\\" not in plain:
            return ShellWord(plain)
        if name in ("cat", "tee") and len(source.words) == 1 and not source.redirects:
            return self._find_stdin(source)
        return ShellWord(UNKNOWN)

    def _check_nested(self, name: str, words: Sequence[ShellWord], command: ShellCommand) -> Risk | None:
        """Check for clearly dangerous commands in the arguments of any program."""
        if self._depth > _MAX_GUESS_DEPTH or name in _SHELL_NAMES or language_of(name):
            return None
        others = [self.check_text(text) for text in nested_texts(name, words, command.stdin)]
        runs = any(word.text in ("run", "exec", "x", "dlx") for word in words[:2])
        if runs or not (name in RULES or name in SUBCOMMANDS):
            others += [self._check_inner(inner, command) for inner in nested_commands(name, words)]
        return first_risk(risk for risk in others if risk is not None and risk.rule not in ("hidden", "unclear"))

    def _check_text_options(self, name: str, args: ShellArguments) -> Risk | None:
        """Check arguments that are commands: `--checkpoint-action=exec=x`, `git -c alias.y='!x'`."""
        for at, word in enumerate(args.words):
            found = re.fullmatch(_TEXT_OPTION, word.text)
            text = found[1] if found else ""
            if name in _BANG_PROGRAMS and (shell := re.search(r"(?s)(?:^:?|=)!(.+)", word.text)):
                text = shell[1]
            if name == "git" and word.text in ("--exec", "-x", "foreach", "run", "--tree-filter", "--upload-pack"):
                text = " ".join(each.text for each in args.words[at + 1 :])
            if text and (risk := self.check_text(text)):
                return risk
            alias = re.fullmatch(r"(?s)alias\.[^=]+=([^!].*)", word.text) if name == "git" else None
            if alias and (risk := self.check_text(f"git {alias[1]}")):
                return risk
        return None


def _fill_placeholders(words: Sequence[ShellWord]) -> list[ShellWord]:
    """The words of `xargs` with `UNKNOWN` for its placeholders."""
    marks, found = {"{}"}, list[ShellWord]()
    for before, word in zip([ShellWord(""), *words], words, strict=False):
        if before.text == "-I":
            marks.add(word.text)
        else:
            marks |= {word.text[2:]} if re.match(r"-I.", word.text) else set()
            found.append(word)
    holed = re.compile("|".join(map(re.escape, marks)))
    return [ShellWord(holed.sub(UNKNOWN, word.text), word.has_glob) for word in found]


def _is_unknown_command(word: ShellWord) -> bool:
    """True if the command name is only known at run time."""
    return not word.is_known or (word.has_glob and word.text != "[")


def _check_subcommand(name: str, args: ShellArguments) -> Risk | None:
    if name not in SUBCOMMANDS:
        return None
    pattern, risk = SUBCOMMANDS[name]
    printed = " ".join(word.text for word in (args.words if name in CHECK_OPTIONS else args.operands))
    return _HIDDEN if printed.startswith(UNKNOWN) else risk if re.match(pattern, printed) else None


def _find_exec_commands(words: Sequence[ShellWord]) -> list[list[ShellWord]]:
    """The commands after `-exec` and similar; `UNKNOWN` for the names that `find` inserts."""
    found: list[list[ShellWord]] = []
    open_ = False
    for word in words:
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            found.append([])
            open_ = True
        elif word.text in (";", "+"):
            open_ = False
        elif open_:
            found[-1].append(ShellWord(word.text.replace("{}", UNKNOWN), word.has_glob))
    return [inner for inner in found if inner]
