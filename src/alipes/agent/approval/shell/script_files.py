"""Files that a command runs: what the text itself wrote into them, or what they hold now."""

import os
import re
import stat
from collections.abc import Sequence

from alipes.agent.approval.directories import is_in
from alipes.agent.approval.paths import PathChecker
from alipes.agent.approval.shell.lexer import UNKNOWN, ShellArguments, ShellWord
from alipes.agent.approval.shell.parser import ShellCommand

MAX_SCRIPT_BYTES = 64_000
"""How much of a script is read."""


class ScriptFiles:
    """Follows the files that the commands of one text write."""

    def __init__(self, paths: PathChecker) -> None:
        self._paths = paths
        self._written: dict[str, str] = {}
        """Content by real path; `UNKNOWN` if it cannot be seen."""
        self.search_path: list[str] = []
        """Directories that the text put before the others in PATH."""

    def note_write(self, target: ShellWord, content: ShellWord | None) -> None:
        """The text writes this file."""
        for path in self._paths.directories.resolve(target):
            if path:
                self._written[path] = content.text if content is not None else UNKNOWN

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
        for target in args.operands[0 if args.has("ef", "expression", "file") else 1 :]:
            if before := self.read(target):
                self.note_write(target, ShellWord("\n".join([before, *added])))

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
            system = all(path and is_in(path, "/usr") for path in self._paths.directories.resolve(name))
            return None if system else name
        found = (os.path.join(folder, name.text) for folder in self.search_path)
        return next((ShellWord(path) for path in found if os.path.exists(path) or path in self._written), None)

    def add_search_path(self, value: ShellWord) -> bool:
        """Follow an assignment of PATH. False if it names a relative directory."""
        entries = value.text.split(":")
        self.search_path += [entry for entry in entries if entry.startswith("/") and not is_in(entry, "/usr")]
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
    if name in ("echo", "printf"):
        return ShellWord(unescape(join_printed(command.words[1:])))
    return command.stdin if name in ("cat", "tee", "") else None


def join_printed(words: Sequence[ShellWord]) -> str:
    printed = [word.text for word in words]
    while printed and re.fullmatch(r"-[neE]{1,3}", printed[0]):
        del printed[0]
    return " ".join(printed)


def unescape(text: str) -> str:
    """Line breaks and tabs of `printf`; other escapes stay as they are."""
    return text.replace("\\n", "\n").replace("\\t", "\t")
