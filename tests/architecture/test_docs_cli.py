"""docs/cli.md shows the real `--help` of every command. `python -m tests.architecture.test_docs_cli` renews it."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from alipes.cli.ask import EXIT_DENIED, EXIT_STATUS, EXIT_STOPPED, EXIT_UNREAD
from alipes.cli.main import list_commands
from alipes.kernel import turns

COMMANDS = {command.name for command in list_commands() if " " not in command.name}
"""Actions that a feature adds to the command of another one are on the page of that command."""
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cli.md"
TEXT = PAGE.read_text()
HELP = re.compile(r"^(## `(alipes[\w ]*)`\n\n```text\n)(.*?)(```)$", re.M | re.S)
PAGES = {found[2]: found[3] for found in HELP.finditer(TEXT)}


def help_text(name: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *name.split(), "--help"],
        env={**os.environ, "ALIPES_HOME": str(home), "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "40"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_the_output_of_help(name, tmp_path):
    assert PAGES[name] == help_text(name, tmp_path), "run: python -m tests.architecture.test_docs_cli"


def test_every_command_has_its_page():
    assert set(PAGES) == {"alipes", *(f"alipes {name}" for name in COMMANDS)}


def test_every_command_of_the_first_page_exists():
    listed = re.findall(r"^  (\w+)  +\w", PAGES["alipes"].partition("commands:")[2].partition("options:")[0], re.M)
    assert set(listed) == COMMANDS


def test_every_exit_status_is_listed():
    listed = {int(status) for status in re.findall(r"^\| (\d+) \|", TEXT, re.M)}
    assert listed == {*EXIT_STATUS.values(), EXIT_DENIED, EXIT_STOPPED, EXIT_UNREAD, 2}


def test_every_event_is_listed():
    tags = {kind.__struct_config__.tag for kind in turns.Event.__args__}
    assert {tag for tag in tags if f"`{tag}`" not in TEXT} == set()


def renew() -> None:
    with tempfile.TemporaryDirectory() as home:
        PAGE.write_text(HELP.sub(lambda found: found[1] + help_text(found[2], Path(home)) + found[4], TEXT))


if __name__ == "__main__":
    renew()
