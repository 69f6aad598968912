"""Commands in the arguments of any program, as in `x -e 'rm -rf /'`.

No list of programs that run other programs is complete. So every program counts as one, except those
known to treat their arguments as text. What is found is a guess, and counts only if it is clearly dangerous.
"""

import re
from collections.abc import Iterator, Sequence

from alipes.agent.approval.shell.lexer import ShellWord
from alipes.agent.approval.shell.subcommands import for_each

TEXT_ONLY_PROGRAMS = for_each(
    "echo printf grep egrep fgrep zgrep rg ag ack cat tee head tail wc sort uniq tr cut jq yq test ["
    " which whereis type hash help whatis apropos info tldr ls stat file du pip pip3 brew port snap"
    " flatpak notify-send say wall logger gh glab curl wget http xdg-open open",
    True,
)
"""Programs that treat their arguments as text: to search, print, install or send."""
_COMMAND_NAMES = for_each(
    "rm rmdir shred dd sudo doas su mkfs git chmod chown mv ln tee truncate find sed sh bash dash zsh ksh"
    " fish python python3 perl ruby node php awk gawk pkill killall reboot shutdown poweroff systemctl"
    " crontab userdel passwd wipefs nc ncat socat eval xargs",
    True,
)
"""Names that are commands in any position; none is an everyday word."""
_MESSAGE_OPTIONS = r"-[a-z]{0,9}m$|-[SG]|--(?:message|grep|author|format|pretty|title|body|notes?|subject)\b"
"""Options whose value is a message or a search text."""
_COMMAND_PROGRAMS = for_each("sqlite3 gdb lldb ssh scp sftp expect psql mysql mariadb tmux screen make m4 ed", True)
"""Programs with their own keyword before a command: `.shell rm x`, `ProxyCommand rm x`."""
_MARKS = r"^[-+:!|.\\@\s]+"
_INSIDE = (r"\"([^\"\n]{3,})\"", r"'([^'\n]{3,})'", r"`([^`\n]{3,})`", r"\(([^()\n]{3,})\)")
MAX_TEXT_CHARS = 4_000


def nested_commands(name: str, words: Sequence[ShellWord]) -> Iterator[list[ShellWord]]:
    """Commands that `name` may run: each known command name and the words after it."""
    if name in TEXT_ONLY_PROGRAMS:
        return
    for at, word in enumerate(words[:-1]):
        if word.text.rpartition("/")[2] in _COMMAND_NAMES:
            yield list(words[at:])


def nested_texts(name: str, words: Sequence[ShellWord], stdin: ShellWord | None) -> Iterator[str]:
    """Texts that `name` may run as commands: words with spaces, and its input."""
    if name in TEXT_ONLY_PROGRAMS:
        return
    before = ""
    for word in words:
        is_message = re.match(_MESSAGE_OPTIONS, before) or ("=" in word.text and re.match(_MESSAGE_OPTIONS, word.text))
        is_message = is_message or (name == "git" and re.match(r"-[SG]", word.text))
        if " " in word.text.strip() and word.is_known and len(word.text) < MAX_TEXT_CHARS and not is_message:
            yield from _interpretations(name, word.text)
        before = word.text
    if stdin is not None and stdin.is_known and name != "git":
        for line in stdin.text[:MAX_TEXT_CHARS].splitlines():
            yield from _interpretations(name, line)


def _interpretations(name: str, text: str) -> Iterator[str]:
    """Possible readings of a text: as it is, without a leading option name or mark, without quotes."""
    yield text
    bare = re.sub(_MARKS, "", text)
    yield bare
    head, sign, value = text.partition("=")
    if sign and " " not in head:
        yield value
        yield value.partition("=")[2]
    if text.startswith("-"):  # attached to its option, as in -iSx
        yield from (text[at:] for at in (2, 3, 4))
    for quotes in _INSIDE:
        yield from re.findall(quotes, text)
    if name in _COMMAND_PROGRAMS:
        _, _, rest = bare.partition(" ")
        yield rest
        yield rest.partition(" ")[2]
