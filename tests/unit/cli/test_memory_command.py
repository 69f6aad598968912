"""`alipes memory`: the notes of the home are listed, changed, undone and decided in a shell."""

import pytest

from alipes.cli.commands.memory import run
from alipes.kernel.errors import AlipesError
from tests.unit.cli.test_skills_command import home
from tests.unit.cli.test_skills_pending import propose

__all__ = ["home"]


@pytest.fixture
def memory(home, capfd):
    def call(*argv: str) -> tuple[int, str]:
        try:
            status = run(list(argv))
        except AlipesError as error:
            capfd.readouterr()
            return 2, str(error)
        return status, capfd.readouterr().out

    return call


def test_notes_are_added_listed_changed_and_undone(home, memory):
    assert memory("add", "Deploys", "on", "Friday")[0] == 0
    assert memory("add", "user", "Likes tea")[0] == 0
    status, listed = memory()
    assert status == 0 and "1. Deploys on Friday" in listed and "2. Likes tea" in listed
    assert "alipes memory [history" in listed and "/memory [" not in listed
    assert memory("edit", "1", "Deploys on Monday")[0] == 0
    assert "+- Deploys on Monday" in memory("diff")[1]
    assert memory("undo")[0] == 0
    assert "Deploys on Friday" in (home / "memory" / "MEMORY.md").read_text()
    assert "alipes memory undo N" in memory("history")[1]


def test_a_proposed_note_is_accepted_with_another_text_or_rejected(home, memory):
    id = propose(home, kind="memory")
    assert f"{id}  USER.md: add Likes tea" in memory("pending")[1]
    assert memory("accept", id, "Likes green tea")[0] == 0
    assert "Likes green tea" in (home / "memory" / "USER.md").read_text()
    assert memory("pending") == (0, "No proposals are waiting.\n")
    assert memory("reject", id) == (2, f'"{id}" is not the id of a pending proposal.')


def test_a_number_without_a_note_is_explained(home, memory):
    status, said = memory("remove", "7")
    assert status == 1 and "7" in said and "alipes memory" in said


def test_a_secret_is_refused(home, memory):
    status, said = memory("add", "the password is hunter2hunter2")
    assert status == 2 and "secret" in said.lower()


def test_an_unknown_action_is_explained(home, capsys):
    with pytest.raises(SystemExit):
        run(["lsit"])
    assert "unknown action: lsit" in capsys.readouterr().err
