"""Commands that may stand in the words of another, whoever runs them: `x -e 'rm -rf /'`. It rules on nothing.

No list of programs that run others is ever whole. So every program counts as one, but those that are known
to take words for words; what is found here is only a guess, and counts where it is dangerous in plain sight.
"""

import re
from collections.abc import Iterator, Sequence

from alipes.agent.shell_programs import each
from alipes.agent.shell_words import Word

LITERAL = each(
    "echo printf grep egrep fgrep zgrep rg ag ack cat tee head tail wc sort uniq tr cut jq yq test ["
    " which whereis type hash help whatis apropos info tldr ls stat file du pip pip3 brew port snap"
    " flatpak notify-send say wall logger gh glab curl wget http xdg-open open",
    True,
)
"""Programs that take words for words: what they search for, print, install, send."""
_HARD = each(
    "rm rmdir shred dd sudo doas su mkfs git chmod chown mv ln tee truncate find sed sh bash dash zsh ksh"
    " fish python python3 perl ruby node php awk gawk pkill killall reboot shutdown poweroff systemctl"
    " crontab userdel passwd wipefs nc ncat socat eval xargs",
    True,
)
"""Names that are commands wherever they stand: no everyday word is among them."""
_FOR_PEOPLE = r"-[a-z]*m$|-[SG]|--(?:message|grep|author|format|pretty|title|body|notes?|subject)\b"
"""Options whose value is for people."""
_SPEAKING = each("sqlite3 gdb lldb ssh scp sftp expect psql mysql mariadb tmux screen make m4 ed", True)
"""Programs with words of their own before the command: `.shell rm x`, `ProxyCommand rm x`."""
_MARKS = r"^[-+:!|.\\@\s]+"
_INSIDE = (r"\"([^\"\n]{3,})\"", r"'([^'\n]{3,})'", r"`([^`\n]{3,})`", r"\(([^()\n]{3,})\)")
LONGEST = 4_000


def suffixes(name: str, words: Sequence[Word]) -> Iterator[list[Word]]:
    """The commands that `name` may run with the rest of its words for theirs, each with its words."""
    if name in LITERAL:
        return
    for at, word in enumerate(words[:-1]):
        if word.text.rpartition("/")[2] in _HARD:
            yield list(words[at:])


def texts(name: str, words: Sequence[Word], fed: Word | None) -> Iterator[str]:
    """What `name` may take for a text of commands: words of several words, and what it is given to read."""
    if name in LITERAL:
        return
    before = ""
    for word in words:
        told = re.match(_FOR_PEOPLE, before) or ("=" in word.text and re.match(_FOR_PEOPLE, word.text))
        told = told or (name == "git" and re.match(r"-[SG]", word.text))
        if " " in word.text.strip() and word.sure and len(word.text) < LONGEST and not told:
            yield from _readings(name, word.text)
        before = word.text
    if fed is not None and fed.sure and name != "git":
        for line in fed.text[:LONGEST].splitlines():
            yield from _readings(name, line)


def _readings(name: str, text: str) -> Iterator[str]:
    """How a text might be taken: as it is, without an option's name or a mark before it, without quotes."""
    yield text
    bare = re.sub(_MARKS, "", text)
    yield bare
    head, sign, value = text.partition("=")
    if sign and " " not in head:
        yield value
        yield value.partition("=")[2]
    if text.startswith("-"):  # glued to its option, as in -iSx
        yield from (text[at:] for at in (2, 3, 4))
    for quotes in _INSIDE:
        yield from re.findall(quotes, text)
    if name in _SPEAKING:
        _, _, rest = bare.partition(" ")
        yield rest
        yield rest.partition(" ")[2]
