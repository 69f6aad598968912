"""Files that a command runs: what the text itself wrote into them, or what they hold now."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch

from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.shell.lexer import SOME_NAME, UNKNOWN, ShellArguments, ShellWord
from alipes.agent.approval.shell.parser import ShellCommand
from alipes.agent.approval.shell.printed import join_printed, print_format, unescape
from alipes.agent.approval.shell.subcommands import for_each
from alipes.runtime.sandbox.policy import is_inside

MAX_SCRIPT_BYTES = 64_000
"""How much of a script is read."""
MAX_SCRIPTS = 20
MAX_CODE_CHARS, MAX_LITERALS = 20_000, 200
_SED_ADDS = r"(?:^|[\d$/;{])\s{0,9}[aic](?:\\|\s)\s{0,9}([^\n]{1,400})"
_CODE_WRITES = r"\b(?:open|write|print|puts|fs|copy|Path)\b|write\w{0,9}\("
_LITERAL = r"\"([^\"\n]{1,300})\"|'([^'\n]{1,300})'"
_PLAIN_PROGRAMS = for_each(
    "cat head tail less more grep egrep fgrep rg ls stat file wc cp mv ln rm chmod chown touch mkdir tee diff cmp"
    " sort install echo printf test [ find md5sum sha256sum shellcheck shfmt code gh curl wget scp cut sed awk",
    True,
)
"""Programs that run no file which an option names."""


class ScriptFiles:
    """Follows the files that the commands of one text write."""

    def __init__(self, paths: PathChecker) -> None:
        self._paths = paths
        self._written: dict[str, str] = {}
        """Content by real path; `UNKNOWN` if it cannot be seen."""
        self._literals: dict[str, list[str]] = {}
        self.search_path: list[str] = []
        """Directories that the text put before the others in PATH."""

    def note_write(self, target: ShellWord, content: ShellWord | None, *, append: bool = False) -> None:
        """The text writes this file; with `append` after what it holds."""
        for path in self._paths.directories.resolve(target):
            if path:
                before = self._written.get(path) or read_script(path) if append else ""
                added = content.text if content is not None else UNKNOWN
                self._written[path] = f"{before}\n{added}" if before else added

    def note_copies(self, name: str, args: ShellArguments) -> None:
        """Follow `cp`, `mv`, `install`, `ln`, `curl -o` and `wget`."""
        if name in ("cp", "mv", "install", "ln") and len(args.operands) > 1:
            source = self.read(args.operands[-2])
            self.note_write(args.operands[-1], ShellWord(source) if source else None)
        if name in ("curl", "wget"):
            names = [word for word in args.values("oO", "output", "output-document") if word.text]
            urls = [word.text.rpartition("/")[2] for word in args.operands if "/" in word.text]
            for target in [*names, *map(ShellWord, urls)]:
                self.note_write(target, None)

    def note_edits(self, name: str, args: ShellArguments) -> None:
        """Follow `sed -i`: what it puts in is added to the content."""
        if name not in ("sed", "gsed") or not any(re.match(r"-\w*i|--in-place", word.text) for word in args.options):
            return
        pattern = r"s([^\w\s]).{0,400}?\1(.{0,400}?)\1"
        added = [found[1] for word in args.words for found in re.findall(pattern, word.text[:4000])]
        added += [text for word in args.words for text in re.findall(_SED_ADDS, word.text[:4000])]
        for target in args.operands[0 if args.has("ef", "expression", "file") else 1 :]:
            if before := self.read(target):
                self.note_write(target, ShellWord("\n".join([before, *added])))

    def note_literals(self, code: str) -> None:
        """Code that may write the files which it names: what its literals say may be in them."""
        if not re.search(_CODE_WRITES, code[:MAX_CODE_CHARS]):
            return
        found = [text for pair in re.findall(_LITERAL, code[:MAX_CODE_CHARS]) for text in pair if text][:MAX_LITERALS]
        for name in (text.lstrip("> ") for text in found if " " not in text.lstrip("> ")):
            for path in self._resolve(ShellWord(name)):
                if path:
                    self._literals.setdefault(path, []).extend(found)

    def find_literals(self, word: ShellWord) -> list[str]:
        """Texts that code may have written into a file."""
        return [text for path in self._resolve(word) if path for text in self._literals.get(path, ()) if " " in text]

    def find_scripts(self, word: ShellWord, kind: str, loop_words: Sequence[ShellWord]) -> list[ShellWord]:
        """The files that a word means, if it is a pattern, the variable of a loop, or a folder."""
        patterns = [word] if word.has_glob else [*loop_words] if SOME_NAME in word.text else []
        if patterns:
            found = [path for each in patterns for path in self._paths.directories.expand(each)[:MAX_SCRIPTS]]
            names = [os.path.basename(each.text) for each in patterns]
            found += [path for path in self._written if any(fnmatch(os.path.basename(path), name) for name in names)]
            return [ShellWord(path) for path in found]
        main = ShellWord(os.path.join(word.text, "__main__.py"))
        if kind == "python" and (self.read(main) or self.was_written(main)):
            return [main]
        if kind == "python" and word.text.endswith(".py") and not self.read(word):
            return [each for each in (ShellWord(os.path.join(word.text[:-3], "__main__.py")),) if self.read(each)]
        with_suffix = ShellWord(f"{word.text}.js")
        return [with_suffix] if kind == "node" and not self.read(word) and self.read(with_suffix) else []

    def find_option_files(self, name: str, args: ShellArguments) -> Iterator[ShellWord]:
        """Programs of the project that options name, as in `tar -I ./x` and `git fetch --upload-pack=./x`."""
        if name in _PLAIN_PROGRAMS:
            return
        if name == "run-parts":
            yield from (ShellWord(os.path.join(word.text, "*"), has_glob=True) for word in args.operands[-1:])
        before = ShellWord("")
        for word in args.words:
            value = word.text.partition("=")[2] if word.text.startswith("-") else ""
            value = word.text[2:] if re.match(r"-\w[./~]", word.text) else value
            if before.text.startswith("-") and not word.text.startswith("-"):
                value = word.text
            if value and UNKNOWN not in value and " " not in value and self.is_script(ShellWord(value)):
                yield ShellWord(value)
            before = word

    def is_script(self, word: ShellWord) -> bool:
        """True if a word names a program file, or one that a shell runs."""
        return self.is_program(word) or re.match("#!", self.read(word)) is not None or word.text.endswith(".sh")

    def is_program(self, word: ShellWord) -> bool:
        """True if a word names an executable file that is there."""
        return any(path and os.path.isfile(path) and os.access(path, os.X_OK) for path in self._resolve(word))

    def _resolve(self, word: ShellWord) -> list[str | None]:
        return self._paths.directories.resolve(word)

    def was_written(self, word: ShellWord) -> bool:
        return any(path in self._written for path in self._paths.directories.resolve(word) if path)

    def read(self, word: ShellWord) -> str:
        """Content of the file that a word names: as the text wrote it, else as it is now. Empty if unreadable."""
        for path in self._paths.directories.resolve(word):
            if path and (text := self._written.get(path) or read_script(path)):
                return text
        return ""

    def find_command(self, name: ShellWord) -> ShellWord | None:
        """The file that a command name runs, if it is neither a system program nor a builtin."""
        if not name.is_known or not name.text:
            return None
        if "/" in name.text:
            system = all(path and is_inside(path, "/usr") for path in self._paths.directories.resolve(name))
            return None if system else name
        found = (os.path.join(folder, name.text) for folder in self.search_path)
        return next((ShellWord(path) for path in found if os.path.exists(path) or path in self._written), None)

    def add_search_path(self, value: ShellWord) -> bool:
        """Follow an assignment of PATH. False if it names a relative directory."""
        entries = value.text.split(":")
        self.search_path += [entry for entry in entries if entry.startswith("/") and not is_inside(entry, "/usr")]
        unknown = sum(entry == UNKNOWN for entry in entries)  # one is PATH itself
        return unknown < 2 and not any(entry == "" or not entry.startswith(("/", UNKNOWN)) for entry in entries)


def read_script(path: str) -> str:
    """The start of a text file; empty if it cannot be read or is no text."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb", buffering=0) as file:
            content = file.read(MAX_SCRIPT_BYTES)
    except (OSError, ValueError):
        return ""
    return "" if b"\0" in content else content.decode(errors="replace")


def written_content(command: ShellCommand) -> ShellWord | None:
    """What a command prints into its redirection, if the text shows it."""
    name = command.words[0].text if command.words else ""
    if name == "printf" and UNKNOWN not in (text := print_format([word.text for word in command.words[1:]])):
        return ShellWord(unescape(text))
    if name in ("echo", "printf"):
        return ShellWord(unescape(join_printed(command.words[1:])))
    return command.stdin if name in ("cat", "tee", "") else None
