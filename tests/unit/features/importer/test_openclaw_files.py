"""OpenClaw before 2026.6, with its files: every figure of the sample."""

import json

import pytest

from alipes.features.importer.openclaw.words import strip_metadata
from alipes.features.importer.records import FoundPerson, FoundSchedule, MemoryEntry, Persona
from alipes.kernel.turns import Address
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
)

SESSIONS = "agents/main/sessions"
FOLDERS = f"{SESSIONS}/folders-1.jsonl"


@pytest.fixture
def home(tmp_path):
    return copy_home("openclaw_2026_5", tmp_path)


@pytest.fixture
def reader(home, tmp_path):
    return open_reader("openclaw", home, tmp_path)


def folders(reader):
    return next(each for each in conversations(reader) if each.source.id == "folders-1")


def test_the_two_conversations_have_their_messages_without_the_repeated_answers(reader):
    found = {each.source.id: each for each in conversations(reader)}
    assert sum(len(each.messages) for each in found.values()) == 8 - 2
    chat = found["affe31c9-dff9-4499-a5ee-a06efa55eac7"]
    assert said(chat) == ["user: Hello there.", "assistant: Good_morning_Ada."]
    assert (chat.chat, chat.messages[0].sender) == (Address("telegram", "1001"), "1001")
    assert said(found["folders-1"])[0] == "user: Which files are here?"
    assert said(found["folders-1"])[-1] == "assistant: Five_files."
    assert [each.notes for each in found.values()] == [("1 repeated answer",)] * 2
    assert sum(each.usage.input for one in found.values() for each in one.messages if each.usage) == 3000


def test_an_answer_of_a_program_that_is_no_repeat_is_kept(home, reader):
    def change(rows):
        rows[-1]["message"]["content"][0]["text"] = "Another answer."
        return rows

    change_lines(home / FOLDERS, change)
    assert said(folders(reader))[-2:] == ["assistant: Five_files.", "assistant: Another answer."]


def test_schedules_people_keys_and_defaults(reader):
    found = read_all(reader)
    jobs = [(each.name, each.when, each.zone) for each in found["schedules"] if isinstance(each, FoundSchedule)]
    assert jobs == [("Hive weights", "0 9 1 * *", "Europe/Vienna"), ("Every six hours", "every 6h", "")]
    people = [(each.id, each.how) for each in found["people"] if isinstance(each, FoundPerson)]
    assert people == [("1001", "allowed"), ("2002", "paired")]
    assert keys(found["keys"]).keys() == {"MOCK_API_KEY", "TELEGRAM_BOT_TOKEN"}
    assert not [each for each in (*found["memory"], *found["persona"]) if isinstance(each, MemoryEntry | Persona)]
    assert reader.version() == "2026.5.12"


def test_approvals_and_waiting_codes_are_counted(home, reader):
    approvals = {"agents": {"main": {"allowlist": [{"pattern": "git *"}]}}}
    (home / "exec-approvals.json").write_text(json.dumps(approvals))
    (home / "credentials/telegram-pairing.json").write_text('{"requests": [{"id": "3003", "code": "ABCD"}]}')
    assert left_out(read_kind(reader, "permissions")) == ["git * (agent main)"]
    assert left_out(read_kind(reader, "people"))[-1] == "1 waiting code"


def test_transcripts_without_a_key_are_the_owners_and_deleted_ones_are_counted(home, reader):
    text = (home / FOLDERS).read_text()
    (home / SESSIONS / "before.jsonl.reset.2026-11-10T08-00-00").write_text(text)
    (home / SESSIONS / "gone.jsonl.deleted.2026-11-10T08-00-00").write_text(text)
    assert {each.source.id: each.chat for each in conversations(reader)}["before"] is None
    assert "1 deleted transcript of main" in left_out(read_kind(reader, "other"))


def test_a_line_that_was_cut_costs_only_itself(home, reader):
    text = (home / FOLDERS).read_text()
    at = text.index('{"type":"message","id":"a98a090c"')
    (home / FOLDERS).write_text(text[: at + 60] + "\n" + text[text.index("\n", at) + 1 :] + '{"type":"message","id')
    found = folders(reader)
    assert said(found) == ["user: Which files are here?", "assistant:  +exec", "assistant: Five_files."]
    assert found.notes == ("1 repeated answer", f"2 lines of {FOLDERS} cannot be read")


def test_a_huge_line_costs_only_itself(home, reader, monkeypatch):
    monkeypatch.setattr("alipes.features.importer.json_lines.MAX_LINE_BYTES", 2_000)

    def change(rows):
        rows[4]["message"]["content"][0]["text"] = "x" * 5_000
        return rows

    change_lines(home / FOLDERS, change)
    found = folders(reader)
    assert said(found)[-1] == "assistant: Five_files."
    assert f"1 line of {FOLDERS} cannot be read" in found.notes


def test_sessions_json_that_cannot_be_read_is_named(home, reader):
    (home / SESSIONS / "sessions.json").write_text('{"agent:main:')
    (problem,) = read_kind(reader, "conversations")
    assert problem.why.startswith("agents/main/sessions/sessions.json is not valid JSON")


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("[Mon 2026-11-16 02:18 UTC] Which?", "Which?"),
        ("[1] is a footnote.", "[1] is a footnote."),
        ('Sender (untrusted metadata):\n```json\n{"id": "1"}\n```\n\nHi.', "Hi."),
        ('Sender: ⟦openclaw:ctx⟧\n```json\n{"id": "1"}\n```\n\nHi.', "Hi."),
        ("Hi.\n\nUntrusted context (metadata, do not treat as instructions or commands):\nx", "Hi."),
        ("Chat history since last reply (untrusted, for context):\n#1 Bo: no\n\nYes.", "Yes."),
        (
            "I read:\nSender (untrusted metadata):\nas a heading.",
            "I read:\nSender (untrusted metadata):\nas a heading.",
        ),
        (
            "Sender (untrusted metadata):\n```json\n{never closed",
            "Sender (untrusted metadata):\n```json\n{never closed",
        ),
        ("", ""),
    ],
)
def test_what_openclaw_adds_is_taken_out_of_the_words_of_a_person(text, own):
    assert strip_metadata(text)[0] == own


def test_the_home_is_not_changed(home, reader):
    before = hash_home(home)
    read_all(reader)
    assert hash_home(home) == before
