"""Results of the checks of `alipes doctor`, how they are printed, and the optional programs."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from alipes.cli import render
from alipes.cli.common import wrap_text
from alipes.cli.stdio import terminal_width

REPORTED_FILE = "programs-reported"
"""File in the home with the missing programs that were already reported."""
CHECK_MARKS = {"ok": "ok  ", "note": "note", "wrong": "FAIL"}


class CheckResult(Struct, frozen=True):
    about: str
    state: Literal["ok", "note", "wrong"]
    """`note`: worth knowing, no action needed; `wrong`: the user must act."""
    says: str
    advice: str = ""


class OptionalProgram(Struct, frozen=True):
    name: str
    package: str
    benefit: str
    """What it is good for, after "install X for ..."."""


PROGRAMS = (
    OptionalProgram("rg", "ripgrep", "faster search"),
    OptionalProgram("bwrap", "bubblewrap", "sandboxing"),
    OptionalProgram("git", "git", "showing and reverting changes"),
)


def print_checks(results: Sequence[CheckResult]) -> int:
    """Print the results aligned and wrapped to the terminal. Returns the indentation of their texts."""
    width = terminal_width(sys.stdout)
    longest = max([10, *(render.text_width(result.about) for result in results)])
    indent = longest + 8
    for result in results:
        mark = CHECK_MARKS[result.state]
        if width and result.state == "wrong":
            mark = f"{render.RED}{mark}{render.PLAIN}"
        says = wrap_text(render.sanitize(result.says), width - indent)
        advice = [f"-> {line}" for line in wrap_text(result.advice, width - indent - 3)]
        first, *rest = [*says, *advice] or [""]
        print(f"{mark}  {render.pad(result.about, longest)}  {first}")
        for line in rest:
            print(f"{'':{indent}}{line}")
    return indent


def print_verdict(results: Sequence[CheckResult]) -> None:
    wrong = sum(result.state == "wrong" for result in results)
    problems = f"{wrong} problem{'' if wrong == 1 else 's'}" if wrong else "No problems"
    print(f"\n{problems} found.")


def missing_programs() -> tuple[OptionalProgram, ...]:
    return tuple(program for program in PROGRAMS if shutil.which(program.name) is None)


def missing_programs_note(home: Path) -> str:
    """One sentence about missing programs that were not reported yet; empty if there are none."""
    file = home / REPORTED_FILE
    reported = set(file.read_text().split()) if file.exists() else set()
    missing = [program for program in missing_programs() if program.name not in reported]
    if not missing:
        return ""
    names = sorted({*reported, *(program.name for program in missing)})
    file.write_text("".join(f"{name}\n" for name in names))
    *most, last = [f"{program.package} for {program.benefit}" for program in missing]
    return f"Optional: install {', '.join(most)}{' and ' if most else ''}{last}."
