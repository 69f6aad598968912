"""Stdio transport: a server as a child process in the sandbox, which reads and writes one JSON message per line."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from time import monotonic

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from alipes.features.mcp.client.server_log import ServerLog
from alipes.kernel.formatting import format_excerpt
from alipes.runtime.processes.child import Child

MAX_MESSAGE_BYTES = 32 << 20
MAX_INVALID_LINES = 200
"""Consecutive lines that are no messages; then it is no MCP server."""
LARGE_MESSAGE_BYTES = 256 * 1024
"""Parsed in a thread."""
WRITE_TIMEOUT_S = 30.0
EXIT_GRACE_S = 0.5
"""Seconds to exit after the end of its input; then it is killed."""
EXIT_WAIT_S, LOG_WAIT_S = 5.0, 2.0
"""Seconds that a server which closed its output has to exit, and then for the rest of its standard error."""
STDERR_BURST_BYTES, STDERR_BYTES_PER_S = 1 << 20, 64 * 1024
MESSAGE_BURST, MESSAGES_PER_S = 5_000, 2_000

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
StdioStreams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class Throttle:
    """Limits a rate by waiting; the sender then blocks on its full pipe."""

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst, self._rate = burst, per_second
        self._left, self._at = burst, monotonic()

    async def take(self, amount: float) -> None:
        now = monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - amount
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._rate)


@asynccontextmanager
async def open_stdio(
    child_scope: AbstractAsyncContextManager[Child], log: ServerLog, on_exit: Callable[[str], None]
) -> AsyncIterator[StdioStreams]:
    """The streams of a server that `child_scope` starts; its processes have ended when this is left.

    `on_exit(why)` is called when the connection ends by itself. Raises OSError if it cannot be started.
    """
    async with child_scope as child:
        arriving, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as group:
            group.start_soon(_read_messages, child, arriving, log, on_exit)
            group.start_soon(_write_messages, child, leaving, arriving, log, on_exit)
            group.start_soon(_read_log, child, log)
            try:
                yield incoming, outgoing
            finally:
                for stream in (incoming, outgoing, arriving, leaving):
                    stream.close()
                child.input.close()
                with anyio.move_on_after(EXIT_GRACE_S, shield=True):
                    await child.wait()
                    await log.finished.wait()
                group.cancel_scope.cancel()


async def _read_messages(child: Child, arriving: Incoming, log: ServerLog, on_exit: Callable[[str], None]) -> None:
    async with arriving:  # closed last: then calls fail, and the reason is known
        try:
            why = await _pass_messages(child, arriving, log)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the session has ended
        on_exit(why or await _find_exit_reason(child, log))


async def _pass_messages(child: Child, arriving: Incoming, log: ServerLog) -> str:
    """Pass messages on until the output ends. Returns why it was given up; empty if the server ended it."""
    buffer, invalid, throttle = bytearray(), 0, Throttle(MESSAGE_BURST, MESSAGES_PER_S)
    while piece := await child.read():
        buffer += piece
        if len(buffer) > MAX_MESSAGE_BYTES:
            return f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MB"
        if b"\n" not in piece:
            continue
        *lines, rest = bytes(buffer).split(b"\n")
        buffer = bytearray(rest)
        for line in filter(bytes.strip, lines):
            await throttle.take(1)
            message = await _parse(line)
            if message is not None:
                invalid = 0
                await arriving.send(message)
                continue
            invalid += 1
            await log.add(f"[not a message] {format_excerpt(line[:2000].decode('utf-8', 'replace'), 300)}")
            if invalid >= MAX_INVALID_LINES:
                return "its output is not MCP: it must write messages only, and everything else to standard error"
    return ""


async def _parse(line: bytes) -> SessionMessage | None:
    if len(line) > LARGE_MESSAGE_BYTES:
        return await asyncio.to_thread(_parse_line, line)
    return _parse_line(line)


def _parse_line(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


async def _write_messages(
    child: Child,
    leaving: MemoryObjectReceiveStream[SessionMessage],
    arriving: Incoming,
    log: ServerLog,
    on_exit: Callable[[str], None],
) -> None:
    async with leaving:
        async for message in leaving:
            data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                written = await child.input.write(data, WRITE_TIMEOUT_S)
            except OSError:
                written = -1
            if written == len(data):
                continue
            if written >= 0:
                on_exit(f"it did not read its input for {WRITE_TIMEOUT_S:g} s")
            else:
                on_exit(await _find_exit_reason(child, log))
            arriving.close()  # ends the session, so that no call waits for ever
            return


async def _read_log(child: Child, log: ServerLog) -> None:
    throttle = Throttle(STDERR_BURST_BYTES, STDERR_BYTES_PER_S)
    while piece := await child.read_errors():
        await log.feed(piece)
        await throttle.take(len(piece))
    await log.finish()


async def _find_exit_reason(child: Child, log: ServerLog) -> str:
    """How the server ended, with the last line of its log."""
    with anyio.move_on_after(EXIT_WAIT_S):
        await child.wait()
    with anyio.move_on_after(LOG_WAIT_S):  # a process that it left behind may keep it open
        await log.finished.wait()
    code = child.returncode
    how = (
        "it closed the connection" if code is None else f"it exited with code {code}" if code >= 0 else "it was killed"
    )
    said = log.last_lines[-1] if log.last_lines else ""
    return f"{how}: {format_excerpt(said, 200)[1:-1]}" if said else how
