"""Claude Code 2.1: the sample, and damaged ones."""

import json

import pytest

from alipes.features.importer.records import FoundMcpServer, SkillFolder
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

MAIN = "989d56e4-d6c5-440e-82bd-22307806f621"
FORK = "8cb0a643-d709-4094-813f-94aa05e90892"
FILE = f"projects/-home-user-orchard/{MAIN}.jsonl"


@pytest.fixture
def home(tmp_path):
    return copy_home("claude_code", tmp_path) / ".claude"


@pytest.fixture
def reader(home, tmp_path):
    return open_reader("claude-code", home, tmp_path)


def find(reader, name=MAIN):
    return next(each for each in conversations(reader) if each.source.id == name)


def row(kind, uuid, parent, **more):
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "timestamp": "2026-11-19T16:00:00Z", **more}


def user(uuid, parent, content, **more):
    return row("user", uuid, parent, message={"role": "user", "content": content}, **more)


def last(rows):
    return [each["uuid"] for each in rows if "uuid" in each][-1]


def test_the_session_has_its_messages_before_and_after_the_compaction(reader):
    found = find(reader)
    assert found.workdir == "/home/user/orchard"
    assert said(found, "compacted") == [
        "user: Which files are here?",
        "assistant: I look. +Bash",
        "tool:  ok CLAUDE.md\nhives.csv",
        "assistant: Two files: CLAUDE.md and hives.csv.",
        "user: Which hive is heavier?",
        "assistant:  +Read +Read",
        "tool:  failed File does not exist. Note: your current working directory is /home/user/orchard.",
        "tool:  ok 1\thive,kg\n2\tnorth,31.5\n3\tsouth,28\n4",
        "assistant: North, by 3.5 kg.",
        "user: Please count the lines with the counter.",
        "assistant:  +Agent",
        said(found)[11],
        "assistant: Three lines, so two hives.",
        'notice: Agent "Count lines" finished\n3',
    ]
    assert said(found, "shown") == [
        "assistant: Three lines, so two hives.",
        "user: And the east one?",
        "assistant: There is no east hive yet.",
    ]
    assert found.summary == "Ada weighs two hives, north and south. The sum was 59.5 kg."
    assert found.notes == ("1 side chain of subagents left out",)
    assert "Two ways" not in repr(found), "thinking is dropped"


def test_an_answer_of_several_rows_is_paid_for_once(reader):
    assert sum(each.usage.input for each in find(reader).messages if each.usage) == 800


def test_a_fork_comes_after_its_parent_and_pays_only_for_its_own_answer(reader):
    names = [each.source.id for each in conversations(reader)]
    fork = find(reader, FORK)
    assert fork.parent == MAIN
    assert names.index(MAIN) < names.index(FORK)
    assert said(fork)[0].startswith("notice: What was said before, in short: Ada weighs two hives")
    assert sum(each.usage is not None for each in fork.messages) == 1


def test_a_call_that_was_cut_off_is_the_last_message(reader):
    assert said(conversations(reader)[-1]) == ["user: Wait a while", "assistant:  +Bash"]


def test_instructions_skills_commands_and_servers(reader):
    assert [each.text[:15] for each in read_kind(reader, "memory")] == ["My name is Ada.", "Answer in Briti"]
    skills = [each.name for each in read_kind(reader, "skills") if isinstance(each, SkillFolder)]
    assert skills == ["weigh-hives", "weights"]
    found = read_kind(reader, "mcp")
    servers = {each.name: each.config for each in found if isinstance(each, FoundMcpServer)}
    assert servers["notes"]["headers"] == {"Authorization": "Bearer ${MCP_NOTES_AUTHORIZATION}"}
    assert left_out(found) == ["MCP server files"]
    assert left_out(read_kind(reader, "other")) == ["agent counter"]


def test_permissions_are_listed(reader):
    assert left_out(read_kind(reader, "permissions")) == [
        "allow Bash(ls:*)",
        "allow Read",
        "deny Bash(rm:*)",
        "mode acceptEdits",
    ]


def test_keys_are_shown_nowhere_else(home, reader):
    state = json.loads((home.parent / ".claude.json").read_text())
    state["primaryApiKey"] = "CANARY-primary"
    state["mcpServers"]["x"] = {"url": "https://x.example/mcp?api_key=CANARY"}
    (home.parent / ".claude.json").write_text(json.dumps(state))
    (home / ".credentials.json").write_text('{"claudeAiOauth": {"accessToken": "CANARY-login"}}')
    found = read_all(reader)
    assert keys(found["keys"]) == {
        "WEATHER_API_KEY": "EXAMPLE-weather",
        "ANTHROPIC_API_KEY": "CANARY-primary",
        "MCP_NOTES_AUTHORIZATION": "EXAMPLE-notes",
    }
    assert left_out(found["keys"]) == ["login at Anthropic"]
    secrets = ["CANARY", "EXAMPLE-weather", "EXAMPLE-notes"]
    assert show_secrets([record for records in found.values() for record in records], secrets) == []


def test_commands_reminders_and_errors_are_not_the_words_of_the_person(home, reader):
    def change(rows):
        end = last(rows)
        command = "<command-name>/weights</command-name><command-args>May</command-args>"
        error = {"id": "e", "model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]}
        return [
            *rows,
            user("1", end, "<command-name>/model</command-name>"),
            user("2", "1", command),
            user("3", "2", "The expanded command.", isMeta=True),
            user("4", "3", "<system-reminder>Be brief.</system-reminder>\nNow?"),
            row("assistant", "5", "4", message=error),
            user("6", "5", "<bash-input>ls</bash-input>"),
        ]

    change_lines(home / FILE, change)
    found = find(reader)
    assert said(found)[-3:] == ["user: /weights May", "user: Now?", "notice: The user ran ls"]
    assert "1 error message" in found.notes


def test_what_was_rewound_is_left_out(home, reader):
    def change(rows):
        return [*rows, user("a", last(rows), "Wrong."), user("b", last(rows), "Right.")]

    change_lines(home / FILE, change)
    assert said(find(reader))[-2:] == ["assistant: There is no east hive yet.", "user: Right."]


def test_side_chains_among_the_rows_of_older_versions_are_left_out(home, reader):
    def change(rows):
        chain = user("s", None, "Count.", isSidechain=True)
        return [*rows, chain, user("t", "s", "More.", isSidechain=True)]

    change_lines(home / FILE, change)
    found = find(reader)
    assert said(found)[-1] == "assistant: There is no east hive yet."
    assert found.notes == ("2 side chains of subagents left out",)


def test_titles(home, reader):
    change_lines(home / FILE, lambda rows: [*rows, {"type": "ai-title", "aiTitle": "Hives"}])
    assert find(reader).title == "Hives"
    change_lines(home / FILE, lambda rows: [*rows, {"type": "custom-title", "customTitle": "My hives"}])
    assert find(reader).title == "My hives"


def test_cycles_doubled_ids_and_cut_lines_cost_nothing_else(home, reader):
    def change(rows):
        first = next(each for each in rows if each["type"] == "user")
        first["parentUuid"] = first["uuid"]
        return ['{"type":"user","uuid":', *rows, user(last(rows), "nowhere", "Again \ud83d."), "[]"]

    change_lines(home / FILE, change)
    found = find(reader)
    assert len(said(found)) == 18
    assert said(found)[-1] == "user: Again ?."
    assert f"2 lines of {FILE} cannot be read" in found.notes


def test_settings_that_cannot_be_read_are_named(home, reader):
    (home / "settings.json").write_text("{")
    with pytest.raises(Exception, match=r"settings\.json is not valid JSON"):
        read_kind(reader, "permissions")
    assert len(conversations(reader)) == 3


def test_the_home_is_not_changed(home, reader):
    before = hash_home(home.parent)
    read_all(reader)
    assert hash_home(home.parent) == before
