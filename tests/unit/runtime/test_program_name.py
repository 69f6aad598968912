"""Commands in messages are written as the user can type them."""

import sys

import pytest

from alipes.runtime import program_name
from alipes.runtime.program_name import name_program


@pytest.fixture
def started_by_path(monkeypatch, tmp_path):
    """As `make run` starts it: not on the PATH."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / ".venv/bin/alipes")])


def test_a_program_that_is_not_on_the_path_is_named_with_its_path(started_by_path):
    assert program_name.program_name() == ".venv/bin/alipes"
    assert name_program("Run `alipes doctor`, or `!alipes doctor`.") == (
        "Run `.venv/bin/alipes doctor`, or `!.venv/bin/alipes doctor`."
    )


def test_other_words_are_left_alone(started_by_path):
    for text in ("alipes runs", "`alipes`", "`/home/alipes doctor`", "the folder alipes here"):
        assert name_program(text) == text


def test_a_program_on_the_path_keeps_its_name(monkeypatch, tmp_path):
    (tmp_path / "alipes").write_text("#!/bin/sh\n")
    (tmp_path / "alipes").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["/opt/alipes/bin/alipes"])
    assert name_program("Run `alipes doctor`.") == "Run `alipes doctor`."
