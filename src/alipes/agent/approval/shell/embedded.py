"""Commands that may stand in the words of another, whoever runs them: `x -e 'rm -rf /'`. It rules on nothing.

No list of programs that run others is ever whole. So every program counts as one, but those that are known
to take words for words; what is found here is only a guess, and counts where it is dangerous in plain sight.
"""

import re
from collections.abc import Iterator, Sequence

from alipes.agent.approval.paths import Ground, Risk
from alipes.agent.approval.shell.lexer import HOLE, Args, Word
from alipes.agent.approval.shell.programs import each

_CODE = {
    "python": "c",
    "ipython": "c",
    "perl": "eE",
    "ruby": "e",
    "node": "ep",
    "php": "r",
    "lua": "e",
    "bun": "e",
    "deno": "",
    "Rscript": "e",
    "julia": "eE",
    "guile": "c",
    "tclsh": "",
    "expect": "c",
    "awk": "",
}
"""Languages, and the options that give a program in them."""
_ACTS = (
    r"os\.system|subprocess|popen|pty\.spawn|child_process|execSync|\bsystem\b|\bexec\w*\s*[(\"']|\beval\b|__import__"
    r"|`|qx[/({\[]|%x[/({\[]|shell_exec|rmtree|rm_rf?\b|rmSync|remove_tree|\bunlink|os\.(?:remove|kill|rename)|\bfork\b"
    r"|\|\s*\"(?:/\w+)*/?(?:ba|da|z)?sh\b|\|\s*getline|\w*spawn\w*\s*[(\s]|spawn_sync|getattr\(\s*os\b|runpy\."
    r"|import_module\((?!\s*[\"'][\w.]+[\"']\s*\))|code\.interact|passthru|proc_open|pcntl_|shutil\.move|\.rmdir\("
    r"|removedirs|truncate\(|Deno\.Command|open\s*\(?[^)\n]*[\"'](?:\s*\|\s*\w|-\|)|\bos\.execute|ptrace|(?m:^\s*exec\s+\w)"
)
"""What code says that starts programs or removes files."""
_WRITES = (
    r"[\"'](?:[wax]b?\+?|r\+)[\"']|write_text|write_bytes|writeFile|file_put_contents|>\s*[\"']"
    r"|\.touch\(|File\.write"
)
_LITERAL = r"[\"']([^\"'\n]{0,400})[\"']"


def base_of(name: str) -> str:
    """The language that a program speaks, without its version; empty for none we know."""
    base = "awk" if name.endswith("awk") else re.sub(r"[\d.]+$", "", name).replace("pypy", "python")
    return base if base in _CODE else ""


def programs(base: str, args: Args, fed: Word | None) -> Iterator[Word]:
    """The words that are programs. `fed`: what it is given to read."""
    yield from args.values(_CODE[base], "eval", "print", "source", "execute")
    if base == "awk":  # its first operand is one, unless that belongs to an option
        yield from (word for word in args.operands if not word.sure or re.search(r"[{(]", word.text))
    if base == "deno":
        yield from args.operands[1:]
    if fed is not None and (not args.operands or args.operands[0].text in ("-", "/dev/stdin")):
        yield fed
    if any(word.text.startswith(HOLE) for word in args.operands[:1]) and base != "awk":
        yield Word(HOLE)


def acts(code: Word, ground: Ground) -> Risk | None:
    """Why somebody should be asked before this code is run."""
    if not code.sure:
        return Risk("hidden", "runs code that is put together only when it runs")
    if re.search(_ACTS, code.text):
        return Risk("code", "runs code that starts programs or removes files")
    writes = re.search(_WRITES, code.text) is not None
    for found in re.finditer(_LITERAL, code.text):
        literal = Word(found[1])
        if risk := ground.reading("code", literal) or (ground.writing(literal) if writes else None):
            return risk
    return None


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
