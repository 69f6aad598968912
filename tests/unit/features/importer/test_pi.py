"""pi 1.5.2: the sample, and damaged ones."""

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

MAIN = "01a1f46b-6a62-778d-af78-089856683652"
FOLDER = "sessions/--home-user-orchard--"
FILE = f"{FOLDER}/2026-11-19T15-27-22-723Z_{MAIN}.jsonl"


@pytest.fixture
def home(tmp_path):
    return copy_home("pi", tmp_path)


@pytest.fixture
def reader(home, tmp_path):
    return open_reader("pi", home, tmp_path)


def find(reader, name):
    return next(each for each in conversations(reader) if each.source.id == name)


def test_the_session_has_its_active_path_with_the_summary(reader):
    found = find(reader, MAIN)
    assert (found.title, found.workdir) == ("Hive weights", "/home/user/orchard")
    assert said(found) == [
        "user: Which files are here?",
        "assistant: I look. +bash",
        "tool:  ok hives.csv",
        "assistant: One file: hives.csv.",
        "user: How heavy is the south one?",
        "assistant: The south hive weighs 28 kg.",
        "user: And the east one?",
        "assistant: There is no east hive yet.",
    ]
    assert len(said(found, "compacted")) == 5
    assert found.summary.startswith("Ada weighs two hives")


def test_the_branch_that_was_left_is_a_conversation_of_its_own(reader):
    branch = next(each for each in conversations(reader) if "#" in each.source.id)
    assert (branch.title, branch.parent) == ("Hive weights (branch)", MAIN)
    assert said(branch)[4:] == [
        "user: Which hive is heavier?",
        "assistant:  +read +read",
        "tool:  ok hive,kg\nnorth,31.5\nsouth,28",
        "tool:  failed ENOENT: no such file or directory, access '/home/user/orchard/missing.csv'",
        "assistant: North, by 3.5 kg.",
    ]


def test_a_fork_has_its_parent_before_it_and_pays_only_for_its_own_answer(reader):
    found = conversations(reader)
    fork = found[-2]
    assert (fork.parent, said(fork)[-2]) == (MAIN, "user: And the east one, in the fork?")
    assert [each.source.id for each in found].index(fork.parent) < found.index(fork)
    paid = [sum(each.usage is not None for each in one.messages) for one in found]
    assert paid == [4, 2, 1, 2], "6 answers of the session, 1 of the fork, 2 of the last"


def test_a_call_that_was_cut_off_is_the_last_message(reader):
    assert said(conversations(reader)[-1])[-1] == "assistant:  +bash"


def test_instructions_skills_prompts_settings_and_servers(reader):
    (entry,) = read_kind(reader, "memory")
    assert (entry.about, entry.text[:26]) == ("user", "Answer in British English.")
    skills = [each for each in read_kind(reader, "skills") if isinstance(each, SkillFolder)]
    assert [(each.name, each.scripts) for each in skills] == [("weigh-hives", ("sum.sh",)), ("weights", ())]
    assert [(file.name, file.path) for file in skills[1].files] == [("SKILL.md", "prompts/weights.md")]
    settings = {each.key: each.value for each in read_kind(reader, "settings") if isinstance(each, FoundSetting)}
    assert settings["model"] == "local/scripted-1"
    assert settings["providers.local.api"] == "openai-chat"
    assert [each.name for each in read_kind(reader, "mcp") if isinstance(each, FoundMcpServer)] == ["time"]
    assert left_out(read_kind(reader, "plugins")) == ["branch.ts"]


def test_keys_logins_and_references(home, reader):
    logins = {"openai": {"type": "oauth", "access": "CANARY"}, "groq": {"type": "api_key", "key": "!pass CANARY"}}
    (home / "auth.json").write_text(json.dumps(logins))
    found = read_kind(reader, "keys")
    assert keys(found) == {"LOCAL_API_KEY": "EXAMPLE-not-a-key"}
    assert left_out(found) == ["login openai", "the key of groq"]
    assert show_secrets(found, ["CANARY"]) == []


def test_cycles_doubled_ids_and_cut_lines_cost_nothing_else(home, reader):
    def change(rows):
        rows[4]["parentId"] = rows[-1]["id"]
        rows[6]["id"] = rows[5]["id"]
        return [*rows[:3], '{"type":"message","id":"9b1a02', *rows[4:], '{"type": "mess']

    change_lines(home / FILE, change)
    found = find(reader, MAIN)
    assert said(found)[0] == "user: Which files are here?"
    assert said(found)[-1] == "assistant: There is no east hive yet."
    assert found.notes == (f"2 lines of {FILE} cannot be read",)


def test_unknown_events_and_roles_are_named(home, reader):
    def change(rows):
        weather = {"type": "weather", "id": "w", "parentId": rows[-1]["id"]}
        critic = {"type": "message", "id": "c", "parentId": "w", "message": {"role": "critic", "content": "?"}}
        return [*rows, weather, critic]

    change_lines(home / FILE, change)
    assert find(reader, MAIN).notes == ("1 event of the unknown kind weather", "1 message of the unknown role critic")


def test_other_settings_files_that_are_damaged_are_named(home, reader):
    (home / "mcp.json").write_text("{")
    with pytest.raises(Exception, match=r"mcp\.json is not valid JSON"):
        read_kind(reader, "mcp")
    assert len(conversations(reader)) == 4


def test_the_home_is_not_changed(home, reader):
    before = hash_home(home)
    read_all(reader)
    assert hash_home(home) == before
