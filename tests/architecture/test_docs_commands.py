"""The tables of chat commands in docs are those of the code.

`python -m tests.architecture.test_docs_commands` renews them.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from alipes.cli.terminal.input.approval import KEYS
from alipes.sessions.commands.conversation import MODES
from alipes.sessions.commands.registry import Command, known_commands
from tests.architecture.test_docs_slack import chat_commands
from tests.world.commands import all_commands

COMMANDS = known_commands(all_commands())
DOCS = Path(__file__).parents[2] / "docs"
MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)
PAGES = {"commands.md": {"commands", "modes"}, "terminal.md": {"commands"}, "messengers.md": {"chat_commands"}}
"""The tables that each page contains."""


def _rows(commands: Iterable[Command]) -> str:
    rows = ["| command | does |", "|---|---|"]
    for command in commands:
        usage = f"/{command.name} {command.hint}".rstrip().replace("|", r"\|")
        rows.append(f"| `{usage}` | {command.help} |")
    return "\n".join(rows) + "\n"


def commands_table() -> str:
    return _rows(COMMANDS)


def chat_commands_table() -> str:
    shared = {command.name for command in COMMANDS}
    return _rows(command for command in chat_commands() if command.name not in shared)


def modes_table() -> str:
    rows = ["| mode | effect |", "|---|---|"]
    return "\n".join([*rows, *(f"| `{mode}` | {does} |" for mode, does in MODES.items())]) + "\n"


TABLES = {"commands": commands_table, "modes": modes_table, "chat_commands": chat_commands_table}


def renewed(page: str) -> str:
    return MARKED.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], page)


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_of_a_page_are_those_of_the_code(name):
    page = (DOCS / name).read_text()
    assert {found[2] for found in MARKED.finditer(page)} == PAGES[name]
    assert page == renewed(page), "run: python -m tests.architecture.test_docs_commands"


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_page_mentions_exists(name):
    known = {name for command in (*COMMANDS, *chat_commands()) for name in (command.name, *command.aliases)}
    assert set(re.findall(r"`/([a-z]+)[` ]", (DOCS / name).read_text())) <= {*known, "ready", "quit"}


def test_every_key_that_answers_an_approval_question_is_listed():
    page = (DOCS / "terminal.md").read_text().partition("**An approval question**")[2].partition("\n- ")[0]
    assert {key for key in re.findall(r"`(\w)`", page)} == set(KEYS)


def renew() -> None:
    for name in PAGES:
        page = DOCS / name
        page.write_text(renewed(page.read_text()))


if __name__ == "__main__":
    renew()
