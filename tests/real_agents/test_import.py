"""Homes that the real programs have just written, imported. `tools/agent-programs` installs the programs."""

import json

import pytest

from tests.real_agents.other_homes import (
    ANSWERS,
    CALLED,
    COMMAND,
    FIRST,
    PROGRAMS,
    RESULT,
    SECOND,
    make_home,
    open_model,
)
from tests.world.imports import ImportingHome, hash_tree

pytestmark = pytest.mark.deadline(300)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_what_was_said_there_is_here(program, tmp_path):
    if missing := program.find_missing():
        pytest.skip(missing)
    async with open_model(program.name) as model:
        source = await make_home(program, tmp_path / "person", model)
    home, before = ImportingHome(tmp_path / "home"), hash_tree(source)
    result = await home.run(program.name, source, secrets=True)
    assert [each.problem for each in result.results if each.problem] == [] and result.differences == ()
    sql = """SELECT session_id, message FROM messages JOIN sessions ON sessions.id = session_id
        ORDER BY sessions.created, messages.number"""
    said: dict[str, list[str]] = {}
    for session, text in home.query(sql):
        said.setdefault(session, []).append(text)
    talk, called = said.values()
    for words, message in zip((FIRST, ANSWERS[0], SECOND, ANSWERS[1]), talk, strict=True):
        assert words in message
    for words, message in zip((CALLED, COMMAND, RESULT, ANSWERS[2]), called, strict=True):
        assert words in str(json.loads(message)["parts"])
    assert hash_tree(source) == before
    again = await home.run(program.name, source, secrets=True)
    assert not again.plan.has_work
