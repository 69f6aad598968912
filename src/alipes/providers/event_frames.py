"""Parses the binary event streams of AWS (application/vnd.amazon.eventstream)."""

import struct
import zlib

import msgspec

from alipes.providers.wire import MAX_EVENT_BYTES, EventTooLong, NotAnEventStream

_PRELUDE = struct.Struct(">II")
_CRC = struct.Struct(">I")
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Of header values, by their type; bytes (6) and texts (7) have a length of their own."""
OVERHEAD = 16
"""Bytes of a frame besides headers and payload."""


class FrameParser:
    """Parses bytes into events, each as JSON: `{"kind": TYPE, "fault": ..., "body": PAYLOAD}`."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._sure = False

    def feed(self, block: bytes) -> list[bytes]:
        """The events that `block` completes. Raises `EventTooLong` and `NotAnEventStream`."""
        self._rest += block
        rest, events, at = self._rest, list[bytes](), 0
        while len(rest) - at >= 12:
            size, headers = _PRELUDE.unpack_from(rest, at)
            (expected,) = _CRC.unpack_from(rest, at + 8)
            if zlib.crc32(rest[at : at + 8]) != expected or size < OVERHEAD + headers:
                if not self._sure:
                    raise NotAnEventStream(bytes(rest))
                events.append(_fault("a damaged frame"))
                at = len(rest)
                break
            self._sure = True
            if size > MAX_EVENT_BYTES:
                raise EventTooLong(f"an event of more than {MAX_EVENT_BYTES >> 20} MiB")
            if len(rest) - at < size:
                break
            events.append(_read_frame(bytes(rest[at : at + size]), headers))
            at += size
        del rest[:at]
        return events

    def end(self) -> list[bytes]:
        """Nothing: a frame that is not complete is dropped. Raises `NotAnEventStream`."""
        if self._rest and not self._sure:
            raise NotAnEventStream(bytes(self._rest))
        return []


def _read_frame(frame: bytes, headers: int) -> bytes:
    (expected,) = _CRC.unpack_from(frame, len(frame) - 4)
    if zlib.crc32(frame[:-4]) != expected:
        return _fault("a damaged frame")
    try:
        named = _read_headers(frame[12 : 12 + headers])
    except (struct.error, IndexError, KeyError, UnicodeDecodeError):
        return _fault("a damaged header")
    payload = frame[12 + headers : -4] or b"{}"
    match named.get(":message-type"):
        case "exception":
            head = {"kind": "", "fault": named.get(":exception-type", "exception")}
        case "error":
            payload = msgspec.json.encode({"message": named.get(":error-message", "")})
            head = {"kind": "", "fault": named.get(":error-code", "error")}
        case _:
            head = {"kind": named.get(":event-type", ""), "fault": ""}
    return b'%s,"body":%s}' % (msgspec.json.encode(head)[:-1], payload)


def _read_headers(data: bytes) -> dict[str, str]:
    """The headers that are texts."""
    found, at = {}, 0
    while at < len(data):
        length = data[at]
        name = data[at + 1 : at + 1 + length].decode()
        at += 1 + length
        kind, at = data[at], at + 1
        if kind in (6, 7):
            (size,) = struct.unpack_from(">H", data, at)
            at += 2
            if kind == 7:
                found[name] = data[at : at + size].decode()
        else:
            size = _SIZES[kind]
        at += size
    return found


def _fault(why: str) -> bytes:
    return msgspec.json.encode({"kind": "", "fault": "damaged", "body": {"message": why}})
