"""OpenClaw since 2026.6, with its databases: every figure of the sample."""

import json
import shutil
import sqlite3
import sys
from contextlib import closing

import pytest

from alipes.features.importer.records import (
    DailyNote,
    FoundMcpServer,
    FoundPerson,
    FoundSchedule,
    FoundSetting,
    MemoryEntry,
    SkillFolder,
)
from alipes.kernel.turns import Address
from tests.world.other_homes import (
    conversations,
    copy_home,
    hash_home,
    keys,
    left_out,
    open_reader,
    read_all,
    read_kind,
    said,
    show_secrets,
)

MAIN = "agents/main/agent/openclaw-agent.sqlite"
STATE = "state/openclaw.sqlite"
FOLDERS = "eec2e3f9-f78a-45d7-992d-57f619925434"


@pytest.fixture
def home(tmp_path):
    return copy_home("openclaw", tmp_path)


@pytest.fixture
def reader(home, tmp_path):
    return open_reader("openclaw", home, tmp_path)


def execute(file, *statements):
    """Change a database of the sample, also where its checks need a newer SQLite."""
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA ignore_check_constraints = 1")
        for statement, *values in statements:
            db.execute(statement, values)
        db.commit()


def event(kind, id, parent, **more):
    return json.dumps({"type": kind, "id": id, "parentId": parent, "timestamp": "2026-11-17T08:00:00.000Z", **more})


def message(id, parent, role, text, **more):
    return event("message", id, parent, message={"role": role, "content": text, **more})


def add_window(file, session, key, events, *, reason=None, previous=None, at=1_794_900_000_000):
    node = (
        "INSERT OR IGNORE INTO session_nodes (session_key, current_session_id, entry_json, updated_at) VALUES (?,?,?,?)"
    )
    window = """INSERT INTO session_windows (session_id, session_key, previous_session_id, reason, created_at,
        updated_at) VALUES (?, ?, ?, ?, ?, ?)"""
    row = "INSERT INTO transcript_events (session_id, seq, event_json, created_at) VALUES (?, ?, ?, ?)"
    rows = [(row, session, seq, text, at) for seq, text in enumerate(events)]
    execute(file, (node, key, session, "{}", at), (window, session, key, previous, reason, at, at), *rows)


def test_the_four_conversations_of_two_agents_have_all_their_messages(reader):
    found = {each.source.id: each for each in conversations(reader)}
    assert {each.source.file for each in found.values()} == {MAIN, "agents/letters/agent/openclaw-agent.sqlite"}
    assert sorted(len(each.messages) for each in found.values()) == [2, 2, 2, 8]
    assert said(found[FOLDERS])[:7] == [
        "user: Which files are here?",
        "assistant:  +exec",
        "tool:  ok AGENTS.md\nIDENTITY.md\nMEMORY.md\nSOUL.md\nUSER.md\nmemory\nskills",
        "assistant: Five_files.",
        "user: And the newest?",
        "assistant: USER.md",
        "user:",
    ]
    assert found[FOLDERS].title == "folders"
    assert sum(each.usage.input for one in found.values() for each in one.messages if each.usage) == 7000


def test_the_message_that_is_only_there_compressed_is_read(reader):
    last = next(each for each in conversations(reader) if each.source.id == FOLDERS).messages[-1]
    assert last.message.text.startswith("tok0 tok1 ")
    assert last.message.text.split()[-1] == "tok399"


def test_a_missing_zstd_reader_is_named_with_what_it_would_have_read(reader, monkeypatch):
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    found = next(each for each in conversations(reader) if each.source.id == FOLDERS)
    assert len(found.messages) == 7
    (note,) = found.notes
    assert note.startswith("a compressed message was left out. ")
    assert "alipes install openclaw" in note


def test_chats_keep_their_address_and_the_person_who_wrote(reader):
    chats = {each.chat: each for each in conversations(reader) if each.chat}
    assert chats.keys() == {Address("telegram", "1001"), Address("telegram", "2002")}
    assert [each.sender for each in chats[Address("telegram", "2002")].messages] == ["2002", ""]


def test_jobs_of_the_user_are_found_and_those_of_the_system_are_not(reader):
    found = read_kind(reader, "schedules")
    jobs = {each.name: each for each in found if isinstance(each, FoundSchedule)}
    assert {name: (each.when, each.zone, each.enabled) for name, each in jobs.items()} == {
        "Hive weights": ("0 9 1 * *", "Europe/Vienna", True),
        "Disk watch": ("every 6h", "Europe/Vienna", True),
        "Once": ("2027-03-01T08:30:00+00:00", "Europe/Vienna", False),
    }
    assert jobs["Disk watch"].script == "df -h / | tail -1"
    assert jobs["Hive weights"].targets == ("telegram:1001",)
    assert jobs["Once"].prompt == "Ask how the winter went."
    assert left_out(found) == ["5 jobs of OpenClaw itself"]


def test_people_are_those_who_were_allowed_or_paired(reader):
    found = read_kind(reader, "people")
    people = {each.id: (each.platform, each.how) for each in found if isinstance(each, FoundPerson)}
    assert people == {"1001": ("telegram", "allowed"), "2002": ("telegram", "paired")}
    assert left_out(found) == ["telegram:2002 as an owner"]


def test_memory_notes_and_skills_are_those_of_the_main_agent(reader):
    entries = [each for each in read_kind(reader, "memory") if isinstance(each, MemoryEntry)]
    assert [(each.about, each.text) for each in entries] == [
        ("notes", "The hives stand in the orchard; weigh them on the first of each month."),
        ("notes", "Invoices live in ~/work/invoices, one PDF per month."),
        ("user", "**Name:** Ada"),
        ("user", "**What to call them:** Ada"),
        ("user", "**Timezone:** Europe/Vienna"),
        ("user", "**Notes:** keeps bees; prefers short answers in British English"),
    ]
    assert [each.day for each in read_kind(reader, "notes") if isinstance(each, DailyNote)] == [
        "2026-11-14",
        "2026-11-15",
    ]
    assert [each.name for each in read_kind(reader, "skills") if isinstance(each, SkillFolder)] == ["weigh-hives"]
    assert read_kind(reader, "persona") == [], "both files are OpenClaw's own text"


def test_a_persona_that_was_written_is_found(home, reader):
    (home / "workspace/SOUL.md").write_text("You are a bee.\n")
    (home / "workspace/IDENTITY.md").write_text("- **Name:** Maya\n- **Creature:**\n  _(AI? robot?)_\n")
    assert [each.text for each in read_kind(reader, "persona")] == ["You are a bee.\n\n- Name: Maya"]


def test_another_agent_is_chosen_with_its_conversations_and_its_workspace(home, tmp_path):
    (home / "workspace-letters/SOUL.md").write_text("You write letters.\n")
    reader = open_reader("openclaw", home, tmp_path, "letters")
    assert reader.list_parts() == ("main", "letters")
    assert [said(each) for each in conversations(reader)] == [["user: Write a letter.", "assistant: Dear_Sir."]]
    assert [each.text for each in read_kind(reader, "persona")] == ["You write letters."]


def test_settings_and_mcp_servers(reader):
    settings = {each.key: each.value for each in read_kind(reader, "settings") if isinstance(each, FoundSetting)}
    assert settings == {
        "model": "mock/mock-1",
        "timezone": "Europe/Vienna",
        "providers.mock.base_url": "http://127.0.0.1:9100/v1",
        "providers.mock.api": "openai-chat",
        "providers.mock.key_env": "MOCK_API_KEY",
        "telegram.base_url": "http://127.0.0.1:9201",
    }
    servers = {each.name: each.config for each in read_kind(reader, "mcp") if isinstance(each, FoundMcpServer)}
    assert servers == {
        "time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "Europe/Vienna"}},
        "notes": {"url": "http://127.0.0.1:9300/mcp", "headers": {"Authorization": "Bearer ${NOTES_TOKEN}"}},
    }


def test_comments_in_the_configuration_are_read(home, reader):
    text = (home / "openclaw.json").read_text()
    (home / "openclaw.json").write_text(f"// mine\n{text.rstrip().removesuffix('}')}, /* JSON5 */ }}")
    assert len(read_kind(reader, "settings")) == 6


def test_without_a_json5_reader_the_settings_are_named(home, reader, monkeypatch):
    monkeypatch.setitem(sys.modules, "json5", None)
    (home / "openclaw.json").write_text("{ // mine\n}")
    assert read_kind(reader, "settings") == []
    (problem,) = [each.why for each in read_kind(reader, "other") if each.what == "openclaw.json"]
    assert problem.startswith("openclaw.json, with the settings, was left out. ")
    assert "alipes install openclaw" in problem


def test_keys_are_found_in_every_place_and_shown_nowhere_else(reader):
    found = read_all(reader)
    secrets = keys(found["keys"])
    assert secrets == {
        "OPENROUTER_API_KEY": "sk-or-EXAMPLE-not-a-key",
        "ANTHROPIC_API_KEY": "sk-ant-EXAMPLE-not-a-key",
        "BRAVE_API_KEY": "EXAMPLE-brave",
        "MOCK_API_KEY": "EXAMPLE-not-a-key",
        "TELEGRAM_BOT_TOKEN": "4242:EXAMPLE-bot-token-not-real",
    }
    assert left_out(found["keys"]) == ["gateway.auth.token"]
    everything = [record for records in found.values() for record in records]
    assert show_secrets(everything, [*secrets.values(), "EXAMPLE-gateway"]) == []


def test_logins_and_references_are_left_out_and_a_second_value_is_named(home, reader):
    store = {
        "profiles": {
            "openrouter:manual": {"type": "api_key", "provider": "openrouter", "key": "CANARY-other"},
            "anthropic:me": {"type": "oauth", "provider": "anthropic", "access": "CANARY-access"},
            "groq:x": {"type": "api_key", "provider": "groq", "keyRef": {"source": "exec", "id": "CANARY-run"}},
        }
    }
    sql = "UPDATE config_machine_state SET value_json = ? WHERE state_key = 'authProfiles.store'"
    execute(home / STATE, (sql, json.dumps(store)))
    found = read_kind(reader, "keys")
    assert left_out(found) == [
        "gateway.auth.token",
        "OPENROUTER_API_KEY, once more",
        "login anthropic:me",
        "GROQ_API_KEY for providers.groq",
    ]
    assert show_secrets(found, ["CANARY"]) == []


def test_standing_permissions_are_listed(home, reader):
    raw = {"agents": {"main": {"allowlist": [{"pattern": "/usr/bin/rm *"}]}}}
    sql = """INSERT INTO exec_approvals_config (config_key, raw_json, has_socket_token, agent_count, allowlist_count,
        updated_at_ms) VALUES ('x', ?, 0, 1, 1, 0)"""
    execute(home / STATE, (sql, json.dumps(raw)))
    assert left_out(read_kind(reader, "permissions")) == ["/usr/bin/rm * (agent main)"]


def test_a_window_after_a_reset_is_a_conversation_of_its_own_and_has_the_chat(home, reader):
    key = "agent:main:telegram:direct:1001"
    before = "ccbc1726-5311-42c9-9b20-9bfa7af0669b"
    add_window(home / MAIN, "next", key, [message("n1", None, "user", "Again.")], reason="rollover", previous=before)
    found = {each.source.id: each for each in conversations(reader)}
    assert (found[before].chat, found["next"].chat) == (None, Address("telegram", "1001"))
    assert said(found["next"]) == ["user: Again."]


def test_a_window_after_a_compaction_continues_the_conversation(home, reader):
    key, before = "agent:main:folders", FOLDERS
    compaction = event("compaction", "c1", "d4369200-1bd8-4c99-b89a-16e4feceaf04", summary="They list files.",
        firstKeptEntryId="d4369200-1bd8-4c99-b89a-16e4feceaf04")  # fmt: skip
    kept = message("d4369200-1bd8-4c99-b89a-16e4feceaf04", None, "assistant", "USER.md")
    events = [kept, compaction, message("n1", "c1", "user", "Go on.")]
    add_window(home / MAIN, "next", key, events, reason="compaction", previous=before)
    found = next(each for each in conversations(reader) if each.source.id == FOLDERS)
    assert found.summary == "They list files."
    assert said(found, "shown") == ["assistant: USER.md", "user: Go on."]
    assert len(said(found, "compacted")) == 7


def test_a_reset_within_a_window_starts_a_new_conversation(home, reader):
    events = [
        message("a", None, "user", "One."),
        message("b", "a", "assistant", "Two."),
        event("reset", "r", "b"),
        message("c", "r", "user", "Three."),
    ]
    add_window(home / MAIN, "with-reset", "agent:main:main", events)
    found = [said(each) for each in conversations(reader) if each.source.id.startswith("with-reset")]
    assert found == [["user: One.", "assistant: Two."], ["user: Three."]]


def test_only_the_active_path_of_a_tree_is_taken(home, reader):
    events = [
        message("a", None, "user", "Which?"),
        message("b", "a", "assistant", "The first."),
        message("c", "a", "assistant", "The second."),
        event("leaf", "l", "c", targetId="b"),
    ]
    add_window(home / MAIN, "tree", "agent:main:tree", events)
    found = next(each for each in conversations(reader) if each.source.id == "tree")
    assert said(found) == ["user: Which?", "assistant: The first."]


def test_a_session_that_several_people_shared_belongs_to_no_chat(home, reader):
    def by(person):
        return {"__openclaw": {"senderId": person, "transport": {"channel": "telegram"}}}

    events = [message("a", None, "user", "I.", **by("1001")), message("b", "a", "user", "And I.", **by("2002"))]
    add_window(home / MAIN, "shared", "agent:main:main", events)
    found = next(each for each in conversations(reader) if each.source.id == "shared")
    assert found.chat is None
    assert [each.sender for each in found.messages] == ["1001", "2002"]


def test_sessions_of_jobs_and_subagents_are_counted(home, reader):
    add_window(home / MAIN, "job", "agent:main:cron:x", [message("a", None, "user", "Tick.")])
    add_window(home / MAIN, "sub", "agent:main:subagent:y", [message("b", None, "user", "Count.")])
    assert left_out(read_kind(reader, "conversations")) == ["2 sessions of the system"]


def test_an_old_window_is_read_from_its_archive(home, reader):
    zstandard = pytest.importorskip("zstandard")
    rows = [
        {"kind": "header", "version": 1, "sessionId": "old", "generation": "g"},
        {"kind": "event", "row": {"seq": 0, "event_json": message("a", None, "user", "Long ago."), "created_at": 1}},
    ]
    blob = zstandard.ZstdCompressor().compress("".join(f"{json.dumps(row)}\n" for row in rows).encode())
    add_window(home / MAIN, "old", "agent:main:old", [])
    sql = """INSERT INTO session_transcript_cold_archives VALUES ('old', 'g', 'x.jsonl.zst', ?, 1, 1, 1, 0, 1,
        'sqlite', ?)"""
    execute(home / MAIN, (sql, "0" * 64, blob))
    assert said(next(each for each in conversations(reader) if each.source.id == "old")) == ["user: Long ago."]


def test_damaged_events_cost_only_themselves(home, reader):
    events = [
        message("a", None, "user", "One \ud83d half, one \x00 NUL."),
        '{"type": "message", "id": "b", "parentId": "a", "mess',
        event("weather", "c", "b", text="rain"),
        message("d", "d", "assistant", "Its own parent."),
        message("d", "d", "user", "The same id again."),
        event("message", "e", "d", message={"role": "critic", "content": "No."}),
        message("f", "nowhere", "assistant", "A parent that is not there.", timestamp=10**18),
    ]
    add_window(home / MAIN, "odd", "agent:main:odd", events)
    found = next(each for each in conversations(reader) if each.source.id == "odd")
    assert said(found) == [
        "user: One ? half, one  NUL.",
        "assistant: Its own parent.",
        "user: The same id again.",
        "assistant: A parent that is not there.",
    ]
    assert found.notes == (
        "1 event of the unknown kind weather",
        "1 message of the unknown role critic",
        "1 unreadable event",
    )


def test_a_newer_schema_is_read_by_the_columns_that_are_known(home, reader):
    execute(
        home / MAIN,
        ("ALTER TABLE session_nodes RENAME COLUMN label TO label_v2",),
        ("ALTER TABLE transcript_events ADD COLUMN mood TEXT",),
        ("PRAGMA user_version = 99",),
    )
    assert sum(len(each.messages) for each in conversations(reader)) == 14
    assert "agents/main/agent/openclaw-agent.sqlite has a newer format" in repr(read_kind(reader, "other"))


def test_a_torn_database_leaves_the_other_agent(home, reader):
    data = (home / MAIN).read_bytes()
    (home / MAIN).write_bytes(data[: len(data) // 2])
    found = read_kind(reader, "conversations")
    assert left_out(found) == ["conversations of main"]
    assert [said(each)[0] for each in conversations(reader)] == ["user: Write a letter."]


def test_an_empty_home_has_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    reader = open_reader("openclaw", tmp_path / "empty", tmp_path)
    assert not reader.recognises(tmp_path / "empty")
    assert not any(read_all(reader).values())


def test_the_home_is_not_changed(home, tmp_path):
    shutil.copy(home / MAIN, home / "spare")
    before = hash_home(home)
    read_all(open_reader("openclaw", home, tmp_path))
    assert hash_home(home) == before
