"""The input history: a private file shared by processes."""

import os
import stat

import msgspec

from alipes.cli.terminal.input.completion import MAX_ENTRIES, MAX_ENTRY_CHARS, MAX_FILE_BYTES, InputHistory


def loaded(path) -> list[str]:
    """As a process that starts now finds it, the oldest first."""
    return list(InputHistory(path).load_history_strings())[::-1]


def test_the_history_survives_a_restart(tmp_path):
    history = InputHistory(tmp_path / "history")
    for text in ("one", "two\nlines", "日本語 \ud800"):
        history.append_string(text)
    assert loaded(tmp_path / "history") == ["one", "two\nlines", "日本語 ?"]


def test_the_file_is_private(tmp_path):
    InputHistory(tmp_path / "history").append_string("a secret, perhaps")
    assert stat.S_IMODE((tmp_path / "history").stat().st_mode) == 0o600


def test_repeated_and_empty_input_is_not_saved(tmp_path):
    history = InputHistory(tmp_path / "history")
    for text in ("one", "one", "  \n", "two", "one"):
        history.append_string(text)
    assert loaded(tmp_path / "history") == ["one", "two", "one"]
    assert history.get_strings() == ["one", "two", "one"]


def test_input_before_the_file_is_read_stays_the_latest(tmp_path):
    InputHistory(tmp_path / "history").append_string("before")
    history = InputHistory(tmp_path / "other")
    history.append_string("now")
    os.rename(tmp_path / "history", tmp_path / "other")
    assert list(history.load_history_strings()) == ["now", "before"]


def test_several_processes_write_one_file(tmp_path):
    one, other = InputHistory(tmp_path / "history"), InputHistory(tmp_path / "history")
    for number in range(10):
        (one if number % 2 else other).append_string(str(number))
    assert loaded(tmp_path / "history") == [str(number) for number in range(10)]


def test_a_very_long_text_is_not_saved_and_a_paste_is_saved_as_its_text(tmp_path):
    history = InputHistory(tmp_path / "history", lambda text: text.replace("#", "pasted"))
    history.append_string("x" * (MAX_ENTRY_CHARS + 1))
    history.append_string("see #")
    assert loaded(tmp_path / "history") == ["see pasted"]
    assert history.get_strings()[-1] == "see #"


def test_a_long_file_is_shortened_and_damaged_lines_are_skipped(tmp_path):
    file = tmp_path / "history"
    lines = [msgspec.json.encode(f"{number} " + "x" * 500) for number in range(3000)]
    file.write_bytes(b"\n".join([*lines, b'"half', b"[1]", b"\xff", b'"last"']) + b"\n")
    found = loaded(file)
    assert found[-1] == "last" and len(found) == MAX_ENTRIES - 3
    assert file.stat().st_size < MAX_FILE_BYTES
    assert loaded(file) == found
    assert os.listdir(tmp_path) == ["history"]


def test_an_unwritable_file_is_ignored(tmp_path):
    history = InputHistory(tmp_path / "missing" / "history")
    history.append_string("one")
    assert history.get_strings() == ["one"] and list(history.load_history_strings()) == ["one"]
