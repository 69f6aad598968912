"""`alipes memory`: the notes of the home are listed, changed, undone and decided in a shell."""

import pytest

from alipes.features.memory.cli import run
from alipes.kernel.errors import AlipesError
from tests.unit.features.learning.test_cli import propose
from tests.unit.features.skills.test_cli import home

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


def fill(home, text):
    (home / "memory").mkdir(parents=True, exist_ok=True)
    (home / "memory" / "MEMORY.md").write_text(text)


def test_a_full_file_names_similar_notes_and_they_can_be_merged(home, memory):
    fill(home, "".join(f"- Project {number} is deployed on Fridays with make {'x' * 60}\n" for number in range(15)))
    status, said = memory("add", "a new note", "y" * 300)
    assert status == 1 and "MEMORY.md is full" in said and "Nothing was dropped" in said
    assert "Similar notes: 1 and 2" in said and "alipes memory merge N M TEXT" in said
    assert memory("merge", "1", "2", "Projects 0 and 1 are deployed on Fridays")[0] == 0
    notes = (home / "memory" / "MEMORY.md").read_text()
    assert "Projects 0 and 1" in notes and "Project 1 is" not in notes and "Project 2 is" in notes
    assert memory("add", "a new note", "y" * 100)[0] == 0


def test_a_merge_is_undone_as_a_whole(home, memory):
    fill(home, "- one\n- two\n- three\n")
    assert memory("merge", "1", "3", "one and three")[0] == 0
    assert (home / "memory" / "MEMORY.md").read_text() == "- one and three\n- two\n"
    memory("add", "four")
    assert memory("undo")[0] == 0 and memory("undo")[0] == 0
    assert (home / "memory" / "MEMORY.md").read_text() == "- one\n- two\n- three\n"


def test_a_merge_is_undone_as_a_whole_also_after_other_changes(home, memory):
    fill(home, "- one\n- two\n- three\n")
    memory("merge", "1", "3", "one and three")
    memory("add", "four")
    number = memory("history")[1].splitlines()[1].split()[0]
    assert memory("undo", number)[0] == 0
    notes = (home / "memory" / "MEMORY.md").read_text().splitlines()
    assert sorted(notes) == ["- four", "- one", "- three", "- two"]


def test_a_merge_that_fails_changes_nothing(home, memory):
    fill(home, "- one\n- two\n")
    assert memory("merge", "1", "2", "the password is hunter2hunter2")[0] == 2
    assert (home / "memory" / "MEMORY.md").read_text() == "- one\n- two\n"
    for words in (("1", "1", "x"), ("1", "7", "x"), ("1", "2")):
        assert memory("merge", *words)[0] == 1
    memory("add", "user", "three")
    assert "same file" in memory("merge", "1", "3", "x")[1]


def test_a_file_that_is_longer_than_the_limit_says_so(home, memory):
    fill(home, "".join(f"- line {number} {'z' * 80}\n" for number in range(40)))
    assert "The prompt has only the first" in memory()[1]


def test_a_file_in_another_encoding_is_neither_used_nor_overwritten(home, memory):
    fill(home, "")
    file = home / "memory" / "MEMORY.md"
    file.write_bytes("- Grüße\n".encode("latin-1"))
    status, said = memory("add", "note")
    assert status == 2 and "not UTF-8" in said and file.read_bytes() == "- Grüße\n".encode("latin-1")


def test_a_file_with_a_byte_order_mark_is_read(home, memory):
    fill(home, "")
    (home / "memory" / "MEMORY.md").write_bytes(b"\xef\xbb\xbf- one\r\n")
    assert "1. one" in memory()[1]


def test_a_decision_without_an_id_shows_the_usage(home, memory):
    assert "Usage:" in memory("accept")[1] and "Usage:" in memory("reject")[1]
