"""The system prompt is short, the same all session long, and carries the persona and the project's notes."""

import os

import pytest

from alipes.agent.prompt import NOTES_LIMIT, SOUL_LIMIT, notes_file, system_prompt
from tests.unit.agent_harness import an_agent, live, play, turn

BEGAN = 1_790_000_000.0


@pytest.fixture
def project(tmp_path):
    """A repository with a folder three levels down."""
    root = tmp_path / "project"
    (root / "a" / "b").mkdir(parents=True)
    (root / ".git").mkdir()
    return root


def compose(home, workdir="", **more):
    return system_prompt(home)(turn(workdir=str(workdir), session_started=BEGAN, **more))


def test_the_fixed_part_is_small(tmp_path):
    prompt = compose(tmp_path, "/home/someone/projects/thing")
    size = len(prompt.encode())
    print(f"system prompt: {size} bytes")
    assert size <= 2_500


def test_it_says_where_and_since_when(tmp_path):
    prompt = compose(tmp_path, "/some/where")
    assert "Working directory: /some/where" in prompt
    assert "started on 2026-09-2" in prompt
    assert os.uname().sysname in prompt


def test_it_is_the_same_bytes_for_every_turn_of_a_session(tmp_path, project):
    (project / "AGENTS.md").write_text("use tabs")
    (tmp_path / "SOUL.md").write_text("be kind")
    make = system_prompt(tmp_path)
    first, later = (
        turn("one", workdir=str(project), session_started=BEGAN),
        turn("two", workdir=str(project), session_started=BEGAN),
    )
    assert make(first) == make(later) == system_prompt(tmp_path)(first)


async def test_it_is_asked_for_once_in_a_turn(tmp_path):
    (tmp_path / "SOUL.md").write_text("be kind")
    model = play("hi")
    await live(an_agent(model, system=system_prompt(tmp_path)))
    assert "be kind" in model.asked[0].system


def test_the_persona_comes_from_the_home(tmp_path):
    assert "Your persona" not in compose(tmp_path)
    (tmp_path / "SOUL.md").write_text("You are called Edda.\n")
    assert "# Your persona\nYou are called Edda.\n" in compose(tmp_path)


def test_a_changed_file_is_read_again(tmp_path):
    make = system_prompt(tmp_path)
    soul = tmp_path / "SOUL.md"
    soul.write_text("old")
    assert "old" in make(turn())
    soul.write_text("brand new")
    assert "brand new" in make(turn()) and "old" not in make(turn())
    soul.unlink()
    assert "brand new" not in make(turn())


def test_the_nearest_notes_are_taken(project):
    (project / "AGENTS.md").write_text("of the root")
    assert notes_file(project / "a" / "b") == project / "AGENTS.md"
    (project / "a" / "AGENTS.md").write_text("of a")
    assert notes_file(project / "a" / "b") == project / "a" / "AGENTS.md"
    assert notes_file(project) == project / "AGENTS.md"


def test_the_other_name_counts_only_where_there_is_none_of_the_first(project):
    (project / "a" / "CLAUDE.md").write_text("other")
    assert notes_file(project / "a" / "b") == project / "a" / "CLAUDE.md"
    (project / "AGENTS.md").write_text("first")
    assert notes_file(project / "a" / "b") == project / "AGENTS.md"


def test_notes_above_the_repository_are_not_ours(project):
    (project.parent / "AGENTS.md").write_text("of somebody else")
    assert notes_file(project / "a") is None


def test_outside_a_repository_only_the_folder_itself_is_looked_at(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "AGENTS.md").write_text("above")
    assert notes_file(tmp_path / "deep") is None
    assert notes_file(tmp_path) == tmp_path / "AGENTS.md"


def test_a_link_is_followed_within_the_repository_and_not_out_of_it(project):
    secret = project.parent / "secret"
    secret.write_text("do not tell")
    (project / "AGENTS.md").symlink_to(secret)
    assert notes_file(project) is None
    (project / "AGENTS.md").unlink()
    (project / "CLAUDE.md").write_text("notes")
    (project / "AGENTS.md").symlink_to("CLAUDE.md")
    assert notes_file(project) == project / "AGENTS.md"


def test_a_worktree_is_a_repository_too(tmp_path):
    (tmp_path / "tree" / "in").mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere")
    (tmp_path / "tree" / "AGENTS.md").write_text("notes")
    assert notes_file(tmp_path / "tree" / "in") == tmp_path / "tree" / "AGENTS.md"


def test_notes_are_shown_with_their_path(tmp_path, project):
    (project / "AGENTS.md").write_text("use tabs")
    assert f"# Project notes ({project / 'AGENTS.md'})\nuse tabs\n" in compose(tmp_path, project)


def test_long_files_are_cut_with_a_note(tmp_path, project):
    (tmp_path / "SOUL.md").write_text("s" * (SOUL_LIMIT + 1))
    (project / "AGENTS.md").write_text("ü" * NOTES_LIMIT)
    prompt = compose(tmp_path, project)
    assert len(prompt.encode()) < SOUL_LIMIT + NOTES_LIMIT + 2_800
    assert f"longer than {SOUL_LIMIT:,} bytes" in prompt and f"longer than {NOTES_LIMIT:,} bytes" in prompt


def test_what_cannot_be_read_is_left_out(tmp_path, project):
    os.mkfifo(tmp_path / "SOUL.md")
    (project / "AGENTS.md").mkdir()
    prompt = compose(tmp_path, project)
    assert "Your persona" not in prompt and "Notes" not in prompt
    assert "Working directory" in compose(tmp_path, tmp_path / "not" / "there")


def test_bytes_that_are_no_text_do_no_harm(tmp_path):
    (tmp_path / "SOUL.md").write_bytes(b"be \xff kind")
    assert "be \ufffd kind" in compose(tmp_path)
