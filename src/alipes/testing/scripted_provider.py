"""A scripted provider for tests. Importing it adds the provider `scripted`, with the model `echo`."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, structs

from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.models import ModelFacts
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta, ModelReply, TextDelta, ThinkingDelta, ToolCallBegun, Usage
from alipes.providers.registry import add_python_provider
from alipes.providers.wire import parse_tool_call


@runtime_checkable
class Waitable(Protocol):
    """Something to wait for: an `asyncio.Event`, a `Pause`, or an object of a test."""

    async def wait(self) -> object: ...


class Pause(Struct, frozen=True):
    seconds: float

    async def wait(self) -> None:
        await asyncio.sleep(self.seconds)


ScriptItem: TypeAlias = str | Part | ProviderError | Waitable
Line: TypeAlias = ScriptItem | tuple[ScriptItem, ...] | ModelReply


class ScriptedProvider:
    """Answers each request with the next line of the script.

    A line is one item or a tuple of them, in order: text and thinking are streamed, calls are made,
    errors are raised at their position, events and pauses are awaited. A `ModelReply` is returned as it
    is, with its usage and stop reason. An event or pause as a line of its own delays the next line.
    Consecutive texts are joined. Without a script it answers by `reply_without_script`.
    """

    def __init__(self, script: Iterable[Line] | None = None) -> None:
        self._script = None if script is None else list(script)
        self.asked: list[Request] = []
        """Every request, oldest first."""
        self.living = 0
        """Open streams."""

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        self.asked.append(request)
        self.living += 1
        try:
            line = await self._next(request)
            if isinstance(line, ProviderError):
                raise line
            async with aclosing(_stream_line(line, request)) as deltas:
                yield deltas
        finally:
            self.living -= 1

    async def _next(self, request: Request) -> Line:
        if self._script is None:
            return reply_without_script(request)
        while self._script:
            line = self._script.pop(0)
            if not isinstance(line, Waitable):
                return line
            await line.wait()
        raise ProviderError(f"The script has no line for request {len(self.asked)}.")


def reply_without_script(request: Request) -> Line:
    """An answer without a script: report tool results, follow `!` lines of the user, else repeat the message.

    `!call NAME {"json": "args"}` calls a tool, `!think TEXT` thinks, `!say TEXT` answers,
    `!wait SECONDS` waits, `!fail TEXT` fails; several run in order.
    """
    last = request.messages[-1] if request.messages else Message("user", ())
    if last.role == "tool":
        return _report(request, last)
    orders = [line for line in last.text.splitlines() if line.startswith("!")]
    items = tuple(item for n, line in enumerate(orders) if (item := _parse_order(line, len(request.messages), n)))
    return items or f"You said: {last.text}"


def _parse_order(line: str, place: int, number: int) -> ScriptItem | None:
    word, _, rest = line[1:].partition(" ")
    match word:
        case "call":
            name, _, args = rest.strip().partition(" ")
            return parse_tool_call(f"call-{place}-{number}", name, args.strip())
        case "think":
            return Thinking(rest)
        case "say":
            return Text(rest)
        case "wait" if re.fullmatch(r"\d+(\.\d+)?", rest.strip()):
            return Pause(float(rest))
        case "fail":
            return ProviderError(rest or "The script says so.")
        case _:
            return None


def _report(request: Request, last: Message) -> str:
    names = {call.id: call.name for message in request.messages for call in message.calls}
    results = [
        f"{names.get(part.call_id, 'a tool')} ({part.outcome}): {part.text}"
        for part in last.parts
        if isinstance(part, ToolResult)
    ]
    return "\n".join(results) or "There was no result."


async def _stream_line(line: Line, request: Request) -> AsyncGenerator[Delta, None]:
    reply = line if isinstance(line, ModelReply) else None
    parts: list[Part] = []
    for item in _items(line):
        match item:
            case ProviderError():
                raise item
            case Waitable():
                await item.wait()
            case _:
                part = Text(item) if isinstance(item, str) else item
                if parts and isinstance(part, Text) and isinstance(before := parts[-1], Text):
                    parts[-1] = Text(before.text + part.text)
                else:
                    parts.append(part)
                for delta in _pieces(part):
                    await asyncio.sleep(0)  # a point at which the stream can be cancelled
                    yield delta
    message = Message("assistant", tuple(parts))
    usage = Usage(input=_tokens(request), output=1 + len(message.text) // 4)
    yield reply or ModelReply(message, usage, "calls" if message.calls else "end")


def _items(line: Line) -> tuple[ScriptItem, ...]:
    match line:
        case ModelReply(message):
            return message.parts
        case tuple():
            return line
        case _:
            return (line,)


def _pieces(part: Part) -> Iterator[Delta]:
    if isinstance(part, ToolCall):
        yield ToolCallBegun(part.name)
    if isinstance(part, Text | Thinking):
        for piece in re.findall(r"\s*\S+|\s+$", part.text):
            yield TextDelta(piece) if isinstance(part, Text) else ThinkingDelta(piece)


def _tokens(request: Request) -> int:
    """An estimate of four characters per token, so that sums and costs are not zero."""
    said = sum(
        len(part.text)
        for message in request.messages
        for part in message.parts
        if isinstance(part, Text | Thinking | ToolResult)
    )
    return 1 + (len(request.system) + said) // 4


_FREE = ModelFacts(price_input=0.0, price_output=0.0, price_cached=0.0, price_cache_write=0.0)
_FACTS = structs.replace(_FREE, vision=True, tools=True, reasoning=True)
add_python_provider("scripted", ScriptedProvider, "echo", _FACTS)
