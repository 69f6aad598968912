"""The history of the input: kept in a private file, shared, short, and never in the way."""

import os
import stat

import msgspec

from alipes.cli.terminal.completion import KEPT, LARGEST, LONGEST, KeptHistory


def loaded(path) -> list[str]:
    """As a process that starts now finds it, the oldest first."""
    return list(KeptHistory(path).load_history_strings())[::-1]


def test_what_was_typed_is_there_the_next_time(tmp_path):
    history = KeptHistory(tmp_path / "history")
    for text in ("one", "two\nlines", "日本語 \ud800"):
        history.append_string(text)
    assert loaded(tmp_path / "history") == ["one", "two\nlines", "日本語 ?"]


def test_the_file_is_for_its_owner_only(tmp_path):
    KeptHistory(tmp_path / "history").append_string("a secret, perhaps")
    assert stat.S_IMODE((tmp_path / "history").stat().st_mode) == 0o600


def test_the_same_again_and_nothing_at_all_are_not_kept(tmp_path):
    history = KeptHistory(tmp_path / "history")
    for text in ("one", "one", "  \n", "two", "one"):
        history.append_string(text)
    assert loaded(tmp_path / "history") == ["one", "two", "one"]
    assert history.get_strings() == ["one", "two", "one"]


def test_what_is_typed_before_the_file_is_read_stays_the_latest(tmp_path):
    KeptHistory(tmp_path / "history").append_string("before")
    history = KeptHistory(tmp_path / "other")
    history.append_string("now")
    os.rename(tmp_path / "history", tmp_path / "other")
    assert list(history.load_history_strings()) == ["now", "before"]


def test_several_processes_write_one_file(tmp_path):
    one, other = KeptHistory(tmp_path / "history"), KeptHistory(tmp_path / "history")
    for number in range(10):
        (one if number % 2 else other).append_string(str(number))
    assert loaded(tmp_path / "history") == [str(number) for number in range(10)]


def test_a_very_long_text_is_not_kept_and_a_paste_is_kept_as_what_was_pasted(tmp_path):
    history = KeptHistory(tmp_path / "history", lambda text: text.replace("#", "pasted"))
    history.append_string("x" * (LONGEST + 1))
    history.append_string("see #")
    assert loaded(tmp_path / "history") == ["see pasted"]
    assert history.get_strings()[-1] == "see #"


def test_a_long_file_is_shortened_and_damaged_lines_are_passed_over(tmp_path):
    file = tmp_path / "history"
    lines = [msgspec.json.encode(f"{number} " + "x" * 500) for number in range(3000)]
    file.write_bytes(b"\n".join([*lines, b'"half', b"[1]", b"\xff", b'"last"']) + b"\n")
    found = loaded(file)
    assert found[-1] == "last" and len(found) == KEPT - 3
    assert file.stat().st_size < LARGEST
    assert loaded(file) == found
    assert os.listdir(tmp_path) == ["history"]


def test_a_place_that_cannot_be_written_is_no_trouble(tmp_path):
    history = KeptHistory(tmp_path / "missing" / "history")
    history.append_string("one")
    assert history.get_strings() == ["one"] and list(history.load_history_strings()) == ["one"]
