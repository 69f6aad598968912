"""Requests to the egress proxy as bytes: hosts, HTTP heads, and TLS server names."""

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alipes.runtime.http.egress import format_authority, normalise_host, parse_authority
from alipes.runtime.http.proxy_requests import (
    BadRequest,
    RequestParser,
    WrongHost,
    check_host_header,
    check_tunnelled_request,
    encode_request,
    parse_url,
    read_server_names,
    starts_http,
)


def client_hello(name="example.org"):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.ORG.", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127。0。0。1", "127.0.0.1"),
        ("a_b.example", "a_b.example"),
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.1.", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("[::FFFF:7f00:1]", "::ffff:7f00:1"),
        ("0:0:0:0:0:0:0:1", "::1"),
    ],
)
def test_hosts_have_one_form(text, host):
    assert normalise_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "a..b", "-a.example", "a b", "a/b", "a@b", "%31%32%37.0.0.1", "fe80::1%eth0", "1.2.3.4.5", "256.1.1.1",
        "0x.0x.0x.0x.1", "a.0x7f", "127.0.0.1\0.example.com", "[::1", "::1]", "①②⑦.⓪.⓪.①", "x" * 64, "a." * 127 + "bc",
        "a\r\nb", "*.example.org",
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused(text):
    with pytest.raises(ValueError):
        normalise_host(text)


@given(st.text(max_size=20) | st.text(alphabet="0123456789abcdefx.:[]%", max_size=20))
def test_a_normalised_host_stays_the_same(text):
    try:
        host = normalise_host(text)
    except ValueError:
        return
    assert normalise_host(host) == host and parse_authority(format_authority(host, 8443)) == (host, 8443)


@pytest.mark.parametrize(
    "text", ["host", "host:", "host:0", "host:65536", "host:８０", "host:-1", ":80", "[::1]", "::1"]
)
def test_an_authority_needs_a_host_and_a_port(text):
    with pytest.raises(ValueError):
        parse_authority(text)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (b"http://Example.org/a?b=c#d", ("example.org", 80, b"/a?b=c")),
        (b"HTTP://example.org:8080", ("example.org", 8080, b"/")),
        (b"http://example.org?x=/y", ("example.org", 80, b"/?x=/y")),
        (b"http://[::1]:81/", ("::1", 81, b"/")),
        (b"http://[::1]/", ("::1", 80, b"/")),
    ],
)
def test_the_url_of_a_request_names_host_port_and_path(url, place):
    assert parse_url(url) == place


@pytest.mark.parametrize(
    "url",
    [b"/", b"*", b"https://x.example/", b"ftp://x.example/", b"http://u:p@x.example/", b"http:///x", b"http://[::1/",
     b"http://x.example\\@y.example/", b"http:x.example/", b"http://%31.example/", b"http://\xff/"],
)  # fmt: skip
def test_other_urls_are_refused(url):
    with pytest.raises(BadRequest):
        parse_url(url)


def request(*lines):
    return RequestParser("\r\n".join(lines).encode() + b"\r\n\r\n")


def test_a_request_is_passed_on_without_the_headers_of_the_proxy():
    given = request(
        "GET http://x.example/a HTTP/1.1",
        "Host: x.example",
        "Proxy-Authorization: Basic secret",
        "Proxy-Connection: keep-alive",
        "Connection: keep-alive, X-Hop",
        "X-Hop: 1",
        "Accept: */*",
    )
    check_host_header(given, "x.example", 80)
    assert encode_request(given, b"/a", "x.example", []).head == (
        b"GET /a HTTP/1.1\r\nhost: x.example\r\nAccept: */*\r\nconnection: close\r\n\r\n"
    )


@pytest.mark.parametrize("named", ["y.example", "x.example:81", "x.example.y.example"])
def test_a_host_header_that_names_another_host_is_refused(named):
    with pytest.raises(WrongHost):
        check_host_header(request("GET / HTTP/1.1", f"Host: {named}"), "x.example", 80)


@pytest.mark.parametrize("line", ["GET http://y.example/ HTTP/1.1", "CONNECT y.example:80 HTTP/1.1"])
def test_inside_a_tunnel_only_paths_are_requested(line):
    given = RequestParser(f"{line}\r\nHost: x.example\r\n\r\n".encode())
    with pytest.raises(WrongHost):
        check_tunnelled_request(given, "x.example", 80)


def test_of_all_protocols_only_websocket_is_asked_for():
    lines = ("GET / HTTP/1.1", "Host: x.example", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")
    http2 = request(*lines, "Upgrade: h2c")
    assert not http2.upgrade and b"h2c" not in encode_request(http2, b"/", "x.example", []).head
    websocket = request(*lines, "Upgrade: WebSocket")
    assert websocket.upgrade and b"upgrade: websocket\r\n" in encode_request(websocket, b"/", "x.example", []).head


@pytest.mark.parametrize("named", ["x.example", "X.Example.", "x.example:80"])
def test_a_host_header_may_be_written_differently(named):
    check_host_header(request("GET / HTTP/1.1", f"Host: {named}"), "x.example", 80)


@pytest.mark.parametrize(
    "lines",
    [("GET / HTTP/1.1", "Host: a", "Host: b"), ("GET / HTTP/1.1", "Host: a b"), ("GET / HTTP/1.1", "Host: \u00e4")],
)
def test_a_doubtful_host_header_is_refused(lines):
    with pytest.raises(BadRequest):
        check_host_header(request(*lines), "a", 80)


@pytest.mark.parametrize(
    "lines",
    [
        ("POST / HTTP/1.1", "Content-Length: 5", "Content-Length: 6"),
        ("POST / HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: chunked"),
        ("POST / HTTP/1.1", "Transfer-Encoding: chunked, gzip"),
        ("POST / HTTP/1.1", "Transfer-Encoding: xchunked"),
        ("GET / HTTP/1.1", "Name : value"),
        ("GET / HTTP/1.1", "A: b\r\n folded"),
        ("GET / HTTP/1.1", "A: b\nHost: y"),
        ("GET / HTTP/9.9",),
        ("PRI * HTTP/2.0",),
        ("nonsense",),
        ("",),
    ],
)
def test_a_request_that_can_be_read_in_two_ways_is_refused(lines):
    with pytest.raises(BadRequest):
        encode_request(request(*lines), b"/", "x.example", [])


def test_only_one_request_is_read():
    given = request("POST / HTTP/1.1", "Content-Length: 3")
    given.feed(b"abcGET /other HTTP/1.1\r\nHost: y\r\n\r\n")
    assert given.over and given.take() == b"abc" and given.target == b"/"


@pytest.mark.parametrize(
    ("data", "http"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"\r\n\r\nGET / HTTP/1.1\r\n", True),
        (b"PRI * HTTP/2.0\r\n", True),
        (b"GET\t/\tHTTP/1.1\n", True),
        (b"GE", None),
        (b"G", None),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2", None),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", False),
        (b"\x00\x01", False),
        (b"0032git-upload-pack /x\0host=y", False),
        (b"x" * 100_000, False),
    ],
)
def test_http_inside_a_tunnel_is_recognised(data, http):
    assert starts_http(data) is http


def test_the_server_name_is_read_however_the_bytes_arrive():
    hello = client_hello("Name.example.org")
    assert read_server_names(hello) == ("Name.example.org",)
    assert all(read_server_names(hello[:end]) is None for end in range(len(hello)))
    message = hello[5:]
    split = b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in (message[:3], message[3:50], message[50:])
    )
    assert read_server_names(split) == ("Name.example.org",)
    assert read_server_names(client_hello(None)) == ()


@given(st.integers(0, 300), st.integers(0, 255))
def test_a_damaged_client_hello_is_refused_or_read(place, value):
    hello = bytearray(client_hello())
    hello[place % len(hello)] = value
    with contextlib.suppress(ValueError):
        read_server_names(bytes(hello))
