"""Homes of every program in our store: figures, a second import, undo, and no key where none belongs."""

import pytest

from alipes.features.importer.records import KINDS
from tests.world.imports import ImportingHome, copy_home, hash_tree

SAMPLES = {
    "openclaw": ("openclaw", "openclaw", ""),
    "openclaw before 2026.6": ("openclaw", "openclaw_2026_5", ""),
    "nanobot": ("nanobot", "nanobot", ""),
    "claude-code": ("claude-code", "claude_code", ".claude"),
    "codex": ("codex", "codex", ""),
    "pi": ("pi", "pi", ""),
}
FIGURES = {
    "openclaw": (4, 14, 3, 2, 5),
    "openclaw before 2026.6": (2, 6, 2, 2, 2),
    "nanobot": (2, 20, 4, 2, 3),
    "claude-code": (3, 25, 0, 0, 2),
    "codex": (4, 27, 0, 0, 0),
    "pi": (4, 29, 0, 0, 2),
}
"""Conversations, messages, schedules, people and keys. Results of calls that ran together are one message, and a call
that was cut off has one that says so."""


@pytest.fixture(params=SAMPLES)
def sample(request, tmp_path):
    program, name, inner = SAMPLES[request.param]
    return request.param, program, copy_home(name, tmp_path) / inner


@pytest.fixture
def home(tmp_path):
    return ImportingHome(tmp_path / "home")


def count(home, table: str) -> int:
    return int(home.query(f"SELECT count(*) FROM {table}")[0][0])


def count_keys(home) -> int:
    file = home.path / ".env"
    return len([line for line in file.read_text().splitlines() if line]) if file.exists() else 0


async def test_every_figure_of_the_sample_is_in_our_store(home, sample):
    name, program, source = sample
    before = hash_tree(source)
    result = await home.run(program, source, secrets=True, kinds=[kind for kind in KINDS if kind != "notes"])
    assert result.differences == ()
    assert [each.problem for each in result.results if each.problem] == []
    tables = [count(home, table) for table in ("sessions", "messages", "schedules", "people")]
    assert (*tables, count_keys(home)) == FIGURES[name]
    assert hash_tree(source) == before
    assert {state for (state,) in home.query("SELECT state FROM schedules")} <= {"paused"}


async def test_a_second_import_writes_nothing_and_undo_leaves_nothing(home, sample):
    _, program, source = sample
    (home.path / "config.toml").write_text("# mine\n")
    result = await home.run(program, source)
    rows = home.tables()
    assert (await home.run(program, source)).id == ""
    assert home.tables() == rows
    assert (await home.undo(result.id)).kept == ()
    assert [count(home, table) for table in ("sessions", "messages", "schedules", "people")] == [0, 0, 0, 0]
    assert (home.path / "config.toml").read_text() == "# mine\n"


async def test_no_key_is_anywhere_without_being_asked_for(home, sample):
    _, program, source = sample
    await home.run(program, source)
    found = [path for path in home.path.rglob("*") if path.is_file() and b"EXAMPLE" in path.read_bytes()]
    assert found == []


async def test_an_agent_that_is_imported_after_all_of_them_adds_only_its_own_files(home, tmp_path):
    source = copy_home("openclaw", tmp_path)
    await home.run("openclaw", source)
    notes = source / "workspace-letters/USER.md"
    notes.write_text(f"{notes.read_text()}\n- Always answer letters within a week.\n")
    (source / "workspace-letters/SOUL.md").write_text("You write letters.")
    (source / "workspace/SOUL.md").write_text("You keep bees.")
    await home.run("openclaw", source, kinds=("persona",))
    plan = await home.plan("openclaw", source, part="letters")
    found = [(item.kind, item.state, item.what) for item in plan.items if item.state not in ("same", "left out")]
    assert found == [
        ("memory", "new", "Always answer letters within a week."),
        ("persona", "conflict", "You write letters. (18 characters)"),
    ]
