"""Code in other languages that a command carries: which word it is, and what it says it does. No parser."""

import re
from collections.abc import Iterator

from alipes.agent.ground import Ground, Risk
from alipes.agent.shell_args import Args
from alipes.agent.shell_words import HOLE, Word

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
