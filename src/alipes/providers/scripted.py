"""A provider that says what it was told to: the double every suite shares, also `--model scripted`."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec
from msgspec import Struct

from alipes.kernel.errors import ProviderError
from alipes.kernel.messages import Message, Part, Text, Thinking, ToolCall, ToolResult
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta, Replied, TextDelta, ThinkingDelta, Usage


@runtime_checkable
class Waits(Protocol):
    """Something to wait for before going on: an `asyncio.Event`, a `Pause`, or whatever a test makes."""

    async def wait(self) -> object: ...


class Pause(Struct, frozen=True):
    """Say nothing for so long."""

    seconds: float

    async def wait(self) -> None:
        await asyncio.sleep(self.seconds)


Item: TypeAlias = str | Part | ProviderError | Waits
Line: TypeAlias = Item | tuple[Item, ...] | Replied


class Scripted:
    """Answers each request with the next line of the script.

    A line is one item or a tuple of them, performed in order: text and thinking are streamed,
    calls are made, an error is raised where it stands (half an answer, then the cut), an event
    or a pause is waited for. A `Replied` is given as it is, with its usage and stop cause.
    An event or a pause that is a line of its own only delays the line after it. Texts that follow
    each other, whatever was waited for between them, are one text.
    Without a script it answers by `improvise`.
    """

    def __init__(self, script: Iterable[Line] | None = None) -> None:
        self._script = None if script is None else list(script)
        self.asked: list[Request] = []
        """Every request, oldest first."""
        self.living = 0
        """Streams that are open now."""

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        self.asked.append(request)
        self.living += 1
        try:
            line = await self._next(request)
            if isinstance(line, ProviderError):
                raise line
            async with aclosing(_perform(line, request)) as deltas:
                yield deltas
        finally:
            self.living -= 1

    async def _next(self, request: Request) -> Line:
        if self._script is None:
            return improvise(request)
        while self._script:
            line = self._script.pop(0)
            if not isinstance(line, Waits):
                return line
            await line.wait()
        raise ProviderError(f"The script has ended: it has no line for request {len(self.asked)}.")


def improvise(request: Request) -> Line:
    """An answer without a script: tell tool results, obey `!` lines of the person, else repeat their words.

    `!call NAME {"json": "args"}` calls a tool, `!think TEXT` thinks, `!say TEXT` speaks,
    `!wait SECONDS` is silent, `!fail TEXT` fails. Several are done in their order.
    """
    last = request.messages[-1] if request.messages else Message("user", ())
    if last.role == "tool":
        return _report(request, last)
    orders = [line for line in last.text.splitlines() if line.startswith("!")]
    items = tuple(item for n, line in enumerate(orders) if (item := _obey(line, len(request.messages), n)))
    return items or f"You said: {last.text}"


def _obey(line: str, place: int, number: int) -> Item | None:
    word, _, rest = line[1:].partition(" ")
    match word:
        case "call":
            name, _, args = rest.strip().partition(" ")
            return _call(f"call-{place}-{number}", name, args.strip() or "{}")
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


def _call(id: str, name: str, written: str) -> ToolCall:
    try:
        return ToolCall(id, name, msgspec.json.decode(written, type=dict[str, Any]))
    except msgspec.MsgspecError:
        return ToolCall(id, name, {}, raw=written)


def _report(request: Request, last: Message) -> str:
    names = {call.id: call.name for message in request.messages for call in message.calls}
    told = [
        f"{names.get(part.call_id, 'a tool')} ({part.outcome}): {part.text}"
        for part in last.parts
        if isinstance(part, ToolResult)
    ]
    return "\n".join(told) or "There was no result."


async def _perform(line: Line, request: Request) -> AsyncGenerator[Delta, None]:
    reply = line if isinstance(line, Replied) else None
    parts: list[Part] = []
    for item in _items(line):
        match item:
            case ProviderError():
                raise item
            case Waits():
                await item.wait()
            case _:
                part = Text(item) if isinstance(item, str) else item
                _join(parts, part)
                for delta in _pieces(part):
                    await asyncio.sleep(0)  # whoever stops us finds a place to do it
                    yield delta
    yield reply or _whole(tuple(parts), request)


def _join(parts: list[Part], part: Part) -> None:
    if parts and isinstance(part, Text) and isinstance(before := parts[-1], Text):
        parts[-1] = Text(before.text + part.text)
    else:
        parts.append(part)


def _items(line: Line) -> tuple[Item, ...]:
    match line:
        case Replied(message):
            return message.parts
        case tuple():
            return line
        case _:
            return (line,)


def _pieces(part: Part) -> Iterator[Delta]:
    if isinstance(part, Text | Thinking):
        for piece in re.findall(r"\s*\S+|\s+$", part.text):
            yield TextDelta(piece) if isinstance(part, Text) else ThinkingDelta(piece)


def _whole(parts: tuple[Part, ...], request: Request) -> Replied:
    message = Message("assistant", parts)
    usage = Usage(input=_tokens(request), output=1 + len(message.text) // 4)
    return Replied(message, usage, "calls" if message.calls else "end")


def _tokens(request: Request) -> int:
    """A guess of the usual four letters to a token, so that sums and costs have something to add."""
    said = sum(
        len(part.text)
        for message in request.messages
        for part in message.parts
        if isinstance(part, Text | Thinking | ToolResult)
    )
    return 1 + (len(request.system) + said) // 4
