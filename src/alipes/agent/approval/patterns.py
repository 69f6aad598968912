"""Patterns of commands that are always allowed, such as `git push *`.

A pattern is compared with the words of one simple command. A line is covered if each of its commands is covered on its
own. Substitutions, variables, redirections, pipes, background commands and groups are never covered.
"""

import re
import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase

from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import ToolCall

MAX_PATTERN_CHARS = 500
MAX_COMMAND_CHARS = 10_000
_COVERED_ARGUMENTS = {"command", "timeout"}
"""Arguments of the `terminal` tool that a covered call may have: others change where or how a command runs."""
_RUNNERS = frozenset(
    (
        *("sudo", "doas", "su", "env", "nohup", "setsid", "time", "nice", "ionice", "stdbuf", "command", "builtin"),
        *("exec", "eval", "xargs", "parallel", "watch", "timeout", "ssh", "chroot", "flock", "sh", "bash", "dash"),
        *("zsh", "ksh", "fish", "busybox", "python", "python3", "perl", "ruby", "node", "php", "lua", "deno", "bun"),
        *("awk", "find", "source", ".", "npx", "bunx", "uvx", "pipx", "strace", "unshare", "systemd-run", "script"),
        *("docker", "podman", "kubectl", "uv", "make"),
    )
)
"""Programs that run other commands: a pattern must say more than their name."""
_PROGRAM_OPTIONS = (
    *("exec", "exec-path", "exec-batch", "receive-pack", "upload-pack", "config", "config-env", "config-file", "rsh"),
    *("rsync-path", "to-command", "checkpoint-action", "use-compress-program", "compress-program", "pager", "editor"),
    *("shell", "script-shell", "eval", "command", "preprocessor", "filter", "hook", "plugin", "require", "import"),
    *("loader", "init-command", "init-file", "rcfile", "toolexec", "vettool", "template", "proxy-command", "run"),
    *("sendmail-cmd", "smtp-server", "ext-diff", "extcmd", "tool", "open-files-in-pager", "in-place", "pre-command"),
)
"""Long options that run a program, load code or read settings that may; given whole, or the start of them."""
_SHORT_PROGRAM_OPTION = r"-\w{0,2}[ce]|-[cexIEO](?:[^A-Za-z].*)?|-o[A-Za-z:-]*(?i:command|exec|invoke|cmd|program)"
_PROGRAM_VALUE = (
    r"(?i)[a-z][\w+.-]{0,20}::(?!\d)|alias\."
    r"|[\w.:-]{0,80}(?:exec|command|cmd|pager|editor|helper|invoke|program|hook|shell)\w*="
)
"""Words that are settings with a program as value, or addresses that run one, such as `ext::sh`."""


def covers(patterns: Iterable[str], call: ToolCall) -> bool:
    """True if every command of the call matches one of the patterns."""
    return bool(covering_patterns(patterns, call))


def covering_patterns(patterns: Iterable[str], call: ToolCall) -> tuple[str, ...]:
    """The patterns that together cover the call; empty if they do not."""
    command = _command_of(call)
    commands = split_commands(command) if command else None
    if not commands:
        return ()
    known = {pattern: words for pattern in patterns if (words := _pattern_words(pattern))}
    found = [next((each for each, words in known.items() if _matches(words, command)), "") for command in commands]
    return tuple(dict.fromkeys(found)) if all(found) else ()


def propose_pattern(call: ToolCall) -> str:
    """The command as a pattern, to be edited by the person; empty if no pattern can cover it.

    It covers nothing else: what `git push *` would allow besides, such as `--force`, is for the person to decide."""
    commands = split_commands(_command_of(call))
    if not commands or len(commands) > 1:
        return ""
    proposed = " ".join(map(shlex.quote, commands[0]))
    return "" if find_problem(proposed, call) else proposed


def find_problem(pattern: str, call: ToolCall | None = None) -> str:
    """Why the pattern cannot be saved, as a sentence; empty if it can. With `call`, it must cover that call."""
    words = _pattern_words(pattern)
    if not words:
        return "A pattern is one plain command, such as `git push *`: no quotes left open, no ; & | < > $ ( )."
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"The pattern is longer than {MAX_PATTERN_CHARS} characters."
    names = [word for word in words if not word.startswith("-")]
    if "*" in words[0] or "?" in words[0]:
        return "A pattern must start with the name of a program."
    first = next((at for at, word in enumerate(words) if word not in _RUNNERS), len(words))
    if first and "*" in "".join(words) and re.match(r"-|[^*]*[*=]|\Z", " ".join(words[first : first + 1])):
        return f"`{' '.join(words)}` would allow any command. Say which one, such as `{' '.join(names[:1])} NAME *`."
    if call is not None and not covers((pattern,), call):
        return f"`{pattern.strip()}` does not match this command."
    return ""


def split_commands(text: str) -> list[list[str]] | None:
    """The words of each simple command in `text`; None if it contains anything but plain commands joined by
    `&&`, `||`, `;` or line breaks."""
    if not text or len(text) > MAX_COMMAND_CHARS or not text.translate({9: "", 10: ""}).isprintable():
        return None
    commands: list[list[str]] = [[]]
    word: str | None = None
    at = 0
    while at < len(text):
        char = text[at]
        if found := re.compile(r"&&|\|\||;|\n").match(text, at):
            commands, word = _end_word(commands, word), None
            commands.append([])
            at = found.end()
        elif char in " \t":
            commands, word = _end_word(commands, word), None
            at += 1
        elif part := _PART.match(text, at):
            word = (word or "") + _unquote(part)
            at = part.end()
        else:
            return None
    commands = _end_word(commands, word)
    kept = [words for words in commands if words]
    return None if any(_is_special(words[0]) for words in kept) else kept or None


_PART = lazy_pattern(r"""(?P<plain>[^\s'"\\`$(){}<>|;&!#]+)|'(?P<single>[^']*)'|"(?P<double>[^"\\`$!]*)\"""")
"""A plain piece of a word, or a quoted one without expansions."""
_KEYWORDS = frozenset(
    (
        *("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "select"),
        *("function", "coproc", "time", "[["),
    )
)


def _is_special(word: str) -> bool:
    """True for a word that starts something else than a simple command: a keyword or an assignment."""
    return not word or word in _KEYWORDS or re.match(r"[A-Za-z_]\w*(?:\[.*\])?\+?=", word) is not None


def _unquote(part: re.Match[str]) -> str:
    return next(text for text in part.groups() if text is not None)


def _end_word(commands: list[list[str]], word: str | None) -> list[list[str]]:
    if word is not None:
        commands[-1].append(word)
    return commands


def _command_of(call: ToolCall) -> str:
    command = call.args.get("command")
    is_covered = call.name == "terminal" and call.args.keys() <= _COVERED_ARGUMENTS
    return command if is_covered and isinstance(command, str) else ""


def _pattern_words(pattern: str) -> list[str]:
    """The words of a pattern; none if it is not one simple command."""
    commands = split_commands(pattern.strip())
    return commands[0] if commands and len(commands) == 1 and "\n" not in pattern.strip() else []


def _matches(pattern: list[str], words: list[str]) -> bool:
    """Word by word. A `*` at the end matches any further words, elsewhere for one; inside a word for a part of it.
    Words with blanks, and options that run programs, are only matched by themselves."""
    if len(pattern) > 1 and pattern[-1] == "*":
        pattern = pattern[:-1] + ["*"] * (len(words) - len(pattern) + 1)
    return len(pattern) == len(words) and all(map(_matches_word, pattern, words))


def _matches_word(pattern: str, word: str) -> bool:
    if "*" not in pattern:
        return pattern == word
    if re.search(r"\s", word) or (".." in word.split("/") and ".." not in pattern.split("/")):
        return False  # it may be a command for another program, or lead to another folder
    if _may_run_program(word):
        return False
    return fnmatchcase(word, pattern.replace("[", "[[]").replace("?", "[?]"))


def _may_run_program(word: str) -> bool:
    """True for an option or a value by which programs run other programs."""
    if re.match(_PROGRAM_VALUE, word):
        return True
    if not word.startswith("-"):
        return False
    name = word.lstrip("-").partition("=")[0]
    if word.startswith("--"):  # git and others take the start of a name for the whole
        return bool(name) and any(each.startswith(name) for each in _PROGRAM_OPTIONS)
    return name in _PROGRAM_OPTIONS or re.fullmatch(_SHORT_PROGRAM_OPTION, word) is not None
