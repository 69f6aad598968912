"""Server-sent events out of bytes, wherever they are cut."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.providers.wire import MAX_EVENT_BYTES, EventTooLong, NotAnEventStream, SseParser
from tests.world.environment import LIMIT_S


def read(*blocks: bytes) -> list[bytes]:
    events = SseParser()
    return [data for block in blocks for data in events.feed(block)] + events.end()


def test_an_event_is_given_as_soon_as_its_empty_line_came():
    events = SseParser()
    assert events.feed(b"data: one\n") == []
    assert events.feed(b"\ndata: two") == [b"one"]
    assert events.feed(b"\n\n") == [b"two"]
    assert events.end() == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_is_known(end):
    assert read(end.join([b"event: x", b"data: one", b"", b": comment", b"data: two", b"", b""])) == [b"one", b"two"]


def test_lines_of_one_event_are_joined_and_one_blank_is_dropped():
    assert read(b"data:one\ndata:  two\ndata\ndata:\n\n") == [b"one\n two\n"]


def test_names_ids_comments_and_unknown_fields_are_passed_over():
    assert read(
        b"event: a\nid: 1\nretry: 5\n: hm\nfoo: bar\nnonsense\ndata: x\n\n: ping\n\nevent: only a name\n\n"
    ) == [b"x"]


def test_a_byte_order_mark_is_passed_over():
    assert read(b"\xef\xbb\xbfdata: x\n\n") == [b"x"]
    assert read(b"\xef\xbb", b"\xbfdata: x\n", b"\n") == [b"x"]


def test_a_last_event_without_its_empty_line_is_given_at_the_end():
    assert read(b"data: one\n\ndata: [DONE]") == [b"one", b"[DONE]"]
    assert read(b"data: one\n\ndata: [DONE]\r") == [b"one", b"[DONE]"]


@pytest.mark.parametrize(
    "other", [b"<html>\n", b'{"a": 1}', b'{\n "a": 1\n}\n', b"hello", b"\xff\xfe\n\n", b"\n\n<p>\n"]
)
def test_something_else_is_not_taken_for_events(other):
    with pytest.raises(NotAnEventStream) as caught:
        read(other)
    assert caught.value.begun.strip() == other.strip()


@pytest.mark.parametrize("nothing", [b"", b"\n", b"\r\n\r\n", b"  "])
def test_nothing_is_no_event(nothing):
    assert read(nothing) == []


@pytest.mark.parametrize("line", [b"data: ", b": ", b"x"], ids=["data", "comment", "unknown"])
def test_a_line_without_end_is_given_up_and_soon(line):
    events = SseParser()
    events.feed(b"data: x\n\n")
    began = time.process_time()
    with pytest.raises(EventTooLong):
        for _ in range(MAX_EVENT_BYTES // 1000 + 10):
            events.feed(line + b"x" * 1000)
    assert time.process_time() - began < LIMIT_S / 3


def test_an_event_without_end_is_given_up():
    events = SseParser()
    with pytest.raises(EventTooLong):
        for _ in range(MAX_EVENT_BYTES // 100):
            events.feed(b"data: " + b"x" * 100 + b"\n")


def test_a_long_event_is_fine():
    data = b"x" * (MAX_EVENT_BYTES - 100)
    assert read(b"data: ", data, b"\n\n") == [data]


LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data: \xc3\xa4", b"data", b": c", b"event: e", b"", b"", b"id: 1", b"what", b"data: x: y"]
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]))).map(
    lambda lines: b": begin\n\n" + b"".join(line + end for line, end in lines)
)


@given(STREAMS, st.lists(st.integers(0, 200)))
def test_where_the_network_cuts_changes_nothing(stream, cuts):
    borders = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    assert read(*(stream[a:b] for a, b in pairwise(borders))) == read(stream)


@given(st.lists(st.binary()))
def test_random_bytes_give_events_or_a_clear_no(blocks):
    try:
        assert all(isinstance(data, bytes) for data in read(*blocks))
    except NotAnEventStream as other:
        assert other.begun
