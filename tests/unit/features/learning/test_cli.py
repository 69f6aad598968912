"""`alipes skills pending`: proposals for skills are listed, shown, accepted, edited and rejected in a shell."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from alipes.cli.main import main
from alipes.features.learning.cli.proposals import run
from alipes.features.learning.review import SkillProposal
from alipes.kernel.errors import AlipesError
from alipes.store.sql.proposals import Proposal
from alipes.store.sqlite.store import open_store
from tests.unit.features.skills.test_cli import home, put, skill_text

__all__ = ["home"]


@pytest.fixture
def skills(home, capfd):
    def call(*argv: str) -> tuple[int, str]:
        try:
            status = run([*argv[1:]])
        except AlipesError as error:
            capfd.readouterr()
            return 2, str(error)
        return status, capfd.readouterr().out

    return call


def propose(home: Path, name: str = "tea", body: str = "Boil fresh water.", kind: str = "skill", base: str = "") -> str:
    change = {"action": "add", "target": "user", "content": "Likes tea"}
    if kind == "skill":
        text = SkillProposal(name, skill_text(name, body), base)
        change = {"name": text.name, "text": text.text, "base": text.base}
    proposal = Proposal("", kind, "", json.dumps(change), "it took five steps", "s1", "t1")  # type: ignore[arg-type]

    async def work() -> str:
        async with open_store(home) as store:
            return (await store.proposals.add(proposal)).id

    return asyncio.run(work())


def write_editor(folder: Path, script: str) -> str:
    file = folder / "editor"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def read_skill(home: Path, name: str = "tea") -> str:
    return (home / "skills" / name / "SKILL.md").read_text()


def test_proposals_are_listed_with_reason_and_origin(home, skills):
    assert skills("pending") == (0, "No proposals are waiting.\n")
    id = propose(home)
    propose(home, kind="memory")
    status, said = skills("pending")
    assert status == 0 and f"{id}  new skill tea" in said and "it took five steps; conversation s1, turn t1" in said
    assert "1 note waiting" in said and "alipes skills pending accept ID" in said


def test_a_proposal_is_shown_with_its_diff_by_the_start_of_its_id(home, skills):
    id = propose(home)
    for words in ((id,), ("show", id[:6])):
        status, said = skills("pending", *words)
        assert status == 0 and "+Boil fresh water." in said


def test_an_accepted_proposal_is_shown_and_becomes_a_skill(home, skills):
    id = propose(home)
    status, said = skills("pending", "accept", id, "--yes")
    assert status == 0 and "+Boil fresh water." in said and "Accepted: skill tea, version 1" in said
    assert "Boil fresh water." in read_skill(home)
    assert skills("pending", "accept", id, "--yes") == (2, f'"{id}" is not the id of a pending proposal.')


def test_without_a_terminal_nothing_is_accepted_without_yes(home, skills, monkeypatch):
    id = propose(home)
    status, said = skills("pending", "accept", id)
    assert status == 2 and "--yes" in said and not (home / "skills" / "tea").exists()


def test_a_rejected_proposal_changes_nothing(home, skills):
    id = propose(home)
    assert skills("pending", "reject", id) == (0, "Rejected; nothing was changed.\n")
    assert skills("pending") == (0, "No proposals are waiting.\n")


def test_the_editor_changes_the_text_and_not_the_fields(home, skills, tmp_path, monkeypatch):
    id = propose(home)
    monkeypatch.setenv(
        "EDITOR", write_editor(tmp_path, 'grep -q "^description" "$1" && exit 3; echo "Ask first." > "$1"')
    )
    status, said = skills("pending", "edit", id)
    assert status == 0 and "+Ask first." in said and f"alipes skills pending accept {id}" in said
    skills("pending", "accept", id, "--yes")
    assert read_skill(home).startswith("---\nname: tea\ndescription: Makes tea.") and "Ask first." in read_skill(home)


@pytest.mark.parametrize(("script", "said"), [("true", ""), ("exit 3", "failed (status 3)"), (": > $1", "")])
def test_an_editor_that_saves_nothing_changes_nothing(home, skills, tmp_path, monkeypatch, script, said):
    id = propose(home)
    monkeypatch.setenv("VISUAL", write_editor(tmp_path, script))
    status, message = skills("pending", "edit", id)
    assert status > 0 and said in message
    assert "Boil fresh water." in skills("pending", "show", id)[1]


def test_a_missing_editor_is_named(home, skills, monkeypatch):
    id = propose(home)
    monkeypatch.setenv("VISUAL", "no-such-editor --wait")
    status, message = skills("pending", "edit", id)
    assert status == 2 and "no-such-editor" in message and "EDITOR" in message


def test_a_proposal_for_a_skill_that_was_changed_since_says_so(home, skills):
    put(home / "skills", "tea")
    id = propose(home, base="0" * 64)
    status, said = skills("pending", "show", id)
    assert status == 1 and "was changed since" in said
    assert skills("pending", "accept", id, "--yes")[0] == 1


def test_a_proposal_for_a_note_is_refused_with_its_place(home, skills):
    id = propose(home, kind="memory")
    status, said = skills("pending", "show", id)
    assert status == 2 and "alipes memory pending" in said


@pytest.mark.parametrize(
    ("words", "said"), [(["accept"], "needs an ID"), (["aceept", "1"], "unknown action: pending aceept")]
)
def test_a_wrong_call_is_explained(home, capsys, words, said):
    with pytest.raises(SystemExit):
        run(words)
    assert said in capsys.readouterr().err


def test_its_commands_are_actions_of_the_command_for_skills(home, capfd):
    id = propose(home)
    assert main(["-y", "skills", "pending", "accept", id]) == 0
    assert "Accepted: skill tea, version 1" in capfd.readouterr().out
    assert main(["--model", "demo", "skills", "test", "tea"]) == 1
    assert "No conversation is known that tea came from" in capfd.readouterr().out


@pytest.mark.parametrize(("words", "said"), [([], "`test` needs a NAME"), (["a", "b"], "too many words: a b")])
def test_a_test_takes_one_name(home, capfd, words, said):
    with pytest.raises(SystemExit):
        main(["skills", "test", *words])
    assert said in capfd.readouterr().err
