"""A scripted model for tests that records every request."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, TypeAlias

from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import Json, Text, ToolCall, ToolResult
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta
from alipes.testing.scripted_provider import Line, Pause, ScriptedProvider, Waitable, reply_without_script

Sleep: TypeAlias = Callable[[float], Awaitable[object]]
ScriptLine: TypeAlias = Line | Callable[[Request], Line]
_NUMBERS = count(1)


class ScriptedModel:
    """A provider that answers each request with the next line of its script.

    A line is a text, a `call(...)`, a `ProviderError` to raise, a `stall()` to wait at, a `slow_text(...)`,
    a tuple of these, or a function of the `Request` that returns one. Without a script it repeats its input
    and follows lines such as `!call NAME {"json": "args"}`.
    """

    def __init__(self, script: Iterable[ScriptLine] | None = None) -> None:
        self.requests: list[Request] = []
        """All requests, oldest first."""
        self.streaming = 0
        """Number of answers being streamed."""
        self._script = None if script is None else list(script)
        self._asked = asyncio.Event()

    @property
    def remaining(self) -> int:
        """Number of unused lines."""
        return len(self._script or ())

    def set_script(self, *script: ScriptLine) -> None:
        """Replace the rest of the script."""
        self._script = list(script)

    async def wait_for_request(self, times: int = 1) -> Request:
        """The request number `times`, as soon as it arrives."""
        while len(self.requests) < times:
            self._asked.clear()
            await self._asked.wait()
        return self.requests[times - 1]

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        self.requests.append(request)
        self._asked.set()
        self.streaming += 1
        try:
            async with ScriptedProvider(self._lines(request)).stream(request) as deltas:
                yield deltas
        finally:
            self.streaming -= 1

    def _lines(self, request: Request) -> list[Line]:
        """The next line, and the waits before it; each is used once."""
        if self._script is None:
            return [reply_without_script(request)]
        lines: list[Line] = []
        while self._script:
            line = self._script.pop(0)
            lines.append(line(request) if callable(line) else line)
            if not isinstance(lines[-1], Waitable):
                return lines
        message = f"the test's script has no line for request {len(self.requests)}"
        return [*lines, ProviderError(message)]


def call(name: str, /, **args: Json) -> ToolCall:
    """A tool call for a script."""
    return ToolCall(f"call-{next(_NUMBERS)}", name, args)


def results(request: Request) -> dict[str, ToolResult]:
    """Results of the latest tool calls by tool name, as the model reads them."""
    names = {each.id: each.name for message in request.messages for each in message.calls}
    last = request.messages[-1].parts if request.messages else ()
    return {names.get(part.call_id, ""): part for part in last if isinstance(part, ToolResult)}


class Stall:
    """The model waits here until `go()`. `await reached.wait()` returns when it has arrived."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    def go(self) -> None:
        self._go.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._go.wait()


def stall() -> Stall:
    """A point in a script where the model waits for `go()`, or until it is stopped."""
    return Stall()


class _ClockPause:
    def __init__(self, seconds: float, sleep: Sleep) -> None:
        self._seconds, self._sleep = seconds, sleep

    async def wait(self) -> None:
        await self._sleep(self._seconds)


def slow_text(text: str, pause: float = 0.01, *, sleep: Sleep | None = None) -> tuple[Any, ...]:
    """A line that streams `text` word by word with pauses; `sleep` may be that of a `Clock`."""
    nap = Pause(pause) if sleep is None else _ClockPause(pause, sleep)
    return tuple(item for word in re.findall(r"\s*\S+|\s+$", text) for item in (nap, Text(word)))
