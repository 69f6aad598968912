"""Reading the log backwards and forwards, also across rotated files."""

import logging
import os
import threading

import pytest

from alipes.runtime.log_file import RotatingFile, open_log, watch_log
from alipes.runtime.log_reader import CHUNK_BYTES, NOWHERE, LogReader, parse_place
from tests.world.environment import LIMIT_S

log = logging.getLogger("alipes.test")


def write(file, *texts):
    for text in texts:
        file.append(b'{"time":"2026-01-01T00:00:00.000+00:00","level":"info","logger":"a","message":"%b"}\n' % text)


def open_file(tmp_path, largest=1 << 20):
    return RotatingFile(tmp_path / "a.log", largest=largest, kept=3)


def every(_line):
    return True


def texts(entries):
    return [each.line.message for each in entries]


def test_the_last_lines_are_read_backwards_page_by_page(tmp_path):
    file, reader = open_file(tmp_path), LogReader(tmp_path / "a.log")
    write(file, *(b"%d" % n for n in range(10)))
    first, more = reader.read_before(None, 4, every)
    assert (texts(first), more) == (["9", "8", "7", "6"], True)
    second, more = reader.read_before(first[-1].place, 10, every)
    assert (texts(second), more) == (["5", "4", "3", "2", "1", "0"], False)
    file.close()


@pytest.mark.parametrize("size", [10, 1000, CHUNK_BYTES // 3, CHUNK_BYTES, 3 * CHUNK_BYTES])
def test_lines_of_any_length_are_read_both_ways(tmp_path, size):
    file, reader = open_file(tmp_path, 50 << 20), LogReader(tmp_path / "a.log")
    wanted = [str(n) + "x" * (size + n) for n in range(9)]
    write(file, *(each.encode() for each in wanted))
    assert texts(reader.read_before(None, 100, every)[0]) == wanted[::-1]
    place, found = parse_place(str(reader.read_before(None, 100, every)[0][-1].place)), []
    while True:
        entries, place = reader.read_after(place)
        if not entries:
            break
        found += texts(entries)
    assert found == wanted and place == reader.end()
    file.close()


def test_a_rotation_loses_and_repeats_nothing(tmp_path):
    file, reader = open_file(tmp_path, 500), LogReader(tmp_path / "a.log")
    write(file, b"0")
    place, found = reader.end(), []
    for n in range(1, 30):
        write(file, b"%d" % n)
        while True:
            entries, place = reader.read_after(place)
            if not entries:
                break
            found += texts(entries)
    assert found == [str(n) for n in range(1, 30)]
    assert os.path.exists(tmp_path / "a.log.2")
    backwards = texts(reader.read_before(None, 100, every)[0])
    assert backwards == sorted(backwards, key=int, reverse=True) and backwards[0] == "29"
    file.close()


def test_a_place_in_a_file_that_was_deleted_is_gone(tmp_path):
    file, reader = open_file(tmp_path), LogReader(tmp_path / "a.log")
    write(file, b"0")
    gone = parse_place("1-5")
    assert reader.read_after(gone) == ([], None) and reader.read_before(gone, 5, every) == ([], False)
    file.close()


def test_a_damaged_or_incomplete_line_does_no_harm(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b'\xff\xfe<b>\n\n{"time":"x","level":"info","logger":"a","message":"ok"}\n{"time":"2')
    reader = LogReader(path)
    assert texts(reader.read_before(None, 9, every)[0]) == ["ok", "\\xff\\xfe<b>"]
    with path.open("ab") as opened:
        opened.write(b'026","level":"info","logger":"a","message":"whole"}\n')
    assert texts(reader.read_after(parse_place(str(reader.read_before(None, 9, every)[0][1].after)))[0]) == ["whole"]


def test_a_log_without_a_file_is_empty_and_read_once_there_is_one(tmp_path):
    reader = LogReader(tmp_path / "a.log")
    assert reader.end() == NOWHERE and reader.read_after(NOWHERE) == ([], NOWHERE)
    file = open_file(tmp_path)
    write(file, b"0")
    assert texts(reader.read_after(NOWHERE)[0]) == ["0"]
    file.close()


@pytest.mark.parametrize("text", ["", "-", "x-1", "1", "1-z", "1" * 50 + "-1"])
def test_a_text_that_is_no_place_is_refused(text):
    assert parse_place(text) is None


def test_a_listener_is_called_after_lines_are_in_the_file(tmp_path):
    path, written = tmp_path / "a.log", threading.Event()
    with open_log(path, "info"), watch_log(path, written.set):
        log.info("first")
        assert written.wait(LIMIT_S) and "first" in path.read_text()
