"""`hermes_cli.setup`: words and questions of a plugin's setup, in plain lines. It keeps no answer."""

import getpass
import sys
from collections.abc import Sequence

from alipes.compat.hermes.names.settings import get_env_value, save_env_value

__all__ = [
    "get_env_value",
    "print_error",
    "print_header",
    "print_info",
    "print_success",
    "print_warning",
    "prompt",
    "prompt_checklist",
    "prompt_choice",
    "prompt_yes_no",
    "save_env_value",
]


def print_header(title: str, *more: str) -> None:
    _show("", title, "-" * len(title), *more)


def print_info(*lines: str) -> None:
    _show(*(f"  {line}" for line in lines))


def print_success(*lines: str) -> None:
    _show(*(f"✓ {line}" for line in lines))


def print_warning(*lines: str) -> None:
    _show(*(f"! {line}" for line in lines))


def print_error(*lines: str) -> None:
    _show(*(f"✗ {line}" for line in lines))


def prompt(question: str, default: str | None = None, password: bool = False) -> str:
    """What the person types; `default` for an empty line, and where nobody can type."""
    shown = f"{question} [{default}]: " if default and not password else f"{question}: "
    try:
        answer = getpass.getpass(shown) if password and sys.stdin.isatty() else input(shown)
    except EOFError:
        _show("")
        answer = ""
    return answer.strip() or default or ""


def prompt_yes_no(question: str, default: bool = True) -> bool:
    while True:
        answer = prompt(f"{question} [{'Y/n' if default else 'y/N'}]").lower()
        if not answer:
            return default
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")
        _show("  Please answer y or n.")


def prompt_choice(question: str, choices: Sequence[str], default: int = 0) -> int:
    """The place of the chosen one in `choices`, from 0."""
    _show(question, *(f"  {number}. {choice}" for number, choice in enumerate(choices, 1)))
    while True:
        answer = prompt("Number", str(default + 1))
        if answer.isascii() and answer.isdecimal() and 0 < int(answer) <= len(choices):
            return int(answer) - 1
        _show(f"  Please give a number from 1 to {len(choices)}.")


def prompt_checklist(title: str, items: Sequence[str], pre_selected: Sequence[int] = ()) -> list[int]:
    """The places of the chosen ones, from 0."""
    _show(title, *(f"  {number}. {item}" for number, item in enumerate(items, 1)))
    usual = " ".join(str(each + 1) for each in pre_selected or ())
    while True:
        words = prompt("Numbers, with blanks between them", usual).replace(",", " ").split()
        if all(word.isascii() and word.isdecimal() and 0 < int(word) <= len(items) for word in words):
            return sorted({int(word) - 1 for word in words})
        _show(f"  Please give numbers from 1 to {len(items)}.")


def _show(*lines: str) -> None:
    for line in lines:
        print(line)
