"""HTTP/1.1 for clients: encodes requests and parses responses; no sockets.

Responses are parsed by llhttp: see docs/adr/0017.
"""

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

from alipes.kernel.lazy import lazy_pattern
from alipes.runtime.http.lazy_httpx import httpx2

MAX_HEAD_BYTES = 100 * 1024
"""Limit of bytes without a complete head, a part of the body, or an end."""
MAX_LENGTH_DIGITS = 20
_TOKEN = lazy_pattern(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_TARGET = lazy_pattern(rb"[\x21-\x7e]+")
_VALUE = lazy_pattern(rb"(?:[^\0\s]+(?:[ \t]+[^\0\s]+)*)?")

_SPECIAL = {b"host", b"connection", b"content-length", b"transfer-encoding"}
"""Headers that determine framing and host."""

Headers = list[tuple[bytes, bytes]]


class RequestEncoder:
    """A request as bytes: `head`, then each part of the body, then the end.

    Raises `httpx2.LocalProtocolError` for anything a server could interpret differently.
    """

    def __init__(self, method: str, target: bytes, headers: Headers) -> None:
        verb = method.encode("ascii", "replace")
        if not _TOKEN.fullmatch(verb) or not _TARGET.fullmatch(target):
            raise httpx2.LocalProtocolError(f"invalid request line: {method!r} {target!r}")
        lines, special = [b"%b %b HTTP/1.1\r\n" % (verb, target)], Headers()
        for name, value in headers:
            if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
                # The value may be a secret.
                raise httpx2.LocalProtocolError(f"invalid header {name!r}")
            lines.append(b"%b: %b\r\n" % (name, value))
            if (key := name.lower()) in _SPECIAL:
                special.append((key, value.lower()))
        lines.append(b"\r\n")
        self.head = b"".join(lines)
        self._chunked, self._left, self.last = _framing(special)
        """`last`: we announced `connection: close`."""

    def piece(self, data: bytes) -> bytes:
        """The bytes to send for a part of the body."""
        if self._chunked:
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._left -= len(data)
        if self._left < 0:
            raise httpx2.LocalProtocolError("the body is longer than its content-length")
        return data

    def end(self) -> bytes:
        if self._left > 0:
            raise httpx2.LocalProtocolError("the body is shorter than its content-length")
        return b"0\r\n\r\n" if self._chunked else b""


def _framing(special: Headers) -> tuple[bool, int, bool]:
    """Whether the body is chunked, its length otherwise, and whether the connection closes afterwards."""
    hosts, bodies, last = 0, Headers(), False
    for name, value in special:
        match name:
            case b"host":
                hosts += 1
            case b"connection":
                last = last or b"close" in value
            case _:
                bodies.append((name, value))
    if hosts != 1:
        raise httpx2.LocalProtocolError(f"a request needs exactly one Host header, not {hosts}")
    match bodies:
        case []:
            return False, 0, last
        case [(b"content-length", length)] if length.isdigit() and len(length) <= MAX_LENGTH_DIGITS:
            return False, int(length), last
        case [(b"transfer-encoding", b"chunked")]:
            return True, 0, last
    raise httpx2.LocalProtocolError("a body needs either one content-length or chunked encoding")


class ResponseHead(Struct, frozen=True):
    status: int
    reason: bytes
    version: bytes
    """As `HTTP/1.1`."""
    headers: Headers
    """As received, in order."""


class _StopParsing(Exception):
    """Internal: stops the parser."""


class ResponseParser:
    """Parses one response from the bytes it is fed: a head, then parts of a body.

    Interim responses (100 to 199) are skipped.
    """

    def __init__(self, method: str) -> None:
        """`method`: that of the request."""
        self.head: ResponseHead | None = None
        self.over = False
        self.broken = ""
        """Why parsing failed; what was received before can still be taken."""
        self.last = False
        """The connection must not be reused."""
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append
        self._bodiless = method == "HEAD"
        self._taken = self._idle = 0
        self._length: int | None = None
        self._chunked = False
        self._reason, self._headers = b"", Headers()
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Dangerous only for servers with shared connections; these match what h11 accepts.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )

    def feed(self, data: bytes) -> None:
        """What was read; nothing means that the server hung up."""
        if (parser := self._parser) is None:
            return
        if not data:
            self._hung_up()
        elif self.head is None and not self._idle and not data.startswith(b"H"):
            self.broken = "the server's answer is no HTTP"  # nor one of the others that the parser knows
        else:
            self._read(parser, data)
        if self.over or self.broken:
            self.close()

    def close(self) -> None:
        """No more will be read. Until then it and its parser hold each other."""
        self._parser = None
        if not self.over:
            self.broken = self.broken or "we hung up before the end of the answer"

    def take(self) -> bytes:
        """All of the body that came since the last time."""
        data = b"".join(self.pieces)
        self.pieces.clear()
        self._taken += len(data)
        return data

    def _read(self, parser: HttpResponseParser, data: bytes) -> None:
        try:
            parser.feed_data(data)
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, _StopParsing):
                raise error.__context__ or error from None
        except (HttpParserError, HttpParserUpgrade) as error:
            if self.over:
                self.last = True
            else:
                self.broken = f"the server's answer is no HTTP: {error}"
        self._idle = 0 if self.pieces else self._idle + len(data)
        if self._idle > MAX_HEAD_BYTES and not self.over:
            self.broken = self.broken or "the server's answer has a head without end"

    def _hung_up(self) -> None:
        if self.head is None:
            self.broken = "the server hung up without an answer"
        elif self._chunked:
            self.broken = "the server hung up before the last chunk of its answer"
        elif self._length is not None:
            came = self._taken + sum(map(len, self.pieces))
            self.broken = f"the server hung up after {came} of the {self._length} bytes of its answer"
        else:
            self.over = self.last = True

    def _refuse(self, why: str) -> None:
        self.broken = why
        raise _StopParsing

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.over:  # an unexpected second response
            self.last = True
            raise _StopParsing

    def on_status(self, part: bytes) -> None:
        self._reason += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # ignore trailers
            self._headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._measure()
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        sized = self._chunked or self._length is not None
        if status < 100 or status == 101 or (status < 200 and sized):
            self._refuse(f"unexpected status {status}")
        if status < 200:
            return
        self.head = ResponseHead(status, self._reason, b"HTTP/" + version.encode(), self._headers)
        both = self._chunked and self._length is not None
        self.last = both or version != "1.1" or not self._parser.should_keep_alive()
        if self._bodiless:  # unknown to the parser
            self.over = self.last = True
            raise _StopParsing

    def _measure(self) -> None:
        for name, value in self._headers:
            if b"\0" in value or name.endswith(b" "):
                self._refuse(f"the response has an invalid header: {name!r}")
            match name.lower():
                case b"content-length" if len(value) > MAX_LENGTH_DIGITS:
                    self._refuse("the response has an invalid content-length")
                case b"content-length":
                    self._length = int(value)
                case b"transfer-encoding" if self._chunked or value.lower() != b"chunked":
                    self._refuse(f"the response has an unsupported transfer-encoding: {value!r}")
                case b"transfer-encoding":
                    self._chunked = True

    def on_message_complete(self) -> None:
        if self.head is not None:
            self.over = True
        self._reason, self._headers, self._idle = b"", Headers(), 0
