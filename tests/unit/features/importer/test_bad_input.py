"""Homes that are damaged, hostile or not what they should be: a sentence for each, and nothing left half."""

import json
import os
import random
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from alipes.features.importer import databases
from alipes.features.importer.formats import SourceError, plain_text, read_json, read_time, read_yaml
from alipes.features.importer.source_home import SourceHome
from alipes.runtime.json_text import clean_text
from tests.world.imports import ImportingHome, copy_home, hash_tree

FUZZED = int(os.environ.get("ALIPES_FUZZ", "12"))


@pytest.fixture
def home(tmp_path):
    return ImportingHome(tmp_path / "home")


@pytest.fixture
def source(tmp_path):
    return copy_home("hermes", tmp_path)


def change(source: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(source / "state.db")) as db, db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(sql, values)


async def why(home, source, kind: str) -> list[str]:
    plan = await home.plan("hermes", source)
    return [each.why for each in plan.items if each.kind == kind and each.state == "left out"]


async def test_an_empty_home(home, tmp_path):
    (tmp_path / "empty").mkdir()
    result = await home.run("hermes", tmp_path / "empty")
    assert (result.id, result.plan.items) == ("", ())


async def test_a_database_that_is_cut_off(home, source):
    data = (source / "state.db").read_bytes()
    (source / "state.db").write_bytes(data[: len(data) // 2 + 100])
    result = await home.run("hermes", source)
    (text,) = [each.why for each in result.plan.items if each.kind == "conversations"]
    assert text.startswith("state.db") and "repair it there first" in text
    assert home.query("SELECT count(*) FROM sessions") == [(0,)]
    assert [each for each in result.results if each.item.kind == "memory" and not each.problem]


@pytest.mark.parametrize("content", [b"", b"not a database at all", b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_database_that_is_none(home, source, content):
    (source / "state.db").write_bytes(content)
    (text,) = await why(home, source, "conversations")
    assert text.startswith("state.db ") and home.query("SELECT count(*) FROM sessions") == [(0,)]


async def test_a_database_that_another_program_locks(home, source):
    with closing(sqlite3.connect(source / "state.db", isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        await home.run("hermes", source)
    assert home.query("SELECT count(*) FROM sessions") == [(16,)]


async def test_a_torn_log_is_read_up_to_where_it_is_whole(home, source):
    with closing(sqlite3.connect(source / "state.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("UPDATE sessions SET title = 'first' WHERE title = 'OK'")
        size = (source / "state.db-wal").stat().st_size
        db.execute("UPDATE sessions SET title = 'second' WHERE title = 'first'")
        torn = home.path.parent / "torn"
        shutil.copytree(source, torn)
    with (torn / "state.db-wal").open("r+b") as log:
        log.truncate(size + 1000)
    await home.run("hermes", torn)
    titles = [title for (title,) in home.query("SELECT title FROM sessions WHERE title <> ''")]
    assert "first" in titles and "second" not in titles


def test_a_database_that_changes_all_the_time_is_refused(source, tmp_path, monkeypatch):
    copy = shutil.copyfile

    def copy_and_change(here, there):
        copy(here, there)
        with open(source / "state.db", "ab") as file:
            file.write(b"\0" * 512)

    monkeypatch.setattr(databases.shutil, "copyfile", copy_and_change)
    with pytest.raises(SourceError, match="kept changing while it was copied: stop the program"):
        SourceHome(source, tmp_path / "copies").open_database("state.db")


def test_a_disk_without_space_is_named(source, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(databases.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(SourceError, match="has too little space"):
        SourceHome(source, tmp_path / "copies").open_database("state.db")


async def test_a_disk_that_fills_while_files_are_written(home, source, monkeypatch):
    from alipes.features.importer.targets import files

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "replace_file", full)
    result = await home.run("hermes", source)
    problems = {each.item.kind: each.problem for each in result.results if each.problem}
    assert problems["persona"] == "It cannot be written: No space left on device."
    assert not (home.path / "SOUL.md").exists() and not list(home.path.glob("plugins/*/*"))
    monkeypatch.undo()
    assert (await home.run("hermes", source)).id and (home.path / "SOUL.md").exists()


async def test_a_newer_schema_is_read_by_the_columns_that_are_known(home, source):
    change(source, "UPDATE schema_version SET version = 99")
    change(source, "ALTER TABLE messages ADD COLUMN mood TEXT")
    change(source, "ALTER TABLE sessions DROP COLUMN git_branch")
    plan = (await home.run("hermes", source)).plan
    assert plan.version == "schema 99" and home.query("SELECT count(*) FROM sessions") == [(16,)]
    (left,) = [each for each in plan.items if each.kind == "conversations" and each.state == "left out"]
    assert left.what == "messages.mood" and "another version" in left.why


async def test_one_bad_message_does_not_lose_its_neighbours(home, source):
    change(source, 'UPDATE messages SET tool_calls = \'[{"id": "x", "fun\' WHERE id = 81')
    change(source, "UPDATE messages SET content = char(0) || 'json:[{\"type\"' WHERE id = 53")
    change(source, "UPDATE messages SET role = 'robot' WHERE id = 57")
    await home.run("hermes", source)
    (found,) = home.query(
        "SELECT count(*) FROM messages JOIN sessions ON sessions.id = session_id WHERE title = 'Pictures of bees'"
    )
    assert found == (4,)
    plan = json.loads((home.path / "imports/hermes-1/report.json").read_text())["plan"]
    notes = [each["why"] for each in plan["items"] if "unreadable" in each.get("why", "")]
    assert notes == ["2 unreadable messages left out", "1 unreadable message left out"]


async def test_texts_and_times_that_no_program_should_write(home, source):
    change(source, "UPDATE messages SET content = CAST(x'61ff62ed a08063' AS TEXT) WHERE id = 1".replace(" a0", "a0"))
    change(source, "UPDATE messages SET content = 'nul' || char(0) || 'nul' WHERE id = 2")
    change(source, "UPDATE sessions SET started_at = 0, ended_at = 4294967296.5 WHERE title = 'OK'")
    change(source, "UPDATE messages SET timestamp = 9e999 WHERE session_id = '20261116_015648_9bacc211'")
    change(source, "UPDATE messages SET timestamp = 'never' WHERE id = 44")
    result = await home.run("hermes", source)
    assert not [each.problem for each in result.results if each.problem and each.item.kind == "conversations"]
    text = home.query("SELECT group_concat(message) FROM messages")[0][0]
    assert "nulnul" in text and "a\ufffdb" in text
    times = home.query("SELECT min(created), max(created) FROM sessions")[0]
    assert 946_684_800 < times[0] <= times[1] < 4_102_444_800


async def test_doubled_ids_and_a_circle_of_parents(home, source):
    change(
        source, "UPDATE sessions SET parent_session_id = '20261113_110000_aaaa03' WHERE id = '20261113_100000_aaaa02'"
    )
    change(source, "UPDATE sessions SET parent_session_id = id WHERE title = 'OK'")
    jobs = json.loads((source / "cron/jobs.json").read_text())
    jobs["jobs"].append(jobs["jobs"][0])
    (source / "cron/jobs.json").write_text(json.dumps(jobs))
    plan = (await home.run("hermes", source)).plan
    assert home.query("SELECT count(*) FROM sessions") == [(16,)]
    assert "its id is there twice; the first one was taken" in [each.why for each in plan.items]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("model: [unclosed", "config.yaml is not valid YAML near line"),
        ("a: &a [x]\nb: [" + "*a, " * 200 + "]", "more than 100 YAML aliases"),
        ("a: &a [x]\nb: [" + "*a, " * 1_000_000 + "]", "is too large"),
        ("[" * 100_000, "nested more than 50 levels deep"),
        ("- 1\n" * 3 + "x: {", "not valid YAML"),
    ],
)
async def test_yaml_that_cannot_be_read(home, source, content, said):
    (source / "config.yaml").write_text(content)
    assert any(said in text for text in await why(home, source, "settings"))
    await home.run("hermes", source)
    assert home.query("SELECT count(*) FROM sessions") == [(16,)]


def test_yaml_with_tags_is_read_without_them():
    text = "a: !!python/object/apply:os.system ['touch x']\nb: !vault secret\nc: 2026-01-01"
    assert read_yaml(text, "x") == {"a": ["touch x"], "b": "secret", "c": "2026-01-01"}


async def test_json_that_is_cut_off(home, source):
    text = (source / "cron/jobs.json").read_text()
    (source / "cron/jobs.json").write_text(text[: len(text) // 2])
    (said,) = await why(home, source, "schedules")
    assert said.startswith("cron/jobs.json is not valid JSON near line")
    with pytest.raises(SourceError, match="not valid JSON"):
        read_json("[" * 100_000, "deep.json")


async def test_links_that_leave_the_home(home, source, tmp_path):
    (tmp_path / "secret").write_text("a stranger's file")
    os.remove(source / "SOUL.md")
    os.symlink(tmp_path / "secret", source / "SOUL.md")
    os.symlink("/etc", source / "skills" / "etc")
    os.symlink("/etc/passwd", source / "skills/bees/weigh-hives/passwd")
    (said,) = await why(home, source, "persona")
    assert said == "SOUL.md is a link out of the home, so it was not followed"
    await home.run("hermes", source)
    assert not (home.path / "SOUL.md").exists() and not (home.path / "skills/weigh-hives/passwd").exists()


async def test_a_skill_whose_name_leads_elsewhere(home, source):
    skill = source / "skills/bees/weigh-hives/SKILL.md"
    skill.write_text(skill.read_text().replace("name: weigh-hives", "name: ../../x"))
    before = hash_tree(home.path.parent)
    (said,) = await why(home, source, "skills")
    assert "is not a valid name for a skill" in said
    await home.run("hermes", source)
    made = {name for name in hash_tree(home.path.parent) if name not in before}
    assert all(name.startswith("home/") for name in made)


async def test_a_file_of_two_gigabytes(home, source):
    for name in ("memories/MEMORY.md", "skills/bees/weigh-hives/huge.bin"):
        with (source / name).open("wb") as file:
            file.truncate(2_000_000_000)
    assert ["too large" in text for text in await why(home, source, "memory")] == [True]
    assert ["too large" in text for text in await why(home, source, "skills")] == [True]


async def test_a_pipe_instead_of_a_file(home, source):
    os.remove(source / "SOUL.md")
    os.mkfifo(source / "SOUL.md")
    assert await why(home, source, "persona") == ["SOUL.md is not a file"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (0, 0.0),
        (1_760_000_000, 1.76e9),
        (1_760_000_000_000, 1.76e9),
        ("2025-10-09T08:53:20Z", 1.76e9),
        (2**33, 0.0),
        (float("nan"), 0.0),
        (float("inf"), 0.0),
        ("soon", 0.0),
        (None, 0.0),
        (True, 0.0),
    ],
)
def test_times(value, read):
    assert read_time(value) == read and read_time(10**400) == 0.0


def test_texts_are_what_every_store_can_hold():
    assert plain_text("a\0b\ud800c") == "ab?c" == clean_text(plain_text("a\0b\ud800c"))
    assert plain_text(b"\xff\xfe") == "\ufffd\ufffd" and plain_text(7) == ""


def damage_text(file: Path, chance: random.Random) -> str:
    """Remove a line, or give a value another type."""
    lines = file.read_bytes().splitlines(keepends=True)
    number = chance.randrange(len(lines))
    value = chance.choice((b"null", b"[]", b"7", b'"x"', b"{}", b"1e999", b"-1", b"true", b'["\\ud800"]'))
    found = list(re.finditer(rb'(?<=":)\s*("[^"]*"|[\d.]+|\{\}|\[\]|true|false|null|\[|\{)', lines[number]))
    if found and chance.random() < 0.7:
        match = chance.choice(found)
        lines[number] = lines[number][: match.start()] + value + lines[number][match.end() :]
    else:
        del lines[number]
    file.write_bytes(b"".join(lines))
    return f"line {number} of {file.name}"


def damage(source: Path, chance: random.Random) -> str:
    """One damage; returns what it was."""
    if chance.random() < 0.4 or not (source / "state.db").exists():
        file = chance.choice([path for path in source.rglob("*") if path.is_file() and path.stat().st_size])
        if chance.random() < 0.5 and b"\0" not in file.read_bytes():
            return damage_text(file, chance)
        data = bytearray(file.read_bytes())
        for _ in range(chance.randint(1, 20)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        file.write_bytes(bytes(data))
        return f"bytes of {file.name}"
    values = [
        "NULL",
        "-1",
        "x'00ff'",
        "9e999",
        "'text'",
        "char(0) || 'json:[1, {}]'",
        "'[]'",
        "'{\"a\": [null]}'",
        "1e300",
    ]
    try:
        with closing(sqlite3.connect(source / "state.db")) as db, db:
            db.execute("PRAGMA foreign_keys = OFF")
            table = chance.choice(("sessions", "messages", "messages", "session_model_usage", "gateway_routing"))
            column = chance.choice([row[1] for row in db.execute(f"PRAGMA table_info({table})")])
            value, where = chance.choice(values), f"rowid % {chance.randint(1, 7)} = 0"
            update = f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {where}"
            sql = chance.choice((update, f"DELETE FROM {table} WHERE {where}"))
            db.execute(sql)
    except (sqlite3.Error, UnicodeDecodeError, IndexError):
        return "nothing: it is damaged already"
    return sql


FUZZED_HOMES = (
    *(("hermes", "hermes", ""), ("hermes", "hermes", ""), ("openclaw", "openclaw", "")),
    *(("openclaw", "openclaw_2026_5", ""), ("nanobot", "nanobot", ""), ("claude-code", "claude_code", ".claude")),
    *(("codex", "codex", ""), ("pi", "pi", "")),
)


@pytest.mark.parametrize("seed", range(FUZZED))
async def test_a_damaged_home_is_imported_without_a_traceback_or_half_a_conversation(seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        program, name, inner = chance.choice(FUZZED_HOMES)
        source = copy_home(name, Path(folder)) / inner
        done = [damage(source, chance) for _ in range(chance.randint(1, 4))]
        home = ImportingHome(Path(folder) / "home")
        result = await home.run(program, source)
        assert result.differences == (), done
        for problem in (each.problem for each in result.results):
            assert "Traceback" not in problem
        unanswered = []
        for (text,) in home.query(
            "SELECT group_concat(message, ',') FROM (SELECT * FROM messages ORDER BY number) GROUP BY turn_number"
        ):
            parts = [part for message in json.loads(f"[{text}]") for part in message["parts"]]
            calls = {part["id"] for part in parts if part["type"] == "call"}
            unanswered += calls - {part["call_id"] for part in parts if part["type"] == "result"}
        assert not unanswered, done
        assert home.query("SELECT count(*) FROM sessions WHERE id NOT IN (SELECT session_id FROM turns)") == [(0,)]
        if result.id:
            assert (await home.undo(result.id)).kept == (), done
