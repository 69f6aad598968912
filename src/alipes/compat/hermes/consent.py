"""Whose shell hooks may run: a person's word on each, kept in a file. It runs none and asks nobody."""

import json
import os
import shlex
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from alipes.config.variables import read_text
from alipes.kernel.errors import ConfigError

FILE = "shell-hooks-allowlist.json"


class Consents:
    """A word counts for one event, one command, and the files it names as they were at the time."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def given(self, event: str, command: str) -> bool:
        """May it run? A command whose files changed since is asked for anew."""
        wanted = {"event": event, "command": command, "files": files_of(command)}
        return any(wanted.items() <= each.items() for each in self._read())

    def give(self, event: str, command: str) -> None:
        """From now on it may, as it is."""
        kept = [each for each in self._read() if (each.get("event"), each.get("command")) != (event, command)]
        word = {"event": event, "command": command, "files": files_of(command), "given": time.time()}
        self._write([*kept, word])

    def withdraw(self, command: str, event: str = "") -> int:
        """It may no longer, at any event unless one is named; how many words that were."""
        before = self._read()
        kept = [
            each
            for each in before
            if each.get("command") != command or (event and each.get("event") != event)
        ]
        if len(kept) < len(before):
            self._write(kept)
        return len(before) - len(kept)

    def _read(self) -> list[dict[str, Any]]:
        try:
            words = json.loads(read_text(self.file) or '{"approvals": []}')["approvals"]
            return [each for each in words if isinstance(each, dict)]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.file} is not what it was written as: remove it, and say again what may run."
            ) from error

    def _write(self, words: Iterable[dict[str, Any]]) -> None:
        """All of it or nothing, for our eyes only."""
        new = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        try:
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
            ) as opened:
                json.dump({"approvals": list(words)}, opened, indent=2)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(new, self.file)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise ConfigError(f"{self.file} cannot be written: {error.strerror}.") from error


def argv_of(command: str) -> list[str]:
    """The words of a command, without a shell; a word that begins with ~ is a path. Raises ValueError."""
    return [os.path.expanduser(word) for word in shlex.split(command)]


def files_of(command: str) -> dict[str, int]:
    """The files that a command names by a path, and when each was last changed, in nanoseconds."""
    try:
        program, *words = argv_of(command)
    except ValueError:
        return {}
    named = [program, *words] if "/" in program else words
    found = {}
    for word in named:
        with suppress(OSError, ValueError):
            if os.path.isfile(word):
                found[os.path.realpath(word)] = os.stat(word).st_mtime_ns
    return found
