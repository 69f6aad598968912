"""Code and commands inside arguments: scripts of other languages, and `x -e 'rm -rf /'`.

No list of programs that run other programs is complete. So every program counts as one, except those
known to treat their arguments as text. What is found is a guess, and counts only if it is clearly dangerous.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext

from alipes.agent.approval.paths import PathChecker, Risk
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord, split_pieces
from alipes.agent.approval.shell.subcommands import METADATA_HOST, OWN_API, for_each

_CODE_OPTIONS = {
    **for_each("python ipython guile expect", "c"),
    **for_each("ruby lua bun Rscript", "e"),
    **for_each("perl julia", "eE"),
    "node": "ep",
    "php": "r",
    **for_each("awk deno tclsh", ""),
}
"""By language: the options whose value is code."""
_DELETES = (
    r"rmtree|rm_rf?\b|rmSync|remove_tree|\bunlink|os\.(?:remove|rename|replace)|shutil\.move|\.rmdir\(|removedirs"
    r"|\brename\s{1,5}[\"'$]|\btruncate\(|\brm(?:dir)?(?:Sync)?\s{0,5}\(|\brename(?:s|Sync)?\s{0,5}\(|file\s{1,5}(?:delete|rename)"
    r"|File\.(?:delete|rename)|FileUtils\.|Deno\.remove|file\.remove|\{\s{0,5}rm\s{0,5}[,}]|,\s{0,5}rm\s{0,5}[,}]"
)
_RUNS = (
    r"os\.system|subprocess|popen|pty\.spawn|child_process|execSync|\bsystem\b|\bexec\w{0,20}\s{0,5}[(\"']|\beval\b"
    r"|__import__|`|qx[/({\[]|%x[/({\[]|shell_exec|os\.kill|\bfork\b|\|\s{0,5}\"(?:/\w{1,20}){0,5}/?(?:ba|da|z)?sh\b"
    r"|\|\s{0,5}getline|spawn\w{0,20}\s{0,5}[(\s]|spawn_sync|\bos\.execute|ptrace|runpy\.|code\.interact|passthru"
    r"|InteractiveInterpreter|InteractiveConsole|proc_open|pcntl_|Deno\.Command|import_module\("
    r"|open\s{0,5}\(?[^)\n]{0,200}[\"'](?:\s{0,5}\|\s{0,5}\w|-\|)|(?m:^[ \t]{0,40}exec[ \t]{1,9}[\w./~$])|createRequire"
    r"|\bopen\b[^)\n|]{0,200}\|\s{0,5}[\"']"
    r"|\b(?:os|shutil|subprocess)\s{1,5}as\s{1,5}\w|getattr\(\s{0,5}(?:os|shutil|builtins|__builtins__)\b"
    r"|from\s{1,5}(?:os|shutil)\s{1,5}import\s{1,5}[^\n;]{0,200}(?:\*|\b(?:remove|rename|replace|move|kill|rmdir)\b)"
    r"|\[\s{0,5}[\"'](?:rm|remove|rename|kill|require)[\"']\s{0,5}\]"
)
_HOME = (
    r"expand_?(?:user|path)|Path\.home|homedir|Dir\.home|getpw(?:nam|uid)|environ\b[^\n]{0,12}\bHOME|getenv[^\n]{0,6}\bHOME"
    r"|ENV(?:IRON)?[\[{(.][\"']?HOME|env(?:\.|\[[\"']|\()HOME|\$HOME|environ\s{1,5}as\b|userInfo\(|\benv::"
)
"""Patterns of code that asks where the home directory is."""
_FILES = (
    r"\bopen\b|read_?text|read_?bytes|read_?file|write_?text|write_?bytes|write_?file|Stream\(|Sync\(|copy|\bwalk\b|glob"
    r"|listdir|scandir|iterdir|readdir|opendir|rglob|<>|getline|print\s{0,5}>|File\.|IO\.|slurp|file_get_contents|readlines"
    r"|symlink|mkdir|touch|fs\.|\bfs/|ARGV|fileinput|tarfile|zipfile"
)
"""Patterns of code that works with files."""
_UPWARDS = r"\.parents?\b|pardir|dirname\s{0,5}\(|chdir"
"""Patterns of code that uses other directories than the working directory."""
_WALKS_UPWARDS = r"(?:cwd|resolve|absolute|getcwd)\(\)[^\n]{0,60}\.parent|pardir|dirname\([^\n]{0,20}getcwd"
_BUILT_NAME = r"(?:open|Path|readFileSync)\(\s{0,5}f?[\"']\.{1,2}(?:/\.)?(?:%|\{|[\"']\s{0,5}[+%])"
_LOADED_ENV = r"keyring\.get_|dotenv_values|dotenv\.parse|process\.env\b(?![.\[])[^\n]{0,20}\)"
_WALKS = (
    r"\btarfile\b|\bzipfile\b|\bwalk\b|glob|listdir|scandir|iterdir|readdir|opendir|Dir\.|chdir|<\*>|readtree|copytree"
    r"|make_archive|File::Find|\bcd\b"
)
_WRITES = (
    r"[\"'](?:[wax]b?\+?|r\+)[\"']|write_?text|write_?bytes|writeFile|WriteStream|appendFile|file_put_contents"
    r"|>\s{0,5}[\"']|[\"']\s{0,5}>|\.touch\(|File\.write|O_WRONLY|O_CREAT|os\.open|copy(?:file|tree|2)?\(|copyFile"
    r"|\bprintf?\b[^\n;}]{0,200}>|symlink|link\(|extract(?:all)?\(|unpack_archive\(|inplace|\bsysopen\b|\btruncate"
    r"|File::Copy|cpSync|urlretrieve|linkSync|\bmove\s{0,5}\(|\bcopy\s{0,5}\(|\bopen\s{1,9}\S{1,300}\s{1,9}[wa]\+?(?=[\s\]])"
)
_LINKS = r"symlink|\blink(?:Sync)?\s{0,5}\(|hardlink_to"
_SOCKETS = r"sendall\(|\.sendto\(|SMTP(?:_SSL)?\(|ftplib"
_SENDS = r"\bfetch\(|\b(?:requests|httpx|session|client|axios|http)\.(?:post|put|patch|request)\b|urlopen\("
_REMOTE = r"https?://(?!localhost|127\.|\[::1\]|0\.0\.0\.0)"
_READS = r"\bopen\s{0,5}\(|read_?text|read_?bytes|readFile|file_get_contents"
_OBFUSCATED = (
    r"bytes\(\s{0,5}[\[(]|bytearray\(|b64decode|fromhex|unhexlify"
    r"|fromCharCode|\batob\(|codecs\.decode|\[::-1\]|\bchr\(|marshal\.|rot_?13|pack\("
)
_COPIES = r"extract(?:all)?\(|unpack_archive\(|copy(?:file|tree|2)?\(|copyFile|cpSync|\bcp\(|\bmove\("
_STRING = r"\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'"
"""Linear: an open quote is passed over once in each line."""
_FISH_SETTINGS = (
    r"\bset\s{1,9}-\w*U|--universal|\bfuncsave\b|\balias\s{1,9}(?:-s|--save)|\bfish_add_path\b|\bfish_config\b"
)
_ZSH_ONLY = r"(?:^|[\s;&|(])=\w|\bzmodload\b|\bzf_\w|\$\{\(|\bzmv\b|\bautoload\b|\bsysopen\b"
_HOOKS = (
    r"[\"'](?:\.vscode|\.husky|\.circleci|\.devcontainer|\.idea|\.github|\.git)[\"']|"
    r"hooks/(?:pre|post|commit-msg|update|applypatch|push|fsmonitor)|[\"']\.git[\"'/][^\n]{0,60}(?:hooks|config)\b"
)
_SECRET_NAME = r"(?:^|/)(?:\.(?:ssh|aws|gnupg|netrc|kube|alipes)(?:/|$)|id_(?:rsa|dsa|ecdsa|ed25519)(?:$|[^.\w]))"
_LOADED = (
    r"(?:require|require_relative|import|do|load|include|dofile|source)\b[^\"'\n]{0,40}"
    r"[\"'](\.{0,2}/[^\"'\n]{1,200}|[\w-]{1,80}\.(?:pl|pm|rb|lua|php))"
)
_IMPORTED = r"(?:^|[\n;])\s{0,9}(?:import|from)\s{1,9}([\w., ]{1,200})"
MAX_LOADING_CHARS = 50_000
"""How much of code is searched for files that it loads."""
MAX_LITERALS = 2_000
MAX_LITERAL_CHARS = 400
MAX_RUN = 6
"""Literals in a row that may be the parts of one path."""
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


def language_of(name: str) -> str:
    """The language of an interpreter, without its version; empty if it is not a known one."""
    base = "awk" if name.endswith("awk") else re.sub(r"[\d.]{1,20}$", "", name[-40:]).replace("pypy", "python")
    return base if base in _CODE_OPTIONS else ""


def find_code(base: str, args: ShellArguments, stdin: ShellWord | None) -> Iterator[ShellWord]:
    """The words that are code. `stdin`: its input, if known."""
    yield from args.values(_CODE_OPTIONS[base], "eval", "print", "source", "execute")
    if base == "awk":  # its first operand is code, unless it belongs to an option
        yield from (word for word in args.operands if not word.is_known or re.search(r"[{(]", word.text))
    if base == "deno":
        yield from args.operands[1:]
    if stdin is not None and (not args.operands or args.operands[0].text in ("-", "/dev/stdin")):
        yield stdin
    if any(word.text.startswith(UNKNOWN) for word in args.operands[:1]) and base != "awk":
        yield ShellWord(UNKNOWN)


def search_text(pattern: str, text: str) -> bool:
    """`re.search` in pieces, so that a long text does not keep the interpreter lock. Matches are short."""
    return any(map(re.compile(pattern).search, split_pieces(text)))


class CodeText:
    """Code with joined literals: `'a' + 'b'` becomes `'ab'`."""

    def __init__(self, code: str) -> None:
        pieces: list[str] = []
        runs: list[list[str]] = []
        """Literals, and those that follow with a comma or slash between them."""
        at = 0
        for found in re.finditer(_STRING, code):
            gap, inner = code[at : found.start()].strip(), found[0][1:-1]
            if runs and gap in ("+", ".", "..") and at:
                pieces.pop()
                runs[-1][-1] += inner if len(runs[-1][-1]) < MAX_LITERAL_CHARS else ""
            elif runs and gap in (",", "/", "") and at and len(runs[-1]) < MAX_RUN:
                pieces += [code[at : found.start()], found[0][0]]
                runs[-1].append(inner)
            else:
                pieces += [code[at : found.start()], found[0][0]]
                runs.append([inner])
            pieces += [inner, found[0][-1]]
            at = found.end()
        self.text = "".join([*pieces, code[at:]])
        self._runs = runs

    def paths(self) -> set[str]:
        """Literals that may be paths, also as the parts of `join('a', 'b')`."""
        found: set[str] = set()
        for run in self._runs:
            joined = ["/".join(run), "".join(run)] if len(run) > 1 else []
            parts = [text.lstrip("/") for text in run if text.startswith("/.")]  # perhaps after a variable
            texts = (*run, *joined, *parts)
            found.update(text for text in texts if re.search(r"[/.]|^~|^id_", text[:MAX_LITERAL_CHARS]))
        return {text for text in found if len(text) <= MAX_LITERAL_CHARS}


def quote_words(code: ShellWord) -> ShellWord:
    """Code of a language that needs no quotes around names, with its words in quotes besides."""
    words = re.split(r"[\s\[\]{}\"';]+", code.text[:MAX_LOADING_CHARS])
    return ShellWord("\n".join([code.text, *(f'"{word}";' for word in words if re.search(r"[/.]", word))]))


def check_code(code: ShellWord, checker: PathChecker) -> Risk | None:
    """The risk of code that is given in a call."""
    if not code.is_known:
        return Risk("hidden", "runs code that is built at run time", unseen=True)
    parsed = CodeText(code.text)
    if search_text(_DELETES, parsed.text) or search_text(_RUNS, parsed.text):
        return Risk("code", "runs code that starts programs or deletes files")
    if search_text(_OBFUSCATED, parsed.text) and search_text(_FILES, parsed.text):
        return Risk("hidden", "runs code that builds the names of files at run time")
    if search_text(_HOME, parsed.text) and search_text(_FILES, parsed.text):
        return Risk("code", "runs code that works with files in the home directory")
    if search_text(_BUILT_NAME, code.text):
        return Risk("hidden", "runs code that builds the names of files at run time")
    if search_text(_WALKS, parsed.text) and search_text(_WALKS_UPWARDS, parsed.text):
        return Risk("code", "runs code that works with files outside the project")
    if search_text(_LOADED_ENV, parsed.text):
        return Risk("secret", "runs code that may print values of a .env file")
    if search_text(f"{METADATA_HOST}|{OWN_API}", parsed.text):
        return Risk("secret", "runs code that asks this machine for credentials")
    sends = search_text(_SOCKETS, parsed.text) or (
        search_text(_SENDS, parsed.text) and search_text(_REMOTE, parsed.text)
    )
    if sends and search_text(_READS, parsed.text):
        return Risk("send", "runs code that sends a file to another machine")
    return _check_paths(parsed, checker)


def runs_programs(code: str) -> bool:
    """True if code may start other programs, or run text as code."""
    return search_text(_RUNS, CodeText(code).text)


def check_script(text: str, checker: PathChecker) -> Risk | None:
    """The risk of a program file: only what is clearly dangerous, as programs do start others and delete files."""
    parsed = CodeText(text)
    if search_text(_HOME, parsed.text) and search_text(_DELETES, parsed.text):
        return Risk("code", "runs a program that deletes files in the home directory")
    return _check_paths(parsed, checker)


def _check_paths(code: CodeText, checker: PathChecker) -> Risk | None:
    """Risks of the files that code names."""
    writes, walks, copies = (search_text(pattern, code.text) for pattern in (_WRITES, _WALKS, _COPIES))
    if writes and search_text(_HOOKS, code.text):
        return Risk("trusted", "runs code that may change hooks or settings of git", "workspace")
    found = code.paths()
    if len(found) > MAX_LITERALS:
        return Risk("unclear", "holds too many file names to check", unseen=True)
    upwards = search_text(_UPWARDS, code.text) or any(text.startswith("/.") for text in found)
    with checker.directories.anywhere() if upwards else nullcontext():
        links = search_text(_LINKS, code.text)
        return _check_literals(found, checker, writes=writes, walks=walks, copies=copies, links=links)


def _check_literals(
    found: Iterable[str], checker: PathChecker, *, writes: bool, walks: bool, copies: bool, links: bool
) -> Risk | None:
    for literal in found:
        word = ShellWord(re.sub(r"^~(?=/|$)", checker.home, literal.lstrip("<>| ")), has_glob=walks)
        if re.search(_SECRET_NAME, literal) and not literal.endswith(".pub"):
            return Risk("secret", "runs code that names a file with secrets")
        risk = checker.check_read("code", word) or (checker.check_write(word) if writes else None)
        risk = risk or (checker.check_copy(word) if walks or links else None)
        if risk := risk or (checker.check_unpack(word) if copies and literal.endswith(("/", "..")) else None):
            return risk
    return None


def piped_commands(code: str) -> Iterator[str]:
    """Commands that awk runs: `print | "x"`, `"x" | getline`."""
    yield from re.findall(r"\|&?\s{0,5}\"([^\"\n]{1,400})\"", code[:MAX_TEXT_CHARS])


def check_other_shell(name: str, args: ShellArguments) -> Risk | None:
    """What zsh and fish do differently from bash."""
    text = "\n".join(word.text for word in (*args.values("cC", "command", "init-command"), *args.operands))
    if name == "fish" and re.search(_FISH_SETTINGS, text):
        return Risk("startup", "changes settings of fish that last")
    if name == "zsh" and re.search(_ZSH_ONLY, text):
        return Risk("hidden", "uses features of zsh that run other commands", unseen=True)
    return None


def loaded_files(base: str, text: str) -> Iterator[str]:
    """Paths of local files that code loads; for Python names of modules with `.py`."""
    for piece in split_pieces(text[:MAX_LOADING_CHARS]):
        for line in re.findall(_IMPORTED, piece) if base in ("python", "ipython") else ():
            yield from _module_files(line)
        yield from re.findall(_LOADED, piece)


def _module_files(line: str) -> Iterator[str]:
    """Files of the modules in `a.b, c` or `a import b, c`."""
    package, sign, names = line.partition(" import ")
    for name in names.split(",") if sign else ():
        yield f"{package.strip().replace('.', '/')}/{name.strip().split(' ')[0]}.py"
    for name in [package] if sign else line.split(","):
        parts = name.strip().split(" ")[0].split(".")
        yield from (f"{'/'.join(parts[:count])}{end}" for count in (1, len(parts)) for end in (".py", "/__init__.py"))


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
