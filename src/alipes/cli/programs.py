"""Programs that help and need not be there: which are missing, and what that means. Runs none of them."""

import shutil
from pathlib import Path

from msgspec import Struct

TOLD = "programs-told"
"""The file in the home that remembers what a person was told already."""


class Program(Struct, frozen=True):
    name: str
    package: str
    without: str
    """What is different where it is missing."""


PROGRAMS = (
    Program("rg", "ripgrep", "searching in files is slower"),
    Program("bwrap", "bubblewrap", "commands cannot be run in a sandbox"),
    Program("git", "git", "changes to a project cannot be shown or undone with it"),
)


def missing() -> tuple[Program, ...]:
    return tuple(program for program in PROGRAMS if shutil.which(program.name) is None)


def tell_once(home: Path) -> str:
    """One sentence on what is missing and was not told of in this home before; empty when there is none."""
    file = home / TOLD
    told = set(file.read_text().split()) if file.exists() else set()
    news = [program for program in missing() if program.name not in told]
    if not news:
        return ""
    file.write_text("".join(f"{name}\n" for name in sorted({*told, *(p.name for p in news)})))
    return f"Not installed: {', '.join(f'{p.package} ({p.without})' for p in news)}. Everything else works."
