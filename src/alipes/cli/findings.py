"""What an examination found, one line after the other, and how that is shown. It examines nothing."""

import sys
import textwrap
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from alipes.cli import render
from alipes.cli.screen import terminal_width

MARKS = {"ok": "ok  ", "note": "note", "wrong": "FAIL"}


class Finding(Struct, frozen=True):
    about: str
    state: Literal["ok", "note", "wrong"]
    """`note`: worth knowing, nothing to be done; `wrong`: somebody must act."""
    says: str
    advice: str = ""


def show(findings: Sequence[Finding]) -> int:
    """Print them aligned, no wider than the terminal; how far their texts are indented."""
    width = terminal_width(sys.stdout)
    longest = max([10, *(render.columns(finding.about) for finding in findings)])
    indent = longest + 8
    for finding in findings:
        mark = MARKS[finding.state]
        if width and finding.state == "wrong":
            mark = f"{render.RED}{mark}{render.PLAIN}"
        room = width - indent
        says = render.harmless(finding.says)
        first, *rest = [*_wrapped(says, room), *_wrapped(finding.advice, room, "-> ")] or [""]
        print(f"{mark}  {render.pad(finding.about, longest)}  {first}")
        for line in rest:
            print(f"{'':{indent}}{line}")
    return indent


def conclude(findings: Sequence[Finding]) -> None:
    wrong = sum(finding.state == "wrong" for finding in findings)
    print(f"\n{f'{wrong} to be put right.' if wrong else 'All is well.'}")


def _wrapped(text: str, width: int, mark: str = "") -> list[str]:
    """Lines no wider than a terminal; elsewhere as they are."""
    if width < 40:
        return [mark + line for line in text.splitlines()]
    wrap = textwrap.TextWrapper(width - len(mark), break_long_words=False, break_on_hyphens=False).wrap
    return [mark + piece for line in text.splitlines() for piece in wrap(line)]
