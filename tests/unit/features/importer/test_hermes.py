"""A home of Hermes Agent: every figure of the sample, and what becomes of it."""

import json
import sqlite3
from contextlib import closing

import pytest

from alipes.config.editor import change
from alipes.config.loader import load_settings
from alipes.features.importer.hermes.messages import drop_repeats
from alipes.features.importer.hermes.sessions import parents_first
from alipes.features.importer.records import PastMessage
from alipes.kernel.messages import Text, assistant, user
from alipes.plugins.discovery import enabled_plugins, find_plugins
from tests.world.imports import ImportingHome, copy_home, hash_tree


@pytest.fixture
def home(tmp_path):
    return ImportingHome(tmp_path / "home")


@pytest.fixture
def source(tmp_path):
    return copy_home("hermes", tmp_path)


def count(home, sql: str, *values) -> int:
    return home.query(f"SELECT count(*) FROM {sql}", *values)[0][0]


def messages(home, title: str) -> list[dict]:
    sql = """SELECT message FROM messages JOIN sessions ON sessions.id = messages.session_id
        WHERE title = ? ORDER BY messages.number"""
    return [json.loads(text) for (text,) in home.query(sql, title)]


def texts(home, title: str) -> list[str]:
    return ["".join(part.get("text", "") for part in each["parts"]) for each in messages(home, title)]


async def test_every_conversation_and_message_is_here(home, source):
    result = await home.run("hermes", source)
    assert (result.differences, [each.problem for each in result.results if each.problem]) == ((), [])
    assert count(home, "sessions") == 16
    platforms = dict(home.query("SELECT platform, count(*) FROM sessions GROUP BY 1"))
    assert platforms == {"terminal": 13, "telegram": 3}
    assert count(home, "sessions WHERE archived = 1") == 1
    assert count(home, "sessions WHERE parent_id IS NOT NULL") == 1
    roles = dict(home.query("SELECT role, count(*) FROM messages GROUP BY 1"))
    # 30 user rows: one is a summary, one repeats the kept tail; 38 of the model: one repeats it; 10 results, and one
    # for the call that was cut off; 3 rows of session_meta
    assert roles == {"user": 28, "assistant": 37, "tool": 11}
    assert count(home, "undone_turns") == 1
    assert count(home, "summaries") == 1


async def test_their_bytes_are_unchanged_in_wal_mode_too(home, source):
    with closing(sqlite3.connect(source / "state.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("UPDATE sessions SET title = 'Only in the log' WHERE title = 'OK'")
        before = hash_tree(source)
        assert "state.db-wal" in before
        await home.run("hermes", source, secrets=True)
        assert hash_tree(source) == before
    assert count(home, "sessions WHERE title = 'Only in the log'") == 1


async def test_a_picture_an_undone_exchange_and_thoughts(home, source):
    await home.run("hermes", source)
    first, answer, *_ = messages(home, "Pictures of bees")
    assert [part["type"] for part in first["parts"]] == ["text", "image"]
    assert answer["parts"][0] == {"type": "thinking", "text": "The picture is one pixel wide."}
    undone = home.query("SELECT text FROM turns JOIN undone_turns ON turn_number = number")
    assert undone == [("And this, which I take back?",)]


async def test_a_compacted_start_is_kept_once_and_summed_up(home, source):
    await home.run("hermes", source)
    said = texts(home, "Honey per year")
    assert len(said) == 14 and said[-4:] == [
        "Question 5: how much honey in year 2020?",
        "In 2020 it was 25 kg.",
        "And in all?",
        "135 kg.",
    ]
    ((covered, text),) = home.query("SELECT message_count, text FROM summaries")
    assert (covered, text) == (10, "Earlier: honey per year from 2015 to 2020, from 20 to 25 kg.")


async def test_a_call_that_was_cut_off_is_answered_as_unknown(home, source):
    await home.run("hermes", source)
    sql = "SELECT message FROM messages JOIN sessions ON sessions.id = session_id WHERE archived = 1 ORDER BY number"
    *_, last = [json.loads(text) for (text,) in home.query(sql)]
    assert last["role"] == "tool" and last["parts"][0]["outcome"] == "unknown"


async def test_usage_is_on_the_bill_as_imported(home, source):
    await home.run("hermes", source)
    ((calls, tokens),) = home.query("SELECT count(*), sum(input) FROM auxiliary_calls WHERE task = 'imported'")
    with closing(sqlite3.connect(source / "state.db")) as theirs:
        assert theirs.execute("SELECT count(*), sum(input_tokens) FROM session_model_usage").fetchone() == (
            calls,
            tokens,
        )


async def test_memory_persona_skills_and_plugins(home, source):
    await home.run("hermes", source)
    assert (home.path / "memory" / "MEMORY.md").read_text().count("- ") == 2
    assert (home.path / "memory" / "USER.md").read_text().count("- ") == 2
    assert (home.path / "SOUL.md").read_text() == (source / "SOUL.md").read_text()
    skill = home.path / "skills" / "weigh-hives" / "SKILL.md"
    assert skill.read_bytes() == (source / "skills/bees/weigh-hives/SKILL.md").read_bytes()
    versions = json.loads((home.path / "skills/.versions/weigh-hives/000001.json").read_text())
    assert versions["change"]["source"]["category"] == "bees" and versions["change"]["source"]["kind"] == "import"
    assert (home.path / "plugins/greeter/plugin.yaml").is_file() and (home.path / "hooks/note-end/HOOK.yaml").is_file()
    assert load_settings(home.path, {}).plugins.enabled == ()


async def test_schedules_arrive_paused_and_those_of_the_past_do_not(home, source):
    jobs = json.loads((source / "cron/jobs.json").read_text())
    jobs["jobs"][2]["schedule"]["run_at"] = "2099-03-01T08:30:00+00:00"
    (source / "cron/jobs.json").write_text(json.dumps(jobs))
    result = await home.run("hermes", source)
    found = dict(home.query("SELECT name, state FROM schedules"))
    assert found == {"hive-weights": "paused", "disk-watch": "paused", "once": "paused"}
    (job,) = [json.loads(job) for name, job in home.query("SELECT name, job FROM schedules") if name == "disk-watch"]
    assert job["script"] == "#!/bin/bash\ndf -h / | tail -1\n" and job["targets"] == ["telegram:424242"]
    (job,) = [json.loads(job) for name, job in home.query("SELECT name, job FROM schedules") if name == "hive-weights"]
    assert (job["zone"], job["skills"], job["targets"]) == ("Europe/Vienna", ["weigh-hives"], ["telegram"])
    (past,) = [each for each in result.plan.items if each.kind == "schedules" and each.state == "left out"]
    assert past.what == "Half hourly" and "past" in past.why


async def test_schedules_run_if_that_is_asked_for(home, source):
    await home.run("hermes", source, start=True, kinds=("schedules",))
    assert {state for (state,) in home.query("SELECT state FROM schedules")} == {"on"}


async def test_people_come_as_users_and_one_of_them_is_the_owner(home, source):
    result = await home.run("hermes", source, owner=("telegram", "1001"))
    people = home.query("SELECT person_id, name, role FROM people ORDER BY 1")
    assert people == [("1001", "", "owner"), ("1002", "", "user"), ("2002", "U2002", "user")]
    assert home.query("SELECT platform, address FROM default_chats")[0][0] == "telegram"
    waiting = [each.what for each in result.plan.items if each.kind == "people" and each.state == "left out"]
    assert waiting == ["U3003", "U1001"]


async def test_settings_and_servers(home, source):
    await home.run("hermes", source)
    text = (home.path / "config.toml").read_text()
    for line in ('model = "custom/mock-1"', 'timezone = "Europe/Vienna"', 'group = "mention"', "enabled = false"):
        assert line in text
    assert 'fallback = ["openrouter/anthropic/claude-sonnet-4.6"]' in text
    assert text.count("enabled = false") == 2 and 'Authorization = "Bearer ${NOTES_TOKEN}"' in text


async def test_what_is_left_out_says_why(home, source):
    plan = await home.plan("hermes", source)
    left = {each.what: each.why for each in plan.items if each.state == "left out"}
    assert "asks you again" in left["command_allowlist: recursive delete"]
    assert left["profile work"] == "import it with --profile work"
    assert left["OPENROUTER_API_KEY"] == "only with --secrets"


async def test_a_profile_has_its_own_home(home, source):
    plan = await home.plan("hermes", source, part="work")
    left = [each for each in plan.items if each.kind == "persona"]
    assert [each.why for each in left] == ["it is the text that Hermes Agent comes with"]
    assert not [each for each in plan.items if each.kind == "conversations"]


def shown(*said: str) -> list[PastMessage]:
    return [PastMessage(assistant(Text(text)) if text[0] == "a" else user(text)) for text in said]


def test_two_compactions_in_a_row():
    summary = "[CONTEXT COMPACTION] first"
    rows = shown("u1", "a1", "u2", "a2", summary, "u2", "a2", "u3", "a3", "[CONTEXT COMPACTION] both", "u3", "a3", "u4")
    found, text = drop_repeats(rows)
    assert [each.message.text for each in found] == ["u1", "a1", "u2", "a2", "u3", "a3", "u4"]
    assert [each.state for each in found] == ["compacted"] * 4 + ["shown"] * 3 and text == "both"


def test_parents_are_first_also_in_a_circle():
    assert list(parents_first({"c": "b", "b": "a", "a": "", "x": "y", "y": "x", "z": "gone"})) == [
        *("a", "b", "c"),
        *("y", "x", "z"),
    ]


async def test_jobs_with_runs_left_have_as_many_here(home, source):
    file = source / "cron/jobs.json"
    found = json.loads(file.read_text())
    found["jobs"][1]["repeat"] = {"times": 5, "completed": 3}
    found["jobs"][0]["repeat"] = {"times": 2, "completed": 2}
    found["jobs"][1]["workdir"] = "/nowhere/at/all"
    file.write_text(json.dumps(found))
    result = await home.run("hermes", source, kinds=("schedules",))
    why = {item.what.partition(":")[0]: item.why for item in result.plan.items}
    assert why["Hive weights"] == "it has run as often as it was to run"
    assert why["Disk watch"] == "2 runs left; there is no folder /nowhere/at/all here; arrives paused"
    ((job,),) = home.query("SELECT job FROM schedules WHERE name = 'disk-watch'")
    assert json.loads(job)["runs_left"] == 2 and "workdir" not in json.loads(job)


async def test_a_hook_is_copied_where_hooks_are_and_stays_disabled_until_it_is_enabled(home, source):
    result = await home.run("hermes", source, kinds=("plugins",))
    settings = load_settings(home.path, {})
    found = {each.name: each.kind for each in find_plugins(settings)}
    assert found["note-end"] == "file-hook" and found["greeter"] == "hermes"
    assert [each.name for each in enabled_plugins(settings)[0]] == []
    assert result.plugins == ("greeter: no problems found in its code",)
    assert "## Plugins\n- greeter" in (home.path / "imports/hermes-1/report.md").read_text()
    assert (await home.undo("hermes-1")).kept == ()
    assert home.files() == {}


async def test_undo_enables_no_other_hook_and_forgets_the_one_that_was_imported(home, source):
    await home.run("hermes", source, kinds=("plugins",))
    change({("plugins", "disabled"): ["note-end", "mine"]}, home=home.path)
    assert (await home.undo("hermes-1")).kept == ()
    assert load_settings(home.path, {}).plugins.disabled == ("mine",)
    assert not (home.path / "hooks").exists()
