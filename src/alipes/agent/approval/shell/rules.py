"""The rules: which commands somebody should be asked about first. Small and honest; it is no sandbox.

One function, `judge`, for every mode and every front end. It looks through whatever runs another
command, and what it cannot see it does not trust.
"""

import os
import re
from collections.abc import Iterable, Sequence

from alipes.agent.approval.paths import Ground, Risk
from alipes.agent.approval.shell.embedded import acts, base_of, programs, suffixes, texts
from alipes.agent.approval.shell.lexer import HOLE, Args, Unclear, Word
from alipes.agent.approval.shell.parser import Command, read
from alipes.agent.approval.shell.programs import ALWAYS, BY_OPTION, RULES, SUBCOMMANDS, each
from alipes.tools.common import Places

_DEPTH = 8
_GUESSES = 3
"""Texts within texts of which only those that are surely run are looked at."""
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"}
_CARRIERS = {
    **each(
        "env nohup setsid time nice ionice stdbuf command builtin exec xargs parallel watch strace ltrace", 0
    ),
    **each(
        "busybox toybox unshare unbuffer caffeinate systemd-run dbus-run-session firejail bwrap nsenter gdb",
        0,
    ),
    **each("prlimit choom setpriv numactl chronic rlwrap valgrind proot fakeroot eatmydata xvfb-run", 0),
    **each("! dbus-launch linux32 linux64 i386 x86_64 npx bunx uvx pipx", 0),
    **each("timeout flock chroot taskset chrt ssh faketime script entr setarch", 1),
}
"""Programs that run another, and how many operands stand before it."""
_TEXT_VARIABLES = (
    r"\w*(?:PAGER|EDITOR|ASKPASS)$|VISUAL$|BROWSER$|LESSOPEN$|PROMPT_COMMAND$|GIT_\w*(?:COMMAND|DIFF|SSH)$"
)
_TRUSTED_VARIABLES = (
    r"LD_(?:PRELOAD|LIBRARY_PATH|AUDIT)$|BASH_ENV$|ENV$|PYTHONSTARTUP$|PERL5OPT$|NODE_OPTIONS$"
)
_TEXT_OPTION = r"(?is)[\w.=-]*(?:exec|command|cmd|pager|filter|helper)=(.+)"
_FUNCTION = r"(?<![\w:.])([\w:.]{1,40})\(\)[{(]"
_HANDLES = ("/dev/fd/", "/proc/self/fd/", "/dev/tcp/")
_BANG = {"git", "vi", "vim", "nvim", "ex", "ed", "view", "man", "less", "more", "mutt"}
"""Programs that take `!` before a command for a command to run."""
_WORK = 12_000
"""Words and letters that are looked at, some of them many times, before a text counts as too clever."""
_ENDLESS = Risk("unclear", "cannot be read with certainty: there are too many ways to read it")
_HIDDEN = Risk("hidden", "runs a command that is put together only when it runs")


def judge(command: str, places: Places, workdir: str, start: str = "") -> Risk | None:
    """Why somebody should be asked before `command` is run; None for everyday commands.

    `workdir` is where the work is done and more is allowed; `start` where the command is run, if elsewhere.
    """
    judged = _Judge(Ground(places, workdir, start))
    return judged.text(command) or (_ENDLESS if judged.tired else None)


class _Judge:
    """Goes through the commands of a text in order, and through those inside them."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._depth = 0
        self._aliases = False
        self._work = 0

    @property
    def tired(self) -> bool:
        """Was there more to look at than anyone would?"""
        return self._work > _WORK

    def text(self, text: str) -> Risk | None:
        if self._depth > _DEPTH or HOLE in text:
            return _HIDDEN
        if self.tired:
            return _ENDLESS
        if _is_bomb(re.sub(r"\s", "", text)):
            return Risk("bomb", "starts copies of itself without end")
        self._aliases |= "expand_aliases" in text
        self._work += len(text) // 8 if self._depth else 0
        self._depth += 1
        try:
            return _first(self._step(command) for command in read(text, self._ground.known()))
        except Unclear as why:
            return Risk("unclear", f"cannot be read with certainty: {why}")
        finally:
            self._depth -= 1

    def _step(self, command: Command) -> Risk | None:
        risk = self._command(command)
        self._ground.step(command.sign)
        return risk

    def _command(self, command: Command) -> Risk | None:
        for redirect in command.redirects:
            check = self._ground.writing if ">" in redirect.operator else _nothing
            if risk := check(redirect.target) or self._ground.reading("<", redirect.target):
                return risk
        for name, value in command.assigned:
            if re.match(_TRUSTED_VARIABLES, name):
                return Risk("hidden", f"changes by {name} what other programs load or run")
            if re.match(_TEXT_VARIABLES, name) and (risk := self.text(value.text)):
                return risk
        return self._words(command.words, command) if command.words else None

    def _words(self, words: Sequence[Word], command: Command) -> Risk | None:
        self._work += len(words)
        if self.tired:
            return _ENDLESS
        first, args = words[0], Args(words[1:])
        if _unseen(first):
            return _HIDDEN
        name = os.path.basename(first.text)
        if name.startswith("mkfs."):
            name = "mkfs"
        if name in ("cd", "pushd", "popd"):
            self._ground.go(_destination(name, args))
            return None
        return (
            ALWAYS.get(name)
            or self._ground.among_secrets(name)
            or _by_subcommand(name, args)
            or (RULES[name](args, self._ground) if name in RULES else None)
            or self._carried(name, args, command)
            or self._fed(name, args, command)
            or _first(self._ground.reading(name, word) for word in words[1:])
            or self._texts(name, args)
            or self._spoken(name, words[1:], command)
        )

    def _carried(self, name: str, args: Args, command: Command) -> Risk | None:
        """Look through a program that runs another one."""
        if name == "find":
            return _first(self._words(inner, command) for inner in _executed(args.words))
        if name not in _CARRIERS or (name == "command" and args.has("vV")):
            return None
        unseen = [Word(HOLE)] if name in ("xargs", "parallel") else []
        if unseen:
            args = Args(_filled(args.words))
        if name == "env" and (folder := args.values("C", "chdir")):
            self._ground.go(folder[0])
        plain = [
            at for at, word in enumerate(args.words) if not word.text.startswith("-") and "=" not in word.text
        ]
        if any(_unseen(args.words[at]) for at in plain[: _CARRIERS[name] + 1]):
            return _HIDDEN
        for at in plain:  # which of them is the command depends on options of many programs: try each
            inner = args.words[at:]
            spoken = self.text(inner[0].text) if " " in inner[0].text.strip() else None
            if risk := spoken or self._inner([*inner, *unseen], command):
                return risk
        return _first(self._assigned(word) for word in args.words if "=" in word.text)

    def _inner(self, words: list[Word], command: Command) -> Risk | None:
        return None if not words[0].sure or words[0].glob else self._words(words, command)

    def _assigned(self, word: Word) -> Risk | None:
        name, _, value = word.text.partition("=")
        return self._command(Command(assigned=[(name, Word(value))])) if name.isidentifier() else None

    def _fed(self, name: str, args: Args, command: Command) -> Risk | None:
        """Look at the text that is given to something that runs text."""
        if name in _SHELLS:
            return self._shell(args, command)
        if name in ("eval", "trap", "alias", "source", "."):
            return self._builtin(name, args, command)
        base = base_of(name)
        if base == "python" and (at := _module(args.words)):
            return self._inner(args.words[at:], command)
        fed = self._stdin(command)
        return _first(acts(word, self._ground) for word in programs(base, args, fed)) if base else None

    def _shell(self, args: Args, command: Command) -> Risk | None:
        if args.has("c"):
            return _first(self.text(script.text) for script in (*args.values("c"), *args.operands[:1]))
        if (
            not args.operands
            or args.has("s")
            or args.operands[0].text in ("-", "/dev/stdin", "/proc/self/fd/0")
        ):
            fed = self._stdin(command)
            return self.text(fed.text) if fed is not None else None
        return None if args.operands[0].sure and not args.operands[0].text.startswith(_HANDLES) else _HIDDEN

    def _builtin(self, name: str, args: Args, command: Command) -> Risk | None:
        if name == "eval":
            return self.text(" ".join(word.text for word in args.words))
        if name == "trap":
            return self.text(args.operands[0].text) if args.operands else None
        if name == "alias" and self._aliases:
            return _HIDDEN
        if name == "alias":
            return _first(self.text(word.text.partition("=")[2]) for word in args.words if "=" in word.text)
        fed = args.operands[0] if args.operands else Word("")
        if fed.text == "/dev/stdin":
            return self.text((self._stdin(command) or Word("")).text)
        return None if fed.sure and not fed.text.startswith(_HANDLES) else _HIDDEN

    def _stdin(self, command: Command) -> Word | None:
        """What it is given to read in this text, a `HOLE` where that cannot be seen; None for nothing."""
        if command.stdin is not None:
            return command.stdin
        if any(redirect.operator == "<" and not redirect.target.sure for redirect in command.redirects):
            return Word(HOLE)
        source = command.upstream
        if source is None:
            return None
        name, said = source.words[0].text if source.words else "", [word.text for word in source.words[1:]]
        while said and re.fullmatch(r"-[neE]+", said[0]):
            del said[0]
        plain = " ".join(said).replace("\\n", "\n")
        if name in ("echo", "printf") and "%" not in plain and "\\" not in plain:
            return Word(plain)
        if name in ("cat", "tee") and len(source.words) == 1 and not source.redirects:
            return self._stdin(source)
        return Word(HOLE)

    def _spoken(self, name: str, words: Sequence[Word], command: Command) -> Risk | None:
        """What is dangerous in plain sight, whatever the program makes of its words."""
        if self._depth > _GUESSES or name in _SHELLS or base_of(name):
            return None
        others = [self.text(text) for text in texts(name, words, command.stdin)]
        runs = any(word.text in ("run", "exec", "x", "dlx") for word in words[:2])
        if runs or not (name in RULES or name in SUBCOMMANDS):
            others += [self._inner(inner, command) for inner in suffixes(name, words)]
        return _first(risk for risk in others if risk is not None and risk.rule not in ("hidden", "unclear"))

    def _texts(self, name: str, args: Args) -> Risk | None:
        """Arguments that are commands: `--checkpoint-action=exec=x`, `git -c alias.y='!x'`, `rebase -x x`."""
        for at, word in enumerate(args.words):
            found = re.fullmatch(_TEXT_OPTION, word.text)
            text = found[1] if found else ""
            if name in _BANG and (shell := re.search(r"(?s)(?:^:?|=)!(.+)", word.text)):
                text = shell[1]
            if name == "git" and word.text in (
                "--exec",
                "-x",
                "foreach",
                "run",
                "--tree-filter",
                "--upload-pack",
            ):
                text = " ".join(each.text for each in args.words[at + 1 :])
            if text and (risk := self.text(text)):
                return risk
            alias = re.fullmatch(r"(?s)alias\.[^=]+=([^!].*)", word.text) if name == "git" else None
            if alias and (risk := self.text(f"git {alias[1]}")):
                return risk
        return None


def _filled(words: Sequence[Word]) -> list[Word]:
    """The words of `xargs` as it puts names into them that we cannot see."""
    marks, found = {"{}"}, list[Word]()
    for before, word in zip([Word(""), *words], words, strict=False):
        if before.text == "-I":
            marks.add(word.text)
        else:
            marks |= {word.text[2:]} if re.match(r"-I.", word.text) else set()
            found.append(word)
    holed = re.compile("|".join(map(re.escape, marks)))
    return [Word(holed.sub(HOLE, word.text), word.glob) for word in found]


def _unseen(word: Word) -> bool:
    """Is it known only at the run which command that is?"""
    return not word.sure or (word.glob and word.text != "[")


def _is_bomb(text: str) -> bool:
    """A function that pipes itself into itself."""
    return any(f"{name}|{name}" in text for name in re.findall(_FUNCTION, text))


def _by_subcommand(name: str, args: Args) -> Risk | None:
    if name not in SUBCOMMANDS:
        return None
    pattern, risk = SUBCOMMANDS[name]
    said = " ".join(word.text for word in (args.words if name in BY_OPTION else args.operands))
    return _HIDDEN if said.startswith(HOLE) else risk if re.match(pattern, said) else None


def _destination(name: str, args: Args) -> Word | None:
    back = name == "popd" or any(word.text == "-" for word in args.operands)
    return Word(HOLE) if back else next(iter(args.operands), None)


def _module(words: Sequence[Word]) -> int:
    """Where the module stands that `python -m` runs, or 0."""
    return next((at + 1 for at, word in enumerate(words[:-1]) if word.text == "-m"), 0)


def _executed(words: Sequence[Word]) -> list[list[Word]]:
    """The commands after `-exec` and its kin; for `find` puts in a name we cannot see."""
    found: list[list[Word]] = []
    open_ = False
    for word in words:
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            found.append([])
            open_ = True
        elif word.text in (";", "+"):
            open_ = False
        elif open_:
            found[-1].append(Word(word.text.replace("{}", HOLE), word.glob))
    return [inner for inner in found if inner]


def _nothing(_: Word) -> None:
    return None


def _first(risks: Iterable[Risk | None]) -> Risk | None:
    return next((risk for risk in risks if risk), None)
