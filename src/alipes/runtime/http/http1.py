"""HTTP/1.1 as its client speaks it: a question becomes bytes, bytes become an answer. It knows no socket.

Questions are written by hand, answers are read by llhttp, which is C: see docs/adr/0017.
"""

import re

import httpx2
from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)
from msgspec import Struct

LARGEST_HEAD = 100 * 1024
"""Bytes that may come before they make a head, a piece of a body, or an end."""
DIGITS = 20
"""Those that a length may have."""
_TOKEN = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_TARGET = re.compile(rb"[\x21-\x7e]+")
_VALUE = re.compile(rb"(?:[^\0\s]+(?:[ \t]+[^\0\s]+)*)?")

_SPECIAL = {b"host", b"connection", b"content-length", b"transfer-encoding"}
"""The headers that say where a question ends, and who is asked."""

Headers = list[tuple[bytes, bytes]]


class Question:
    """A request as it goes out: `head`, then each piece of its body, then the end.

    Raises `httpx2.LocalProtocolError` for what a server could understand in another way than we do.
    """

    def __init__(self, method: str, target: bytes, headers: Headers) -> None:
        verb = method.encode("ascii", "replace")
        if not _TOKEN.fullmatch(verb) or not _TARGET.fullmatch(target):
            raise httpx2.LocalProtocolError(f"this cannot be asked as it is: {method!r} {target!r}")
        lines, special = [b"%b %b HTTP/1.1\r\n" % (verb, target)], Headers()
        for name, value in headers:
            if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
                # Its value may be a secret.
                raise httpx2.LocalProtocolError(f"the header {name!r} cannot be sent as it is")
            lines.append(b"%b: %b\r\n" % (name, value))
            if (key := name.lower()) in _SPECIAL:
                special.append((key, value.lower()))
        lines.append(b"\r\n")
        self.head = b"".join(lines)
        self._chunked, self._left, self.last = _framed(special)
        """`last`: we said that nothing else will be asked on this connection."""

    def piece(self, data: bytes) -> bytes:
        """What to send for a piece of the body."""
        if self._chunked:
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._left -= len(data)
        if self._left < 0:
            raise httpx2.LocalProtocolError("the body is longer than its head says")
        return data

    def end(self) -> bytes:
        if self._left > 0:
            raise httpx2.LocalProtocolError("the body is shorter than its head says")
        return b"0\r\n\r\n" if self._chunked else b""


def _framed(special: Headers) -> tuple[bool, int, bool]:
    """Is the body chunked, how long is it otherwise, and is this the last question on its connection?"""
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
        raise httpx2.LocalProtocolError(f"a question names one host, not {hosts}")
    match bodies:
        case []:
            return False, 0, last
        case [(b"content-length", length)] if length.isdigit() and len(length) <= DIGITS:
            return False, int(length), last
        case [(b"transfer-encoding", b"chunked")]:
            return True, 0, last
    raise httpx2.LocalProtocolError("a body has one length, or it is chunked, and nothing else")


class Head(Struct, frozen=True):
    """How an answer begins."""

    status: int
    reason: bytes
    version: bytes
    """As `HTTP/1.1`."""
    headers: Headers
    """As they came, in their order."""


class _EnoughError(Exception):
    """What follows is not to be read: it stops the parser, and nobody else sees it."""


class Answer:
    """What comes back for one question, from the bytes that it is fed: a head, then pieces of a body.

    What comes before an answer (100 to 199) is skipped.
    """

    def __init__(self, method: str) -> None:
        """`method`: that of the question."""
        self.head: Head | None = None
        self.over = False
        self.broken = ""
        """Why there will be no more of it, in a sentence; what came before can still be taken."""
        self.last = False
        """Nothing else may be asked on its connection."""
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append
        self._bodiless = method == "HEAD"
        self._taken = self._idle = 0
        self._length: int | None = None
        self._chunked = False
        self._reason, self._headers = b"", Headers()
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Dangerous to a server that shares its connections with strangers; here they are what h11 let pass.
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
            if not isinstance(error.__context__, _EnoughError):
                raise error.__context__ or error from None
        except (HttpParserError, HttpParserUpgrade) as error:
            if self.over:
                self.last = True
            else:
                self.broken = f"the server's answer is no HTTP: {error}"
        self._idle = 0 if self.pieces else self._idle + len(data)
        if self._idle > LARGEST_HEAD and not self.over:
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
        raise _EnoughError

    # What the parser tells

    def on_message_begin(self) -> None:
        if self.over:  # nobody asked for another
            self.last = True
            raise _EnoughError

    def on_status(self, part: bytes) -> None:
        self._reason += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # not what may follow a body
            self._headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._measure()
        status, version = self._parser.get_status_code(), self._parser.get_http_version()
        sized = self._chunked or self._length is not None
        if status < 100 or status == 101 or (status < 200 and sized):
            self._refuse(f"the server answers with {status}, which fits no question of ours")
        if status < 200:
            return
        self.head = Head(status, self._reason, b"HTTP/" + version.encode(), self._headers)
        both = self._chunked and self._length is not None
        self.last = both or version != "1.1" or not self._parser.should_keep_alive()
        if self._bodiless:  # which the parser cannot know
            self.over = self.last = True
            raise _EnoughError

    def _measure(self) -> None:
        """Where will the body end?"""
        for name, value in self._headers:
            if b"\0" in value or name.endswith(b" "):
                self._refuse(f"the server's answer has a header that is none: {name!r}")
            match name.lower():
                case b"content-length" if len(value) > DIGITS:
                    self._refuse("the server's answer has a length of too many digits")
                case b"content-length":
                    self._length = int(value)
                case b"transfer-encoding" if self._chunked or value.lower() != b"chunked":
                    self._refuse(f"the server's answer is encoded as {value!r}, which we do not read")
                case b"transfer-encoding":
                    self._chunked = True

    def on_message_complete(self) -> None:
        if self.head is not None:
            self.over = True
        self._reason, self._headers, self._idle = b"", Headers(), 0
