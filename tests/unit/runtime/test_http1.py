"""HTTP/1.1 without a socket: how a question is written, and that answers are read as h11 reads them."""

import gc
import weakref
from itertools import pairwise

import h11
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alipes.runtime.http.http1 import MAX_HEAD_BYTES, RequestEncoder, ResponseParser
from tests.world.tls import chunked, reply

HOST = (b"host", b"there")
CHUNKED = (b"transfer-Encoding", b"chunked")
ODD = (b"", b"\r", b"\n", b"\r\n", b" ", b":", b"\0", b"5", b"x", b",", b";", b"content-length: 3\r\n", b"\xff", b"101")


def asked(*headers, method="POST", target=b"/"):
    return RequestEncoder(method, target, [HOST, *headers])


def read(*pieces, method="GET"):
    """The answer; its body; whether its connection may be used again."""
    answer, body = ResponseParser(method), b""
    for piece in pieces:
        if not (answer.over or answer.broken):
            answer.feed(piece)
            body += answer.take()
    return answer, body, answer.over and not answer.last


def read_by_h11(*pieces, method="GET"):
    """What `read` says of it."""
    talk, head, body = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES), None, b""
    talk.send(h11.Request(method=method, target=b"/", headers=[HOST]))
    talk.send(h11.EndOfMessage())
    for piece in pieces:
        talk.receive_data(piece)
        while talk.their_state not in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            try:
                event = talk.next_event()
            except h11.RemoteProtocolError:
                return head, body, None
            if event is h11.NEED_DATA:
                break
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
        else:
            return head, body, talk.their_state is h11.DONE and talk.trailing_data == (b"", False)
    return head, body, None


# Questions


def test_a_question_with_a_body_is_written_as_its_head_says():
    question = asked((b"Content-Length", b"5"), target=b"/v1/chat?x=1")
    assert question.head == b"POST /v1/chat?x=1 HTTP/1.1\r\nhost: there\r\nContent-Length: 5\r\n\r\n"
    assert question.piece(b"he") + question.piece(b"llo") + question.end() == b"hello"
    assert not question.last


def test_a_body_of_unknown_length_is_sent_in_chunks():
    question = asked((b"transfer-encoding", b"chunked"), (b"Connection", b"Close"))
    sent = question.piece(b"hello, world, hello") + question.piece(b"") + question.piece(b"!") + question.end()
    assert sent == b"13\r\nhello, world, hello\r\n1\r\n!\r\n0\r\n\r\n"
    assert question.last, "we said that we will close"


@pytest.mark.parametrize(
    "headers",
    [
        [(b"a b", b"c")],
        [(b"", b"c")],
        [(b"a:", b"c")],
        [(b"transfer-encoding: chunked\r\nx", b"c")],
        [(b"a", b"b\r\nc: d")],
        [(b"a", b"b\nc: d")],
        [(b"a", b"b\r")],
        [(b"a", b"b\0c")],
        [(b"a", b" b")],
        [(b"a", b"b ")],
        [HOST],
        [(b"content-length", b"5"), (b"Content-Length", b"5")],
        [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"five")],
        [(b"content-length", b"-5")],
        [(b"content-length", b"")],
        [(b"transfer-encoding", b"gzip, chunked")],
        [(b"transfer-encoding", b"identity")],
    ],
)
def test_what_a_server_could_read_in_another_way_is_not_sent(headers):
    with pytest.raises(httpx2.LocalProtocolError):
        asked(*headers)


@pytest.mark.parametrize("target", [b"", b"/ HTTP/1.1\r\nx: y", b"/a b", b"/\0", "/ü".encode()])
def test_no_target_breaks_out_of_its_line(target):
    with pytest.raises(httpx2.LocalProtocolError):
        asked(target=target)


@pytest.mark.parametrize("method", ["", "GET /", "G\r\nET", "GÉT"])
def test_no_method_breaks_out_of_its_line(method):
    with pytest.raises(httpx2.LocalProtocolError):
        asked(method=method)


def test_a_question_without_a_host_is_not_sent_and_no_secret_is_reported():
    with pytest.raises(httpx2.LocalProtocolError):
        RequestEncoder("GET", b"/", [])
    with pytest.raises(httpx2.LocalProtocolError) as raised:
        asked((b"authorization", b"Bearer secret\n"))
    assert "secret" not in str(raised.value) and "authorization" in str(raised.value)


def test_a_body_is_neither_longer_nor_shorter_than_promised():
    with pytest.raises(httpx2.LocalProtocolError, match="longer"):
        asked((b"content-length", b"2")).piece(b"two")
    with pytest.raises(httpx2.LocalProtocolError, match="longer"):
        asked().piece(b"not one byte")
    question = asked((b"content-length", b"4"))
    question.piece(b"two")
    with pytest.raises(httpx2.LocalProtocolError, match="shorter"):
        question.end()


token = st.text("abcXYZ019-_!#", min_size=1, max_size=12).map(str.encode)
"""None of them a header that means something."""
words = st.lists(st.binary(min_size=1, max_size=5).filter(lambda b: not set(b) & set(b"\0 \t\r\n\x0b\x0c")))
value = words.map(b" ".join)


@given(headers=st.lists(st.tuples(token, value), max_size=6), body=st.lists(st.binary(max_size=9)), whole=st.booleans())
def test_questions_are_understood_by_h11(headers, body, whole):
    framing = (b"content-length", b"%d" % len(b"".join(body))) if whole else (b"transfer-encoding", b"chunked")
    question = asked(framing, *headers)
    sent = question.head + b"".join(map(question.piece, body)) + question.end()
    server = h11.Connection(h11.SERVER)
    server.receive_data(sent)
    request, *datas, end = _events(server)
    assert request.method == b"POST" and request.headers.raw_items() == [HOST, framing, *headers]
    assert b"".join(data.data for data in datas) == b"".join(body)
    assert isinstance(end, h11.EndOfMessage) and not server.trailing_data[0]


def _events(server):
    events = [server.next_event()]
    while not isinstance(events[-1], h11.EndOfMessage):
        events.append(server.next_event())
    return events


# Answers


def one_of(*choices):
    return st.sampled_from(choices)


@st.composite
def bodies(draw):
    """The headers that say where a body ends, and the body, which may be another."""
    body = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=4))
    length = (b"Content-Length", b"%d" % max(0, len(b"".join(body)) + draw(one_of(0, 0, 0, 3, -1))))
    framing = draw(one_of([], [length], [CHUNKED], [length, CHUNKED]))
    if CHUNKED in framing:
        more = draw(one_of(b"", b" ", b";name=value", b";x"))
        body = [b"%x%b\r\n%b\r\n" % (len(piece), more, piece) for piece in body]
        body.append(draw(one_of(b"0\r\n\r\n", b"0\r\nlast: one\r\n\r\n", b"", b"zz\r\n")))
    return framing, b"".join(body)


@st.composite
def answers(draw):
    """What some server might say, well or badly."""
    early = draw(one_of(b"", b"", b"HTTP/1.1 100 Go on\r\n\r\n", b"HTTP/1.1 103 Early\r\na: b\r\n\r\n"))
    version = draw(one_of(b"HTTP/1.1 ", b"HTTP/1.1 ", b"HTTP/1.0 "))
    status = draw(one_of(b"200 OK", b"200", b"404 Not  Found", b"204 None", b"304 Same", b"503 \xff", b"600 x"))
    framing, body = draw(bodies())
    connection = draw(one_of([], [], [(b"connection", b"close")], [(b"Connection", b"x, Keep-Alive")]))
    headers = draw(st.permutations([*draw(st.lists(st.tuples(token, value), max_size=4)), *framing, *connection]))
    end = draw(one_of(b"\r\n", b"\r\n", b"\n"))
    gap = draw(one_of(b": ", b":", b":\t ", b":" + end + b" "))
    lines = [early + version + status, *(name + gap + value + b" " for name, value in headers)]
    rest = draw(one_of(b"", b"", b"x", b"HTTP/1.1 200 OK\r\n\r\n"))
    return end.join([*lines, b"", b""]) + body + rest


@st.composite
def cut(draw, whole):
    data = draw(whole)
    cuts = draw(st.lists(st.integers(0, len(data)), max_size=5).map(sorted))
    return [data[a:b] for a, b in pairwise([0, *cuts, len(data)]) if a != b]


@settings(max_examples=200)
@given(cut(answers()), one_of("GET", "GET", "POST", "HEAD"))
def test_answers_are_read_as_h11_reads_them(pieces, method):
    answer, body, again = read(*pieces, b"", method=method)
    head, body11, again11 = read_by_h11(*pieces, b"", method=method)
    assert (answer.head is None) == (head is None)
    both = False
    if head is not None:
        assert answer.head.status == head.status_code and answer.head.reason == bytes(head.reason)
        assert answer.head.version == b"HTTP/" + head.http_version
        assert answer.head.headers == head.headers.raw_items()
        both = {b"Content-Length", b"transfer-Encoding"} <= dict(answer.head.headers).keys()
    assert body == body11
    assert bool(answer.broken) == (again11 is None)
    assert again == bool(again11 and not both and method != "HEAD"), "in doubt, we ask on another connection"


@st.composite
def spoilt(draw):
    data = draw(answers())
    for place in draw(st.lists(st.integers(0, len(data)), min_size=1, max_size=3)):
        data = data[:place] + draw(one_of(*ODD)) + data[place + draw(st.integers(0, 3)) :]
    return data


@settings(max_examples=200)
@given(cut(spoilt()))
def test_it_does_not_matter_where_an_answer_is_cut_however_bad_it_is(pieces):
    data = b"".join(pieces)
    whole, cut, bytewise = (read(*each, b"") for each in ([data], pieces, [bytes([byte]) for byte in data]))
    assert whole[0].head == cut[0].head == bytewise[0].head
    assert whole[1] == cut[1] == bytewise[1]
    assert whole[0].broken == cut[0].broken == bytewise[0].broken


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nhalf", "without an answer"),
        (reply(b"1234")[:-1], "after 3 of the 4 bytes"),
        (chunked(b"one", ending=False), "before the last chunk"),
        (chunked(b"one", ending=False) + b"0\r\n", "before the last chunk"),
        (b"RTSP/1.0 200 OK\r\n\r\n", "no HTTP"),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", "no HTTP"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\na: \0\r\n\r\n", "an invalid header"),
        (b"HTTP/1.1 200 OK\r\ncontent-length : 3\r\n\r\nab", "an invalid header"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "gzip"),
        (b"HTTP/1.1 101 Other\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx", "101"),
        (b"HTTP/1.1 101 Other\r\n\r\nx", "101"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: " + b"0" * 5000 + b"3\r\n\r\nabc", "invalid content-length"),
        (b"HTTP/1.1 099 Low\r\n\r\nx", "99"),
    ],
)
def test_what_is_wrong_with_an_answer_is_reported(data, why):
    answer, _, again = read(data, b"")
    assert why in answer.broken and not again


@pytest.mark.parametrize(
    "data",
    [
        reply(b"abc", more="content-length: 3\r\n"),
        b"HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\n\r\nabc",
        b"HTTP/1.2 200 OK\r\n\r\nabc",
        b"HTTP/1.1 103 Early\r\nconnection: close\r\n\r\n" + reply(b"abc"),
        b"HTTP/1.1 103 Early\r\ncontent-length: 3\r\n\r\n" + reply(b"abc"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3; x\r\nabc\r\n0\r\n\r\n",
    ],
)
def test_h11_lets_pass_what_we_do_not(data):
    assert read_by_h11(data, b"")[1] == b"abc"
    assert read(data, b"")[0].broken


def test_an_empty_line_after_an_answer_is_nothing_and_all_else_spoils_the_connection():
    assert read(reply(b"abc") + b"\r\n")[2]
    for more in (b"x", b"H", b"\r\nHTTP/1.1 200 OK\r\n\r\n"):
        answer, body, again = read(reply(b"abc") + more)
        assert body == b"abc" and not answer.broken and not again


def test_the_answer_to_head_has_a_length_and_no_body():
    answer, body, again = read(reply(b"abc")[:-3], method="HEAD")
    assert answer.over and body == b"" and not again
    assert (b"content-length", b"3") in answer.head.headers


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nx: ", b"y"),
        (b"HTTP/1.1 200 ", b"OK"),
        (HEAD + b"3;", b"y"),
        (HEAD + b"3\r\nabc\r\n0\r\nlast: ", b"y"),
        (HEAD + b"3\r\nabc\r\n0\r\n", b"last: y\r\n"),
    ],
    ids=["header", "reason", "chunk extension", "trailer", "trailers"],
)
def test_nothing_without_end_is_read_to_its_end(begin, more):
    answer, fed = ResponseParser("GET"), 0
    answer.feed(begin)
    answer.take()
    while not answer.broken:
        answer.feed(more * 1000)
        fed += len(more * 1000)
        assert fed < 2 * MAX_HEAD_BYTES
    assert "without end" in answer.broken
    assert (answer.take(), answer.over) == (b"", False)


def test_a_signal_that_comes_while_the_parser_works_is_not_lost():
    class Interrupted(ResponseParser):
        def on_status(self, part):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted("GET").feed(reply(b"abc"))


def test_an_answer_that_we_gave_up_does_not_wait_for_more():
    answer = ResponseParser("GET")
    answer.feed(chunked(b"one", ending=False))
    answer.close()
    assert answer.take() == b"one" and "we hung up" in answer.broken
    answer.feed(b"3\r\ntwo\r\n")
    assert answer.take() == b"" and not answer.over


@pytest.mark.parametrize("data", [reply(b"abc"), b"nonsense", chunked(b"one", ending=False)])
def test_an_answer_goes_without_the_collector(data):
    gc.disable()
    try:
        answer = ResponseParser("GET")
        answer.feed(data)
        answer.close()
        gone = weakref.ref(answer)
        del answer
        assert gone() is None
    finally:
        gc.enable()
