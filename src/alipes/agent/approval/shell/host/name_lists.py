"""Files that give a program names, options or code: `tar -T list`, `curl -K options`, `#include "x"`."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.risk import Risk
from alipes.agent.approval.shell.host.script_files import ScriptFiles
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord
from alipes.agent.approval.shell.subcommands import for_each

_NAME_LISTS: dict[str, tuple[str, tuple[str, ...]]] = {
    **for_each("tar bsdtar gtar", ("T", ("files-from",))),
    "rsync": ("", ("files-from",)),
    "wget": ("i", ("input-file",)),
    **for_each("wc sort du", ("", ("files0-from",))),
    "file": ("f", ("files-from",)),
    "curl": ("K", ("config",)),
    "git": ("", ("pathspec-from-file",)),
}
"""By program: options that name a file with the names of others, or with options."""
_COMPILERS = for_each("gcc cc g++ c++ clang clang++ cpp as tcc c99 c89", True)
_INCLUDES = r"(?:#\s{0,9}(?:include|import|embed)|\.inc(?:lude|bin))\s{0,9}[\"<]([^\">\n]{1,300})[\">]"
_HIDDEN_LIST = Risk("hidden", "reads names or options that are only known at run time", unseen=True)
MAX_LINES = 500


def check_name_lists(
    name: str, args: ShellArguments, stdin: ShellWord | None, files: ScriptFiles, paths: PathChecker
) -> Iterator[Risk | None]:
    """Risks of the files that are named in other files."""
    letters, names = _NAME_LISTS.get(name, ("", ()))
    lists = [word for word in args.values(letters, *names) if word.text] if names else []
    if name in ("zip", "cpio") and (ShellWord("-@") in args.words or (name == "cpio" and args.has("op", "create"))):
        lists.append(ShellWord("-"))
    for word in lists:
        yield paths.check_read("list", word)
        text = _content(word, stdin, files)
        if text is None or UNKNOWN in text:
            yield _HIDDEN_LIST
        elif text:
            yield from _check_lines(name, text, paths)
    if name in _COMPILERS:
        given = [files.read(word) for word in args.operands if re.search(r"\.\w{1,3}$", word.text)]
        for text in (*given, stdin.text if stdin is not None else ""):
            included = re.findall(_INCLUDES, text)
            yield from (paths.check_read(name, ShellWord(path)) for path in included[:MAX_LINES])


def _content(word: ShellWord, stdin: ShellWord | None, files: ScriptFiles) -> str | None:
    """What a list holds; None if that is only known at run time."""
    if word.text in ("-", "/dev/stdin"):
        return stdin.text if stdin is not None else ""
    return files.read(word) if word.is_known else None


def _check_lines(name: str, text: str, paths: PathChecker) -> Iterator[Risk | None]:
    for line in re.split(r"[\n\0]", text)[:MAX_LINES]:
        if name == "curl":
            key, _, value = re.sub(r"^[\s-]{0,9}(\w[\w-]{0,40})[\s=:]{1,9}", r"\1=", line).partition("=")
            word = ShellWord(unquote(re.sub(r"(?i)^file://(?:localhost)?", "", value.strip().strip('"'))))
            is_written = re.match(r"o$|output|dump-header|D$|cookie-jar|c$|trace|stderr", key)
            yield paths.check_write(word) if is_written and word.text else paths.check_read(name, word)
        else:
            word = ShellWord(line.strip())
            yield paths.check_read(name, word) or paths.check_copy(word)
