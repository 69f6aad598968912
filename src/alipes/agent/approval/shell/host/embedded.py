"""Code of other languages in arguments and scripts: what it deletes, runs, reads and writes, as far as one can see."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Risk
from alipes.agent.approval.shell.code import HOOK_CODE, HOOKS, MAX_LITERALS, WRITES, CodeText, search_text
from alipes.agent.approval.shell.host.subcommands import METADATA_HOST, OWN_API
from alipes.agent.approval.shell.lexer import ShellArguments, ShellWord, split_pieces
from alipes.agent.approval.shell.nested import MAX_TEXT_CHARS

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
_FISH_SETTINGS = (
    r"\bset\s{1,9}-\w*U|--universal|\bfuncsave\b|\balias\s{1,9}(?:-s|--save)|\bfish_add_path\b|\bfish_config\b"
)
_ZSH_ONLY = r"(?:^|[\s;&|(])=\w|\bzmodload\b|\bzf_\w|\$\{\(|\bzmv\b|\bautoload\b|\bsysopen\b"
_SECRET_NAME = r"(?:^|/)(?:\.(?:ssh|aws|gnupg|netrc|kube|alipes)(?:/|$)|id_(?:rsa|dsa|ecdsa|ed25519)(?:$|[^.\w]))"
_LOADED = (
    r"(?:require|require_relative|import|do|load|include|dofile|source)\b[^\"'\n]{0,40}"
    r"[\"'](\.{0,2}/[^\"'\n]{1,200}|[\w-]{1,80}\.(?:pl|pm|rb|lua|php))"
)
_IMPORTED = (
    r"(?:^|[\n;:])\s{0,40}(?:from\s{1,9}([\w.]{1,200})\s{1,9}import\s{0,9}(?:\(([^)]{1,2000})|([\w, \t]{1,1000}))"
    r"|import\s{1,9}([\w., \t]{1,1000}))"
)
MAX_LOADING_CHARS = 50_000
"""How much of code is searched for files that it loads."""


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
    writes, walks, copies = (search_text(pattern, code.text) for pattern in (WRITES, _WALKS, _COPIES))
    if writes and search_text(HOOKS, code.text):
        return HOOK_CODE
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
        for package, inside, names, modules in re.findall(_IMPORTED, piece) if base in ("python", "ipython") else ():
            yield from _module_files(package, re.split(r"[,\s]+", inside or names)) if package else ()
            for name in filter(str.strip, modules.split(",")):
                yield from _module_files(name.split()[0], [])
        yield from re.findall(_LOADED, piece)


def _module_files(package: str, names: Sequence[str]) -> Iterator[str]:
    """Files of a module and of the packages around it, and of `names` if these are modules in it."""
    dots = len(package) - len(package.lstrip("."))
    up, parts = ["."] * min(dots, 1) + [".."] * (dots - 1), package.lstrip(".").split(".")
    for count in range(1, len(parts) + 1):
        yield from ("/".join([*up, *parts[:count]]) + end for end in (".py", "/__init__.py"))
    for name in filter(str.isidentifier, names):
        yield from ("/".join([*up, *filter(None, parts), name]) + end for end in (".py", "/__init__.py"))
