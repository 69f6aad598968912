"""docs/commands.md says what the commands are. `python -m tests.architecture.test_docs_commands` renews its tables."""

import re
from pathlib import Path

from alipes.sessions.commands import COMMANDS
from alipes.sessions.commands.conversation import MODES

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
MARKED = re.compile(r"(<!-- begin (\w+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def commands_table() -> str:
    rows = ["| command | does |", "|---|---|"]
    rows += [f"| `/{command.name} {command.hint}".rstrip() + f"` | {command.help} |" for command in COMMANDS]
    return "\n".join(rows) + "\n"


def modes_table() -> str:
    rows = ["| mode | a message that finds something running |", "|---|---|"]
    return "\n".join([*rows, *(f"| `{mode}` | {does} |" for mode, does in MODES.items())]) + "\n"


TABLES = {"commands": commands_table, "modes": modes_table}


def renewed(page: str) -> str:
    return MARKED.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], page)


def test_the_tables_of_the_page_are_those_of_the_code():
    page = PAGE.read_text()
    assert {found[2] for found in MARKED.finditer(page)} == set(TABLES)
    assert page == renewed(page), "run: python -m tests.architecture.test_docs_commands"


def test_every_command_that_the_page_mentions_is_there():
    known = {command.name for command in COMMANDS}
    assert {name for name in re.findall(r"`/(\w+)", PAGE.read_text())} <= known


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
