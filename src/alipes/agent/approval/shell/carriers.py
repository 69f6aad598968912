"""Programs that run another one, which is named in their arguments."""

import re
from collections.abc import Sequence

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.shell.lexer import SOME_NAME, UNKNOWN, ShellArguments, ShellWord
from alipes.agent.approval.shell.subcommands import for_each

CARRIERS = {
    **for_each("env nohup setsid time nice ionice stdbuf command builtin exec xargs parallel watch strace ltrace", 0),
    **for_each("busybox toybox unshare unbuffer caffeinate systemd-run dbus-run-session firejail bwrap nsenter gdb", 0),
    **for_each("prlimit choom setpriv numactl chronic rlwrap valgrind proot fakeroot eatmydata xvfb-run", 0),
    **for_each("! dbus-launch linux32 linux64 i386 x86_64 npx bunx uvx pipx", 0),
    **for_each("timeout flock chroot taskset chrt ssh faketime script entr setarch", 1),
}
"""Programs that run another one, and the number of operands before it."""
RUNNERS = {"uv", "poetry", "pipenv", "pdm", "hatch", "rye", "conda", "mamba", "pixi"}
"""Programs that run another one after `run`."""
SHELL_CARRIERS = {"command", "builtin", "time", "!"}
"""Carriers that run builtins in the shell itself."""


def words_after(words: Sequence[ShellWord], options: Sequence[str]) -> list[ShellWord]:
    """The words after the first of these options."""
    at = next((at for at, word in enumerate(words) if word.text in options), len(words))
    return list(words[at + 1 :])


def split_string(name: str, args: ShellArguments) -> str:
    """The command line of `env -S`, which it splits itself; empty if there is none."""
    if name != "env" or not args.has("S", "split-string"):
        return ""
    return " ".join(re.sub(r"^(?:-S|--split-string=?)", "", word.text) for word in args.words)


def fill_placeholders(words: Sequence[ShellWord], value: ShellWord) -> list[ShellWord]:
    """The words of `xargs` with `value` for its placeholders."""
    marks, found = {"{}"}, list[ShellWord]()
    for before, word in zip([ShellWord(""), *words], words, strict=False):
        if before.text == "-I":
            marks.add(word.text)
        else:
            marks |= {word.text[2:]} if re.match(r"-I.", word.text) else set()
            found.append(word)
    holed = re.compile("|".join(map(re.escape, marks)))
    return [ShellWord(holed.sub(lambda _: value.text, word.text), word.has_glob) for word in found]


def name_found(words: Sequence[ShellWord], checker: PathChecker) -> ShellWord:
    """What `find` prints: a plain name of the project if it filters and starts there."""
    paths = words[: next((at for at, word in enumerate(words) if word.text.startswith("-")), len(words))]
    filtered = bool({"-name", "-iname", "-path", "-regex", "-type"} & {word.text for word in words})
    if filtered and not any(checker.check_unpack(word) for word in paths or [ShellWord(".")]):
        return ShellWord(SOME_NAME)
    return ShellWord(f"{paths[0].text}/{UNKNOWN}" if len(paths) == 1 else UNKNOWN)


def find_exec_commands(words: Sequence[ShellWord], checker: PathChecker) -> list[list[ShellWord]]:
    """The commands after `-exec` and similar, with what `find` inserts."""
    found: list[list[ShellWord]] = []
    open_ = False
    filtered = bool({"-name", "-iname", "-path", "-regex"} & {word.text for word in words})
    for word in words:
        if word.text in ("-exec", "-execdir", "-ok", "-okdir"):
            found.append([])
            open_ = True
        elif word.text in (";", "+"):
            open_ = False
        elif open_:
            moves = found[-1] and found[-1][0].text in ("cp", "mv", "ln", "install", "sh", "bash")
            deletes = found[-1] and found[-1][0].text in ("rm", "rmdir", "shred") and not filtered
            name = ShellWord(UNKNOWN) if moves or deletes else name_found(words, checker)
            found[-1].append(ShellWord(word.text.replace("{}", name.text), word.has_glob))
    return [inner for inner in found if inner]
