"""Endpoints for the log: search it backwards, and follow it live."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct
from starlette.responses import Response

from alipes.core.app import App
from alipes.runtime.json_text import to_json_bytes
from alipes.runtime.log_file import LogLine, watch_log
from alipes.runtime.log_reader import LogEntry, LogPlace, LogReader, parse_place
from alipes.web.endpoint import ApiCall, ApiEndpoint, HttpProblem, json_response
from alipes.web.sse import EventStream, SendFrames, frame

LOOK_INTERVAL_S = 2.0
"""Other processes of this home write to the same file; their lines are found after this time at most."""
BATCH_S = 0.2
"""Lines of this time are sent together."""
MAX_TEXT_CHARS = 16_384
Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Place: TypeAlias = Annotated[str, Meta(max_length=100)]


class LogFilter(Struct, frozen=True):
    level: Level = "debug"
    """This level and those above it."""
    q: Annotated[str, Meta(max_length=500)] = ""
    """Text in the line, its logger or its traceback, in any case."""
    session: Annotated[str, Meta(max_length=200)] = ""


class LogQuery(LogFilter, frozen=True):
    before: Place = ""
    """`id` of a line: only older ones."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class LogDocument(Struct, frozen=True, omit_defaults=True):
    id: str
    text: str
    time: float = 0.0
    level: str = ""
    logger: str = ""
    session: str = ""
    run: str = ""
    request: str = ""
    trace: str = ""
    truncated: bool = False
    """The text or the traceback is longer; the file has all of it."""


class LogList(Struct, frozen=True):
    lines: tuple[LogDocument, ...]
    """Latest first."""
    more: bool
    """There are older ones."""
    end: str
    """Where the log ends: `Last-Event-ID` of a stream that continues from here."""
    file: str


class LogEndpoints:
    def __init__(self, app: App) -> None:
        self._app, self._reader = app, LogReader(app.settings.paths.log)

    @ApiEndpoint("GET", "/v1/log", "admin", readable=True, query=LogQuery, answer=LogList)
    async def list(self, call: ApiCall) -> Response:
        """Get the latest lines of the log, latest first."""
        query: LogQuery = call.query
        place = parse_place(query.before) if query.before else None
        if query.before and place is None:
            raise HttpProblem(422, "before must be the id of a line of the log", code="query")
        end = await asyncio.to_thread(self._reader.end)
        found, more = await asyncio.to_thread(self._reader.read_before, place, query.limit, _make_filter(query))
        lines = tuple(map(self._document, found))
        return json_response(LogList(lines, more, str(end), str(self._reader.path)))

    @ApiEndpoint(
        "GET",
        "/v1/log/stream",
        "admin",
        readable=True,
        query=LogFilter,
        headers={"Last-Event-ID": "Continue after this line; without it, only new lines are sent."},
        streams=True,
    )
    async def stream(self, call: ApiCall) -> Response:
        """Follow the log: events `following` once new lines are sent, `line` for each, `reset` if some are missing."""
        matches, given = _make_filter(call.query), call.request.headers.get("last-event-id", "")

        async def write(send: SendFrames) -> None:
            await self._follow(send, parse_place(given) if given else None, matches, resumed=bool(given))

        return EventStream(write)

    async def _follow(
        self, send: SendFrames, place: LogPlace | None, matches: Callable[[LogLine], bool], *, resumed: bool
    ) -> None:
        loop, written = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(written.set)

        with watch_log(self._reader.path, notify):
            if resumed and place is None:
                await send(frame(b"{}", event="reset"))
            while True:
                if place is None:
                    place = await asyncio.to_thread(self._reader.end)
                    await send(frame(b"{}", event="following", id=str(place)))
                written.clear()
                entries, after = await asyncio.to_thread(self._reader.read_after, place)
                if after is None:
                    await send(frame(b"{}", event="reset"))
                    place = None
                    continue
                place = after
                if lines := b"".join(self._frame(each) for each in entries if matches(each.line)):
                    await send(lines)
                if not entries:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_INTERVAL_S):
                            await written.wait()
                    await asyncio.sleep(BATCH_S)

    def _frame(self, entry: LogEntry) -> bytes:
        return frame(to_json_bytes(self._document(entry)), event="line", id=str(entry.after))

    def _document(self, entry: LogEntry) -> LogDocument:
        line, mask = entry.line, self._app.secrets
        text, trace = mask(line.message), mask(line.trace)
        return LogDocument(
            str(entry.place),
            text[:MAX_TEXT_CHARS],
            _to_seconds(line.time),
            line.level,
            line.logger,
            line.session,
            line.turn,
            line.request,
            trace[:MAX_TEXT_CHARS],
            truncated=max(len(text), len(trace)) > MAX_TEXT_CHARS,
        )


def _make_filter(query: LogFilter) -> Callable[[LogLine], bool]:
    numbers, words = logging.getLevelNamesMapping(), query.q.casefold()
    least = numbers[query.level.upper()]

    def matches(line: LogLine) -> bool:
        if numbers.get(line.level.upper(), logging.CRITICAL) < least:
            return False
        if query.session and not line.session.startswith(query.session):
            return False
        return not words or any(words in text.casefold() for text in (line.message, line.logger, line.trace))

    return matches


def _to_seconds(time: str) -> float:
    try:
        return datetime.fromisoformat(time).timestamp()
    except ValueError:
        return 0.0
