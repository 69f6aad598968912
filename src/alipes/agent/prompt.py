"""The system prompt: identity, environment, persona, project notes, and what features add."""

import os
import stat
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from alipes.config.paths import find_root
from alipes.kernel.turns import Turn
from alipes.kernel.untrusted import UNTRUSTED_NOTE
from alipes.runtime.sandbox.policy import is_inside
from alipes.runtime.sandbox.project import folders_up, project_root

SOUL_LIMIT = 8_000
NOTES_LIMIT = 24_000
"""Bytes of a file that the model sees; a longer file is cut with a note."""

_IDENTITY = f"""\
You are alipes, a personal AI agent, and work for the user with your tools.

- Do the work instead of describing it. Look before you change something; verify before you call it done.
- Never invent facts, file contents or results. Say what failed, is uncertain or only partly done.
- Be concise: the answer first, in the user's language, in Markdown. No praise, filler or repetition.
- Calls that read run in parallel: make them in one message. Calls that write run in order.
- Before you delete, overwrite, send, publish or pay: make sure that it was requested, otherwise ask.
- A result marked `unknown` was cut off: find out what happened before you repeat the call.
  A denied call is a decision: do not work around it.
- A <notice> comes from the program you run in, not from the user: act on it without mentioning it.
- {UNTRUSTED_NOTE}
"""


class ComposePrompt(Protocol):
    def __call__(self, turn: Turn, *, added: Sequence[str] = ()) -> str:
        """The system prompt of a turn. `added`: sections of features."""


def system_prompt(home: Path, *, commands: Callable[[], str] = str) -> ComposePrompt:
    """Returns the function that makes a turn's system prompt: the same bytes for the whole session, as long
    as its files do not change.

    `commands()`: a sentence about where commands run.
    """
    files = _FileCache()

    def compose(turn: Turn, *, added: Sequence[str] = ()) -> str:
        sections = [_IDENTITY, _environment(turn, commands(), home)]
        if soul := files.read(home / "SOUL.md", SOUL_LIMIT):
            sections.append(f"# Your persona\n{soul}\n")
        if turn.inbound.workdir:
            path = notes_file(Path(turn.inbound.workdir))
            if path is not None and (notes := files.read(path, NOTES_LIMIT)):
                sections.append(f"# Project notes ({path})\n{notes}\n")
        sections += added
        if turn.inbound.instructions:
            sections.append(f"# Instructions for this conversation\n{turn.inbound.instructions}\n")
        return "\n".join(sections)

    return compose


def notes_file(workdir: Path) -> Path | None:
    """The nearest AGENTS.md from `workdir` up to the git root, else the nearest CLAUDE.md.

    Outside a repository only `workdir` itself is searched. A link that leads out of the repository is not followed.
    """
    folders = list(folders_up(str(workdir)))
    depth = next((n for n, folder in enumerate(folders) if os.path.exists(f"{folder}/.git")), 0)
    for name in ("AGENTS.md", "CLAUDE.md"):
        for folder in folders[: depth + 1]:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and is_inside(os.path.realpath(path), os.path.realpath(folders[depth])):
                return Path(path)
    return None


def _environment(turn: Turn, commands: str, home: Path) -> str:
    facts = [f"System: {_system()}"]
    if turn.inbound.workdir:
        facts.append(f"Working directory: {turn.inbound.workdir}")
        workdir = turn.inbound.workdir
        root = project_root(workdir, os.path.expanduser("~"), str(find_root(home)))
        if root != workdir and root != os.path.realpath(workdir):
            facts.append(f"Project (git work tree): {root}")
    if commands:
        facts.append(commands)
    if turn.session_started:  # not the current time: a changing prompt would invalidate every prompt cache
        facts.append(f"This conversation started on {time.strftime('%Y-%m-%d', time.localtime(turn.session_started))}")
    return "\n".join(facts) + "\n"


@cache
def _system() -> str:
    found = os.uname()
    return f"{found.sysname} {found.machine}"


class _FileCache:
    """Small files, read again only if they changed."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[tuple[int, int], str]] = {}

    def read(self, path: Path, limit: int) -> str:
        """The text, at most `limit` bytes; empty if it cannot be read or is not a regular file."""
        try:
            facts = path.stat()
            if not stat.S_ISREG(facts.st_mode):
                return ""
            mark = (facts.st_mtime_ns, facts.st_size)
            kept = self._kept.get(path)
            if kept is None or kept[0] != mark:
                kept = self._kept[path] = mark, _read_text(path, limit)
        except OSError:
            return ""
        return kept[1]


def _read_text(path: Path, limit: int) -> str:
    with path.open("rb") as file:
        data = file.read(limit + 1)
    text = data[:limit].decode("utf-8", "replace").strip()
    if len(data) > limit:
        text += f"\n[... truncated: the file is longer than {limit:,} bytes ...]"
    return text
