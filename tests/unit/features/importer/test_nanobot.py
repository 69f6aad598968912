"""nanobot 0.3.5: the sample, and damaged ones."""

import json

import pytest

from alipes.features.importer.records import FoundMcpServer, FoundPerson, FoundSchedule, FoundSetting
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

CHAT = "sessions/0c3c40dd161a48f8dc63eb9ff5c928fe/dGVsZWdyYW06MTAwMQ.jsonl"


@pytest.fixture
def home(tmp_path):
    return copy_home("nanobot", tmp_path)


@pytest.fixture
def reader(home, tmp_path):
    return open_reader("nanobot", home, tmp_path)


def chat(reader):
    return next(each for each in conversations(reader) if each.chat)


def test_the_chat_has_its_messages_before_and_after_the_summary(reader):
    found = chat(reader)
    assert found.chat == Address("telegram", "1001")
    assert said(found, "compacted")[:3] == [
        "user: Which files are here?",
        "assistant: I look. +exec",
        "tool:  ok AGENTS.md\nHEARTBEAT.md\nSOUL.md\nUSER.md\nmemory\nprompts\nskills\n\n\nExit code: 0",
    ]
    assert len(said(found, "compacted")) == 14
    assert found.summary == "Three reminders are set."
    assert said(found, "shown")[0] == "user: Thank you."
    assert "Two ways" not in repr(found), "thinking is dropped"


def test_the_terminal_has_no_chat(reader):
    assert [said(each)[0] for each in conversations(reader) if each.chat is None] == ["user: Good evening."]


def test_jobs_of_the_file_and_of_the_changes_beside_it(reader):
    found = read_kind(reader, "schedules")
    jobs = [(each.name, each.when, each.targets) for each in found if isinstance(each, FoundSchedule)]
    assert jobs == [
        ("Hive weights", "0 9 1 * *", ("telegram:1001",)),
        ("Look whether the mail has come", "every 6h", ("telegram:1001",)),
        ("Ask how the winter went.", "2027-03-01T08:30:00+00:00", ("telegram:1001",)),
        ("Honey", "every 1d", ("home",)),
    ]
    assert left_out(found) == ["2 jobs of nanobot itself"]


def test_a_removed_job_is_not_found(home, reader):
    with open(home / "workspace/cron/action.jsonl", "a") as file:
        file.write('{"action": "del", "params": {"job_id": "128e1136"}}\n{"action": "del", "par')
    assert "Honey" not in [each.name for each in read_kind(reader, "schedules") if isinstance(each, FoundSchedule)]


def test_people_memory_settings_and_servers(reader):
    people = read_kind(reader, "people")
    assert [(each.id, each.how) for each in people if isinstance(each, FoundPerson)] == [
        ("1001", "allowed"),
        ("2002", "paired"),
    ]
    assert left_out(people) == ["1 waiting code"]
    entries = [each.text for each in read_kind(reader, "memory")]
    assert entries == ["The hives stand in the orchard; weigh them on the first of each month."]
    assert read_kind(reader, "persona") == []
    settings = {each.key: each.value for each in read_kind(reader, "settings") if isinstance(each, FoundSetting)}
    assert settings == {
        "model": "custom/scripted-1",
        "fallback": ["openrouter/openrouter/auto"],
        "timezone": "Europe/Vienna",
        "providers.custom.base_url": "http://127.0.0.1:9417/v1",
        "providers.custom.api": "openai-chat",
        "providers.custom.key_env": "CUSTOM_API_KEY",
        "telegram.group": "mention",
    }
    assert [each.name for each in read_kind(reader, "mcp") if isinstance(each, FoundMcpServer)] == ["time"]


def test_keys_are_shown_nowhere_else(home, reader):
    config = json.loads((home / "config.json").read_text())
    config["providers"]["openrouter"]["apiKey"] = "CANARY-provider"
    config["channels"]["telegram"]["token"] = "CANARY-bot"
    config["tools"]["mcpServers"]["x"] = {"command": "x", "env": {"X_API_KEY": "CANARY-env"}}
    config["tools"]["mcpServers"]["y"] = {"command": "y", "args": ["--token", "CANARY-arg"]}
    (home / "config.json").write_text(json.dumps(config))
    found = read_all(reader)
    assert set(keys(found["keys"])) == {"CUSTOM_API_KEY", "OPENROUTER_API_KEY", "TELEGRAM_BOT_TOKEN", "MCP_X_X_API_KEY"}
    assert left_out(found["mcp"]) == ["MCP server y"]
    assert show_secrets([record for records in found.values() for record in records], ["CANARY"]) == []


def test_cut_and_odd_lines_cost_only_themselves(home, reader):
    odd = [
        '{"role": "user", "content": "One \\ud83d half \\u0000.", "timestamp": "1970-01-01T00:00:00"}',
        '{"role": "assistant", "content": "no en',
        '{"role": "critic", "content": "?"}',
        '"only a text"',
        '{"role": "assistant", "content": null, "tool_calls": [{"id": "a", "function": {"name": "x", "arguments": "{"}}]}',
        '{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}',
    ]
    text = (home / CHAT).read_text()
    (home / CHAT).write_text(text + "\n".join(odd))
    found = chat(reader)
    assert said(found)[-3:] == ["user: One ? half .", "assistant:  +x", "user: [picture at https://example.com/a.png]"]
    assert found.notes == ("1 remote picture not fetched", f"2 lines of {CHAT} cannot be read")
    assert found.messages[-3].at == 0


def test_settings_that_cannot_be_read_leave_the_conversations(home, reader):
    (home / "config.json").write_text('{"agents": ')
    assert len(conversations(reader)) == 2


def test_sessions_of_scheduled_jobs_are_counted(home, reader):
    (home / "sessions/cron_1.jsonl").write_text(
        '{"_type": "metadata", "key": "cron:1"}\n{"role": "user", "content": "x"}\n'
    )
    assert left_out(read_kind(reader, "conversations")) == ["1 session of the system"]


def test_the_home_is_not_changed(home, reader):
    before = hash_home(home)
    read_all(reader)
    assert hash_home(home) == before
