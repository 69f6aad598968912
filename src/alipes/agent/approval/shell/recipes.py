"""Commands in build files: the recipes that `make` runs, and the scripts of `npm run`."""

import json
import re
from collections.abc import Iterator, Sequence

from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord
from alipes.agent.approval.shell.script_files import ScriptFiles

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_RULE = r"([^\t#:=\n][^#:=\n]{0,300}?)\s{0,9}::?(?!=)([^=;#\n]{0,1000})(?:;(.{0,1000}))?"
_VARIABLE = r"\$(?:\(([^()$]{0,200})\)|\{([^{}$]{0,200})\}|[@<^?*%+|])"
MAX_LINES = 2_000


def find_recipes(name: str, args: ShellArguments, files: ScriptFiles) -> Iterator[tuple[ShellWord, str]]:
    """The build file that a program uses, and the commands that it runs from it."""
    if name in ("make", "gmake"):
        named = [word for word in args.values("f", "file", "makefile") if word.text]
        targets = [word.text for word in args.operands if "=" not in word.text and word not in named]
        for file in named or [ShellWord(each) for each in _MAKEFILES]:
            if text := files.read(file):
                yield file, _all_lines(text) if files.was_written(file) else "\n".join(read_makefile(text, targets))
                return
    if name in ("npm", "pnpm", "yarn", "bun"):
        words = [word.text for word in args.operands]
        script = words[1] if words[:1] in (["run"], ["run-script"]) and len(words) > 1 else next(iter(words), "")
        file = ShellWord("package.json")
        if files.was_written(file):
            yield file, _all_lines(files.read(file))
        elif scripts := read_scripts(files.read(file)):
            found = (scripts.get(f"{kind}{script}") for kind in ("pre", "", "post"))
            yield file, "\n".join(text for text in found if isinstance(text, str))


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
    waiting, seen = list(targets or [first]), set[str]()
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
