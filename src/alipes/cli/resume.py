"""`alipes -r`: choose a conversation to continue, and confirm one of another folder."""

import sys
from collections.abc import Sequence

from alipes.config.loader import load_settings
from alipes.console.common import confirm, run_in_archive
from alipes.console.inbound import MAX_TITLE, current_directory, format_folder, quote_folder
from alipes.console.options import parse_talk
from alipes.console.render import format_table, to_one_line, truncate
from alipes.console.stdio import terminal_width
from alipes.kernel.formatting import ID, format_ago, format_excerpt
from alipes.store.ports.archive import SessionFacts

LISTED = 20
_SHORT, _LONG = "-r", "--resume"


def choose(argv: list[str], *, pick: bool = True) -> list[str] | None:
    """The words with the chosen conversation as the value of `--resume`; None if nothing was chosen.

    For a terminal: it asks on standard error. `pick`: also which one, if none is named.
    """
    choice = parse_talk(argv).conversation
    if not choice.resume and not (choice.pick and pick):
        return argv
    settings = load_settings()
    here = settings.workdir or current_directory()
    if choice.pick:
        facts = _pick(run_in_archive(settings, lambda archive: archive.sessions(LISTED)), here)
    else:
        facts = run_in_archive(settings, lambda archive: archive.resolve(choice.resume, title_start=True))
        asked = choice.resume != facts.id  # the whole id: it was chosen here before
        if asked and facts.workdir not in ("", here) and not _confirm_folder(facts, here):
            return None
    return None if facts is None else [*_without_resume(argv), f"{_LONG}={facts.id}"]


def _confirm_folder(facts: SessionFacts, here: str) -> bool:
    title, there = format_excerpt(facts.title, MAX_TITLE), format_folder(facts.workdir)
    question = f"{title} was last used in {there}. Continue it here, in {format_folder(here)}?"
    if confirm(question, "continue it here"):
        return True
    sys.stderr.write(f"Continue it there with: cd {quote_folder(facts.workdir)} && alipes -r {facts.id[:ID]}\n")
    return False


def _pick(found: list[SessionFacts], here: str) -> SessionFacts | None:
    """A conversation chosen from a numbered list, those of this folder first."""
    if not found:
        sys.stderr.write("No conversations yet.\n")
        return None
    ordered = sorted(found, key=lambda facts: facts.workdir != here)
    for line in _list_rows(ordered, here):
        sys.stderr.write(f"{truncate(line, terminal_width(sys.stderr) or 100)}\n")
    while True:
        sys.stderr.write("Number (Enter cancels): ")
        sys.stderr.flush()
        answer = sys.stdin.readline().strip()
        if not answer:
            return None
        if answer.isascii() and answer.isdecimal() and 1 <= int(answer) <= len(ordered):
            return ordered[int(answer) - 1]
        sys.stderr.write(f"Type a number from 1 to {len(ordered)}.\n")


def _list_rows(ordered: Sequence[SessionFacts], here: str) -> list[str]:
    return format_table(
        (
            f"{number:>3}",
            format_ago(facts.updated),
            "" if facts.workdir == here else to_one_line(format_folder(facts.workdir), 30),
            to_one_line(facts.title) or "(no title)",
        )
        for number, facts in enumerate(ordered, 1)
    )


def _without_resume(argv: list[str]) -> list[str]:
    words, rest = [], list(argv)
    while rest:
        word = rest.pop(0)
        if word in (_SHORT, _LONG):
            if rest and not rest[0].startswith("-"):
                rest.pop(0)
        elif not word.startswith((_SHORT, f"{_LONG}=")):
            words.append(word)
    return words
