"""`docs/cli.md` shows the real `--help` of every command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from alipes.cli.ask import STATUS, STOPPED, UNREAD
from alipes.cli.main import COMMANDS
from alipes.kernel import turns
from alipes.sessions.commands import COMMANDS as TALK

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "cli.md").read_text()
PAGES = dict(re.findall(r"^## `(alipes[\w ]*)`\n\n```text\n(.*?)```$", TEXT, re.M | re.S))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_help_prints(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", *name.split(), "--help"],
        env={**os.environ, "ALIPES_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "40"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert PAGES[name] == done.stdout


def test_every_command_has_its_page():
    assert set(PAGES) == {"alipes", *(f"alipes {name}" for name in COMMANDS)}


def test_every_command_of_the_first_page_exists():
    listed = re.findall(
        r"^  (\w+)  +\w", PAGES["alipes"].partition("commands:")[2].partition("options:")[0], re.M
    )
    assert set(listed) == {*COMMANDS, "serve"}


def test_every_exit_status_is_told():
    told = {int(status) for status in re.findall(r"^\| (\d+) \|", TEXT, re.M)}
    assert told == {*STATUS.values(), STOPPED, UNREAD, 2}


def test_every_command_of_the_conversation_is_told_in_the_same_words():
    told = dict(re.findall(r"^\| `/(\w+)` \| (.*) \|$", (ROOT / "docs" / "terminal.md").read_text(), re.M))
    assert set(told) == {command.name for command in TALK}


def test_every_event_is_told():
    tags = {kind.__struct_config__.tag for kind in turns.Event.__args__}
    assert {tag for tag in tags if f"`{tag}`" not in TEXT} == set()
