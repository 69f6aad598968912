"""Code in the arguments of commands: which words are code, and the literals in it."""

import re
from collections.abc import Iterator

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Risk
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord, split_pieces
from alipes.agent.approval.shell.subcommands import for_each

_CODE_OPTIONS = {
    **for_each("python ipython guile expect", "c"),
    **for_each("ruby lua bun Rscript", "e"),
    **for_each("perl julia", "eE"),
    "node": "ep",
    "php": "r",
    **for_each("awk deno tclsh", ""),
}
"""By language: the options whose value is code."""
WRITES = (
    r"[\"'](?:[wax]b?\+?|r\+)[\"']|write_?text|write_?bytes|writeFile|WriteStream|appendFile|file_put_contents"
    r"|>\s{0,5}[\"']|[\"']\s{0,5}>|\.touch\(|File\.write|O_WRONLY|O_CREAT|os\.open|copy(?:file|tree|2)?\(|copyFile"
    r"|\bprintf?\b[^\n;}]{0,200}>|symlink|link\(|extract(?:all)?\(|unpack_archive\(|inplace|\bsysopen\b|\btruncate"
    r"|File::Copy|cpSync|urlretrieve|linkSync|\bmove\s{0,5}\(|\bcopy\s{0,5}\(|\bopen\s{1,9}\S{1,300}\s{1,9}[wa]\+?(?=[\s\]])"
)
_STRING = r"\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'"
"""Linear: an open quote is passed over once in each line."""
HOOKS = (
    r"[\"'](?:\.vscode|\.husky|\.circleci|\.devcontainer|\.idea|\.github|\.git)[\"']|"
    r"hooks/(?:pre|post|commit-msg|update|applypatch|push|fsmonitor)|[\"']\.git[\"'/][^\n]{0,60}(?:hooks|config)\b"
)
HOOK_CODE = Risk("trusted", "runs code that may change hooks or settings of git", "workspace")
MAX_LITERALS = 2_000
MAX_LITERAL_CHARS = 400
MAX_RUN = 6
"""Literals in a row that may be the parts of one path."""


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


def check_written(code: ShellWord, checker: PathChecker) -> Risk | None:
    """The risk of the files of the project that code writes, as far as its literals name them."""
    if not code.is_known or not search_text(WRITES, code.text):
        return None
    parsed = CodeText(code.text)
    if search_text(HOOKS, parsed.text):
        return HOOK_CODE
    found = (checker.check_write(ShellWord(text)) for text in sorted(parsed.paths())[:MAX_LITERALS])
    return next((risk for risk in found if risk and risk.scope == "workspace"), None)
