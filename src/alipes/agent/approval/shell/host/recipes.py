"""Commands in build files: the recipes that `make` runs, and the scripts of `npm run`."""

import json
import os
import re
from collections.abc import Iterator, Sequence

from alipes.agent.approval.shell.host.script_files import ScriptFiles
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_RULE = r"([^\t#:=\n][^#:=\n]{0,300}?)\s{0,9}::?(?!=)([^=;#\n]{0,1000})(?:;(.{0,1000}))?"
_VARIABLE = r"\$(?:\(([^()$]{0,200})\)|\{([^{}$]{0,200})\}|[@<^?*%+|])"
_CMAKE_COMMAND = r"(?i)execute_process\s{0,9}\(\s{0,9}COMMAND\s{1,9}([^)]{1,400})\)"
_SSH_COMMAND = r"(?im)^\s{0,20}(?:ProxyCommand|LocalCommand|KnownHostsCommand|Match\s{1,9}exec)[\s=]{1,9}(.{1,400})$"
MAX_LINES = 2_000
PACKAGE_PROGRAMS = ("npm", "pnpm", "yarn", "bun")
_INCLUDE = r"(?m)^[ ]{0,20}[-s]?include[ \t]{1,9}([^#\n]{1,1000})"


def find_recipes(
    name: str, args: ShellArguments, files: ScriptFiles, stdin: ShellWord | None
) -> Iterator[tuple[ShellWord, str]]:
    """The build file that a program uses, and the commands that it runs from it."""
    if name in ("make", "gmake"):
        yield from _find_makefile(args, files, stdin)
    elif name in PACKAGE_PROGRAMS:
        yield from _find_scripts(args, files)
    elif name == "cmake":
        folders = [*args.values("S"), ShellWord(".")]
        scripts = [*args.values("P"), *(ShellWord(os.path.join(each.text, "CMakeLists.txt")) for each in folders)]
        for file in scripts:
            found = re.findall(_CMAKE_COMMAND, files.read(file))
            yield file, "\n".join(" ".join(text.split()) for text in found)
    elif name in ("ssh", "scp", "sftp"):
        for file in args.values("F"):
            yield file, "\n".join(re.findall(_SSH_COMMAND, files.read(file)))


def _find_makefile(
    args: ShellArguments, files: ScriptFiles, stdin: ShellWord | None
) -> Iterator[tuple[ShellWord, str]]:
    named = [word for word in args.values("f", "file", "makefile") if word.text]
    targets = [word.text for word in args.operands if "=" not in word.text and word not in named]
    for file in named or [ShellWord(each) for each in _MAKEFILES]:
        if file.text in ("-", "/dev/stdin") or not file.is_known:
            yield file, _all_lines(stdin.text) if file.is_known and stdin is not None else UNKNOWN
        elif text := _with_included(files.read(file), files):
            yield file, _all_lines(text) if files.was_written(file) else "\n".join(read_makefile(text, targets))
            return


def _find_scripts(args: ShellArguments, files: ScriptFiles) -> Iterator[tuple[ShellWord, str]]:
    words = [word.text for word in args.operands]
    script = words[1] if words[:1] in (["run"], ["run-script"]) and len(words) > 1 else next(iter(words), "")
    file = ShellWord("package.json")
    scripts = read_scripts(files.read(file))
    if files.was_written(file):
        yield file, "\n".join(map(str, scripts.values())) if scripts else UNKNOWN
    elif scripts:
        found = (scripts.get(f"{kind}{script}") for kind in ("pre", "", "post"))
        yield file, "\n".join(text for text in found if isinstance(text, str))


def _with_included(text: str, files: ScriptFiles) -> str:
    """A makefile with the files that it includes."""
    names = included_names(text)[:20]
    return "\n".join([text, *(files.read(ShellWord(name)) for name in names)]) if names else text


def included_names(text: str) -> list[str]:
    """The files that a makefile includes, as it names them."""
    return " ".join(re.findall(_INCLUDE, text.replace("\\\n", " "))).split()


def _all_lines(text: str) -> str:
    """All lines of a file that the text has written, as if each was a command."""
    return "\n".join(map(_to_shell, text.replace("\\\n", " ").splitlines()[:MAX_LINES])) if text else UNKNOWN


def read_makefile(text: str, targets: Sequence[str]) -> Iterator[str]:
    """The commands of these targets, or of the first one, and of what they depend on."""
    rules = dict[str, tuple[list[str], list[str]]]()
    current: list[tuple[list[str], list[str]]] = []
    for line in text.replace("\\\n", " ").splitlines()[:MAX_LINES]:
        yield from re.findall(r"\$\(shell\s([^)]{1,400})\)", line) if not line.startswith("\t") else ()
        if line.startswith("\t"):
            for _, commands in current:
                commands.append(_to_shell(line))
        elif rule := re.fullmatch(_RULE, line.rstrip()):
            current = [rules.setdefault(each, ([], [])) for each in rule[1].split()]
            for needed, commands in current:
                needed += rule[2].split()
                commands += [_to_shell(rule[3])] if rule[3] else []
    first = next((each for each in rules if not each.startswith(".")), "")
    waiting, seen = [target for target in targets if target in rules] or [first], set[str]()
    while waiting:
        target = waiting.pop(0)
        if target in seen or target not in rules:
            continue
        seen.add(target)
        needed, commands = rules[target]
        waiting += needed
        yield from commands


def _to_shell(line: str) -> str:
    """A line of a recipe as bash gets it; variables of make become a plain name."""
    line = line.strip().lstrip("@+-").replace("$$", "\0dollar\0")
    line = re.sub(r"\$[({]HOME[)}]", "\0dollar\0HOME", line)
    line = re.sub(
        r"\$\(file\s{0,9}([<>]{1,2})\s{0,9}([^,()]{1,400})(?:,[^()]{0,400})?\)", r"\0dollar\0(cat \1\2)", line
    )
    line = re.sub(r"^-?s?include\s{1,9}(?=\S)", "cat ", line)
    line = re.sub(r"\$\((?:info|warning|error|eval)\s([^()]{0,20}\0dollar\0\([^()]{0,400}\))\)", r"\1", line)
    line = re.sub(r"\$\(shell\s([^)]{1,400})\)", r"\0dollar\0(\1)", line)
    return re.sub(_VARIABLE, "x", line).replace("\0dollar\0", "$")


def read_scripts(text: str) -> dict[str, object]:
    """The scripts of a package.json; empty if there are none."""
    try:
        package = json.loads(text)
    except ValueError:
        return {}
    scripts = package.get("scripts") if isinstance(package, dict) else None
    return scripts if isinstance(scripts, dict) else {}
