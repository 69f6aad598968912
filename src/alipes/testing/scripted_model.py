"""A model that says what a test tells it to, in this process, and remembers every question."""

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
from alipes.providers.scripted import Line, Pause, Scripted, Waits, improvise

Sleep: TypeAlias = Callable[[float], Awaitable[object]]
ScriptLine: TypeAlias = Line | Callable[[Request], Line]
_NUMBERS = count(1)


class Model:
    """A provider. Each question is answered with the next line of the script.

    A line is what is said: a text, a `call(...)`, a `ProviderError` to fail with, a `stall()` to wait at, a
    `slowly(...)`; or a tuple of these, done in their order; or a function of the `Request` that returns
    one. With no script it repeats what it hears, and obeys lines such as `!call NAME {"json": "args"}`.
    """

    def __init__(self, script: Iterable[ScriptLine] | None = None) -> None:
        self.requests: list[Request] = []
        """Every question, the oldest first."""
        self.streaming = 0
        """Answers that are under way now."""
        self._script = None if script is None else list(script)
        self._asked = asyncio.Event()

    @property
    def left(self) -> int:
        """Lines that nobody has asked for yet."""
        return len(self._script or ())

    def follow(self, *script: ScriptLine) -> None:
        """Forget the rest of the script; from now on it is this."""
        self._script = list(script)

    async def asked(self, times: int = 1) -> Request:
        """The question number `times`, as soon as it is asked."""
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
            async with Scripted(self._lines(request)).stream(request) as deltas:
                yield deltas
        finally:
            self.streaming -= 1

    def _lines(self, request: Request) -> list[Line]:
        """The next line, and before it whatever is to be waited for; each is used once."""
        if self._script is None:
            return [improvise(request)]
        lines: list[Line] = []
        while self._script:
            line = self._script.pop(0)
            lines.append(line(request) if callable(line) else line)
            if not isinstance(lines[-1], Waits):
                return lines
        told = f"the script of the test has ended: there is no line for question {len(self.requests)}"
        return [*lines, ProviderError(told)]


def call(name: str, /, **args: Json) -> ToolCall:
    """A call of a tool, to stand in a script."""
    return ToolCall(f"call-{next(_NUMBERS)}", name, args)


def results(request: Request) -> dict[str, ToolResult]:
    """What the calls of the latest step gave, as the model reads it, by the name of the tool."""
    names = {each.id: each.name for message in request.messages for each in message.calls}
    last = request.messages[-1].parts if request.messages else ()
    return {names.get(part.call_id, ""): part for part in last if isinstance(part, ToolResult)}


class Stall:
    """The model says nothing until `go()`. `await reached.wait()` tells when it has come here."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    def go(self) -> None:
        self._go.set()

    async def wait(self) -> None:
        self.reached.set()
        await self._go.wait()


def stall() -> Stall:
    """A place in a script where the model waits until told; without `go()` it waits until it is stopped."""
    return Stall()


class _Nap:
    def __init__(self, seconds: float, sleep: Sleep) -> None:
        self._seconds, self._sleep = seconds, sleep

    async def wait(self) -> None:
        await self._sleep(self._seconds)


def slowly(text: str, pause: float = 0.01, *, sleep: Sleep | None = None) -> tuple[Any, ...]:
    """A line that says `text` word by word, with a pause before each; `sleep` may be that of a `Clock`."""
    nap = Pause(pause) if sleep is None else _Nap(pause, sleep)
    return tuple(item for word in re.findall(r"\s*\S+|\s+$", text) for item in (nap, Text(word)))
