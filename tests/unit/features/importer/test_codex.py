"""Codex 0.169: the sample, and damaged ones."""

import json

import pytest

from alipes.features.importer.records import FoundMcpServer, FoundSetting, SkillFolder
from tests.world.other_homes import (
    change_lines,
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

MAIN = "01a1f470-5ef9-7e01-b8dc-8791d34b7db9"
FILE = f"sessions/2026/11/19/rollout-2026-11-19T15-32-47-{MAIN}.jsonl"


@pytest.fixture
def home(tmp_path):
    return copy_home("codex", tmp_path)


@pytest.fixture
def reader(home, tmp_path):
    return open_reader("codex", home, tmp_path)


def find(reader, name):
    return next(each for each in conversations(reader) if each.source.id == name)


def item(**payload):
    return {"timestamp": "2026-11-19T16:00:00Z", "ordinal": 90, "type": "response_item", "payload": payload}


def test_the_session_has_the_words_of_the_person_and_its_calls_together(reader):
    found = find(reader, MAIN)
    assert (found.title, found.workdir) == ("Hive weights", "/home/user/orchard")
    short = [each.partition("\n")[0] for each in said(found)]
    assert short == [
        "user: Which files are here?",
        "assistant: I look. +exec_command",
        "tool:  ok Chunk ID: afec02",
        "assistant: One file: hives.csv.",
        "user: Which hive is heavier?",
        "assistant:  +exec_command +exec_command",
        "tool:  ok Chunk ID: 0c7959",
        "tool:  ok Chunk ID: 4aee6d",
        "assistant: North, by 3.5 kg.",
        "user: And the east one?",
        "assistant: There is no east hive yet.",
    ]
    assert len(said(found, "compacted")) == 9
    assert found.summary == "Ada weighs two hives, north and south. The sum was 59.5 kg."
    assert "Two ways" not in repr(found), "thinking is dropped"


def test_a_fork_has_what_it_shares_with_its_parent_and_pays_only_for_its_own(reader):
    fork = next(each for each in conversations(reader) if each.parent)
    assert fork.parent == MAIN
    assert said(fork)[:2] == said(find(reader, MAIN))[:2]
    assert said(fork)[-2:] == ["user: And the east one, in a fork?", "assistant: There is no east hive yet."]
    assert [each.usage.input for each in fork.usage] == [100]
    assert [each.usage.input for each in find(reader, MAIN).usage] == [600]


def test_archived_and_cut_off_sessions(reader):
    by_first = {said(each)[0]: each for each in conversations(reader)}
    assert by_first["user: An old question"].archived
    assert said(by_first["user: Wait a while"]) == ["user: Wait a while", "assistant:  +exec_command"]


def test_instructions_prompts_settings_and_servers(reader):
    (entry,) = read_kind(reader, "memory")
    assert entry.text.startswith("My name is Ada. I keep bees in the orchard")
    assert [each.name for each in read_kind(reader, "skills") if isinstance(each, SkillFolder)] == ["weights"]
    settings = {each.key: each.value for each in read_kind(reader, "settings") if isinstance(each, FoundSetting)}
    assert settings == {
        "model": "local/scripted-1",
        "providers.local.base_url": "http://127.0.0.1:9417/v1",
        "providers.local.api": "openai-responses",
        "providers.local.key_env": "LOCAL_API_KEY",
    }
    servers = {each.name: each.config for each in read_kind(reader, "mcp") if isinstance(each, FoundMcpServer)}
    assert servers["notes"]["headers"] == {"Authorization": "Bearer ${NOTES_TOKEN}"}


def test_permissions_are_listed_and_logins_left_out(home, reader):
    (home / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "CANARY-key", "tokens": {"access_token": "CANARY"}}))
    assert left_out(read_kind(reader, "permissions")) == [
        "approval_policy = never",
        "sandbox_mode = danger-full-access",
        "trust in /home/user/orchard",
    ]
    found = read_kind(reader, "keys")
    assert keys(found) == {"OPENAI_API_KEY": "CANARY-key"}
    assert left_out(found) == ["login at ChatGPT"]
    assert show_secrets(found, ["CANARY"]) == []


def test_turns_that_were_taken_back_are_undone(home, reader):
    back = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    change_lines(home / FILE, lambda rows: [*rows, back])
    found = find(reader, MAIN)
    assert said(found, "undone") == ["user: And the east one?", "assistant: There is no east hive yet."]


def test_older_shapes_of_calls_and_context(home, reader):
    words = [{"type": "input_text", "text": "<environment_context>x</environment_context>"}]
    output = json.dumps({"output": "no such file", "metadata": {"exit_code": 2}})
    rows = [
        item(type="message", role="user", content=words),
        item(type="message", role="user", content=[{"type": "input_text", "text": "List."}]),
        item(type="local_shell_call", call_id="a", action={"type": "exec", "command": ["ls", "x"]}),
        item(type="function_call_output", call_id="a", output=output),
        item(type="custom_tool_call", call_id="b", name="apply_patch", input="*** Begin Patch"),
        item(type="custom_tool_call_output", call_id="b", output={"content": "done", "success": True}),
    ]
    change_lines(home / FILE, lambda old: [*old, *rows])
    assert said(find(reader, MAIN))[-5:] == [
        "user: List.",
        "assistant:  +shell",
        "tool:  failed no such file",
        "assistant:  +apply_patch",
        "tool:  ok done",
    ]


def test_a_fork_of_itself_and_a_missing_parent_end(home, reader):
    fork = next(home.glob("sessions/*/*/*/*981c*.jsonl"))
    name = fork.stem[-36:]

    def change(rows):
        rows[0]["payload"]["forked_from_id"] = name
        return rows

    change_lines(fork, change)
    assert said(find(reader, name)) == ["user: And the east one, in a fork?", "assistant: There is no east hive yet."]


def test_cut_lines_and_unknown_kinds_cost_only_themselves(home, reader):
    def change(rows):
        return [rows[0], '{"timestamp": "2026', {"type": "weather", "payload": {}}, *rows[1:], '{"cut']

    change_lines(home / FILE, change)
    found = find(reader, MAIN)
    assert len(found.messages) == 11
    assert found.notes == ("1 line of the unknown kind weather", f"2 lines of {FILE} cannot be read")


def test_a_config_that_is_no_toml_is_named(home, reader):
    (home / "config.toml").write_text("model = ")
    with pytest.raises(Exception, match=r"config\.toml is not valid TOML"):
        read_kind(reader, "settings")
    assert len(conversations(reader)) == 4


def test_subagents_are_counted(home, reader):
    def change(rows):
        rows[0]["payload"]["source"] = {"subagent": "review"}
        return rows

    change_lines(home / FILE, change)
    assert left_out(read_kind(reader, "conversations")) == ["1 session of subagents"]


def test_the_home_is_not_changed(home, reader):
    before = hash_home(home)
    read_all(reader)
    assert hash_home(home) == before
