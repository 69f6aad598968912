"""What clients send to the egress proxy: HTTP/1 requests, and the first bytes inside a tunnel. No sockets."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from alipes.kernel.lazy import lazy_pattern
from alipes.runtime.http.egress import parse_authority
from alipes.runtime.http.http1 import Headers, RequestEncoder
from alipes.runtime.http.lazy_httpx import httpx2

MAX_HEAD_BYTES = 64 * 1024
"""Limit of a request's head, and of a TLS ClientHello."""
_CLIENT_HELLO, _SERVER_NAME = 1, 0
_HOP_BY_HOP = {b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"te", b"upgrade", b"host"}
MAX_LINE_BYTES = 8 * 1024
_TEXT = lazy_pattern(rb"[\t\r -~]*")
_REQUEST_LINE = lazy_pattern(rb"\s*[!-~]+[ \t]+\S+[ \t]+HTTP/")


class BadRequest(Exception):
    """The message is a sentence for the client."""

    status = 400


class WrongHost(BadRequest):
    """The request names another host than the one it was allowed to connect to."""

    status = 403


class _SecondRequest(Exception):
    """Internal: another request follows, which is not read."""


class RequestParser:
    """Parses one HTTP/1 request: the head, then parts of the body. Raises `BadRequest`."""

    def __init__(self, head: bytes) -> None:
        """`head`: up to and including the empty line."""
        self.target, self.headers = b"", Headers()
        self.pieces: list[bytes] = []
        self.over = False
        """The whole request was received."""
        self._complete = False
        self._parser = HttpRequestParser(self)
        self.feed(head)
        if not self._complete:
            raise BadRequest("This is not an HTTP request.")
        self.method = self._parser.get_method().decode("ascii", "replace")
        self.upgrade = self.over and self.method == "GET" and self.first(b"upgrade").lower() == b"websocket"
        """It asks for WebSocket. Other protocols are not asked for: inside HTTP/2 another host could be named."""

    def feed(self, data: bytes) -> None:
        if self.over:
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.over = True
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, _SecondRequest):
                raise error.__context__ or error from None
        except HttpParserError as error:
            if not self.over:
                raise BadRequest(f"This is not a valid HTTP request: {error}") from error

    def take(self) -> bytes:
        """The body that came since the last time."""
        data = b"".join(self.pieces)
        self.pieces.clear()
        return data

    def first(self, name: bytes) -> bytes:
        """The value of a header, or empty. Raises `BadRequest` if it is there twice."""
        found = [value for each, value in self.headers if each.lower() == name]
        if len(found) > 1:
            raise BadRequest(f"The request has more than one {name.decode()} header.")
        return found[0] if found else b""

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.over:
            raise _SecondRequest

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._complete:  # ignore trailers
            self.headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        self._complete = True

    def on_body(self, part: bytes) -> None:
        self.pieces.append(part)

    def on_message_complete(self) -> None:
        self.over = True


def parse_url(target: bytes) -> tuple[str, int, bytes]:
    """Host, port and path of the URL in a request to a proxy. Raises `BadRequest`."""
    try:
        parts = urlsplit(target.decode("utf-8"))
        if parts.scheme == "https":
            raise BadRequest("Send CONNECT for https addresses.")
        if parts.scheme != "http":
            raise BadRequest("This is a proxy: send CONNECT HOST:PORT, or a request for an http:// address.")
        if "@" in parts.netloc:
            raise BadRequest("Addresses with a user name or password are not requested.")
        host, port = parse_authority(parts.netloc, 80)
    except ValueError as error:
        raise BadRequest(f"This address cannot be requested: {error}.") from error
    rest = target.partition(b"://")[2]
    at = min((place for place in map(rest.find, (b"/", b"?", b"#")) if place >= 0), default=len(rest))
    path = rest[at:].partition(b"#")[0]
    return host, port, path if path.startswith(b"/") else b"/" + path


def check_tunnelled_request(request: RequestParser, host: str, port: int) -> None:
    """Raises `WrongHost` if a request inside a tunnel is for another server than the one connected to."""
    if not request.target.startswith(b"/") and request.target != b"*":
        raise WrongHost(f"Inside a connection to {host}, only requests for a path are passed on.")
    check_host_header(request, host, port)


def check_host_header(request: RequestParser, host: str, port: int) -> None:
    """Raises `WrongHost` if the Host header names another server than the one connected to."""
    given = request.first(b"host")
    if not given:
        return
    try:
        named = parse_authority(given.decode("ascii"), 80)
    except ValueError as error:
        raise BadRequest(f"The Host header is invalid: {error}.") from error
    if named != (host, port):
        raise WrongHost(f"The Host header names {named[0]}, but the request is for {host}.")


def encode_request(request: RequestParser, target: bytes, authority: str, extra: Headers) -> RequestEncoder:
    """The request as it is passed on: this connection ends with its response. Raises `BadRequest`."""
    listed = b",".join(value for name, value in request.headers if name.lower() == b"connection")
    dropped = _HOP_BY_HOP | {each.strip().lower() for each in listed.split(b",")}
    dropped -= {b"content-length", b"transfer-encoding"}  # they frame the body
    headers = [(b"host", authority.encode())]
    headers += [(name, value) for name, value in request.headers if name.lower() not in dropped]
    if request.upgrade:
        headers += [(b"connection", b"upgrade"), (b"upgrade", b"websocket")]
    else:
        headers.append((b"connection", b"close"))
    try:
        return RequestEncoder(request.method, target, [*headers, *extra])
    except httpx2.LocalProtocolError as error:
        raise BadRequest(f"This request is not passed on: {error}.") from error


def starts_http(data: bytes) -> bool | None:
    """True if the first bytes of a tunnel are an HTTP request; None if more bytes are needed."""
    line, end, _ = data.lstrip(b"\r\n").partition(b"\n")
    if end:
        return _REQUEST_LINE.match(line) is not None
    return None if len(line) < MAX_LINE_BYTES and _TEXT.fullmatch(line) else False


def read_server_names(data: bytes) -> tuple[str, ...] | None:
    """Server names in the TLS ClientHello that `data` starts with, usually one or none; None if more is needed.

    Raises ValueError if `data` is no ClientHello.
    """
    message, at, size = bytearray(), 0, 4
    while len(message) < size:
        kind, length = data[at : at + 2], int.from_bytes(data[at + 3 : at + 5])
        if kind not in (b"", b"\x16", b"\x16\x03") or (len(data) >= at + 5 and not length):
            raise ValueError("this is not a TLS handshake")
        if len(data) < at + 5 + max(length, 1):
            return None
        message += data[at + 5 : at + 5 + length]
        at += 5 + length
        if len(message) >= 4:
            size = 4 + int.from_bytes(message[1:4])
            if message[0] != _CLIENT_HELLO or size > MAX_HEAD_BYTES:
                raise ValueError("this is not a TLS ClientHello")
    return tuple(_server_names(_Fields(bytes(message[4:size]))))


class _Fields:
    """Reads fields with a length in front."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise ValueError("a truncated ClientHello")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def field(self, length_size: int) -> bytes:
        return self.take(self.number(length_size))


def _server_names(hello: _Fields) -> Iterable[str]:
    hello.take(2 + 32)  # version and random
    for length_size in (1, 2, 1):  # session, ciphers, compression
        hello.field(length_size)
    if not hello:
        return
    extensions = _Fields(hello.field(2))
    while extensions:
        kind, content = extensions.number(2), extensions.field(2)
        if kind != _SERVER_NAME:
            continue
        names = _Fields(_Fields(content).field(2))
        while names:
            names.take(1)  # its type: there is only one
            yield names.field(2).decode("ascii")
