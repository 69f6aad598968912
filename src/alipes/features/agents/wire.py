"""The connection with one program: JSON-RPC lines over its standard input and output, by the protocol's own package."""

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from acp import RequestError
from acp.connection import Connection
from acp.meta import AGENT_METHODS
from pydantic import BaseModel, ValidationError

from alipes.kernel.formatting import format_excerpt
from alipes.runtime.json_text import clean_text
from alipes.runtime.processes.child import Child

MAX_MESSAGE_BYTES = 32 << 20
MAX_INVALID_LINES = 200
"""Consecutive lines that are no messages; then it is no agent."""
MESSAGE_BURST, MESSAGES_PER_S = 5_000, 2_000
WRITE_TIMEOUT_S = 30.0
LAST_LINES, MAX_LINE_CHARS = 5, 300
MAX_DIGITS = 18
AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601
_STACK = ("at ", "}", "errno:", "code:", "syscall:", "path:")
"""Starts of lines that Node prints after an error."""
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
"""Surrogates: pairs of them, which are fine, or halves."""
M = TypeVar("M", bound=BaseModel)
Handle: TypeAlias = Callable[[str, Any], Awaitable[Any]]
"""Answers a request or takes a notification: its method and parameters."""


class ProgramEnded(Exception):
    """The program has gone, or what it sends is not the protocol. The message says which."""


class LastLines:
    """The last lines that the program printed, for error messages."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask, self._lines, self._rest = mask, deque[str](maxlen=LAST_LINES), b""

    def feed(self, piece: bytes) -> None:
        *lines, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[-4096:]
        for line in lines:
            self.add(line)

    def add(self, line: bytes) -> None:
        text = line[:4096].decode("utf-8", "replace").strip()
        if text and not text.startswith(_STACK):
            self._lines.append(self._mask(text)[:MAX_LINE_CHARS])

    @property
    def last(self) -> str:
        rest = self._rest.decode("utf-8", "replace").strip()
        return self._mask(rest)[:MAX_LINE_CHARS] if rest else (self._lines[-1] if self._lines else "")


class LineTransport:
    """The messages of a child, for the connection of the package. A flood waits in its pipe."""

    def __init__(self, child: Child, lines: LastLines) -> None:
        self._child, self._lines = child, lines
        self._buffer, self._ready = bytearray(), deque[dict[str, Any]]()
        self._writing = asyncio.Lock()
        self._left, self._at = float(MESSAGE_BURST), monotonic()
        self._invalid = 0
        self.problem = ""
        """Why it was given up, if its output is not the protocol."""
        self.ended = asyncio.Event()
        """Set when nothing more can be received."""

    async def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n"
        async with self._writing:
            try:
                written = await self._child.input.write(data, WRITE_TIMEOUT_S)
            except OSError:
                written = -1
        if written >= 0 and written != len(data):
            self.problem = f"it did not read its input for {WRITE_TIMEOUT_S:g} s"
        if written != len(data) and "method" in message:  # nobody waits for the arrival of an answer
            raise ConnectionError(self.problem or "it closed its input")

    async def receive(self) -> dict[str, Any] | None:
        while not self._ready:
            if self.problem or not (piece := await self._child.read()):
                self.ended.set()
                return None
            self._take(piece)
        await self._throttle()
        return self._ready.popleft()

    async def close(self) -> None:
        self._child.input.close()

    def _take(self, piece: bytes) -> None:
        self._buffer += piece
        if b"\n" in piece:
            *lines, rest = bytes(self._buffer).split(b"\n")
            self._buffer = bytearray(rest)
            for line in filter(bytes.strip, lines):
                self._take_line(line)
        elif len(self._buffer) > MAX_MESSAGE_BYTES:
            self.problem = f"it sent a message of more than {MAX_MESSAGE_BYTES >> 20} MB"

    def _take_line(self, line: bytes) -> None:
        if message := parse_message(line):
            self._invalid = 0
            self._ready.append(message)
            return
        self._lines.add(line)
        self._invalid += 1
        if self._invalid >= MAX_INVALID_LINES:
            self.problem = "its output is not the Agent Client Protocol"

    async def _throttle(self) -> None:
        now = monotonic()
        self._left = min(MESSAGE_BURST, self._left + (now - self._at) * MESSAGES_PER_S) - 1
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / MESSAGES_PER_S)


def parse_message(line: bytes) -> dict[str, Any] | None:
    """A message that the connection of the package can take, with values that we can store; None for anything else."""
    try:
        message = json.loads(line, parse_int=_parse_int, parse_constant=_drop)
        message = _clean(message) if _HALF_CHARACTER.search(line) else message
    except (ValueError, RecursionError):
        return None
    if not is_message(message):
        return None
    if (error := message.get("error")) is not None and not isinstance(error, dict):
        message["error"] = {"message": str(error)[:MAX_LINE_CHARS]}
    found: dict[str, Any] = message
    return found


def _parse_int(text: str) -> int | float:
    """Longer numbers cannot be stored."""
    return int(text) if len(text) <= MAX_DIGITS else float(text)


def _drop(_constant: str) -> None:
    """NaN and infinity are no JSON."""


def _clean(value: Any) -> Any:
    """The same without halves of characters, which cannot be stored or sent."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(name): _clean(each) for name, each in value.items()}
    return [_clean(each) for each in value] if isinstance(value, list) else value


def is_message(message: object) -> bool:
    """True for what the connection of the package can take."""
    if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
        return False
    return isinstance(message.get("id"), int | str | None) and ("method" in message or "id" in message)


class ProgramWire:
    """Typed requests to the program. Close it before its process ends."""

    def __init__(self, child: Child, handle: Handle, mask: Callable[[str], str]) -> None:
        self.lines = LastLines(mask)
        self._child, self._handle = child, handle
        self._transport = LineTransport(child, self.lines)
        self._connection = Connection(self._answer, self._transport)

    async def close(self) -> None:
        await self._connection.close()

    async def wait_until_read(self) -> None:
        """Return when nothing more can be received."""
        await self._transport.ended.wait()

    async def ask(self, method: str, params: BaseModel, answer: type[M], seconds: float | None = None) -> M:
        """Send a request by the package's name of its method. Raises `ProgramEnded` and `RequestError`; TimeoutError
        after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                found = await self._connection.send_request(AGENT_METHODS[method], to_wire(params))
        except ConnectionError as error:
            raise ProgramEnded(await self.describe_end()) from error
        try:
            return answer.model_validate(found if isinstance(found, dict) else {})
        except ValidationError as error:
            raise RequestError(0, f"its answer to {AGENT_METHODS[method]} is not valid") from error

    async def tell(self, method: str, params: BaseModel) -> None:
        """Send a notification; one to a program that has gone is dropped."""
        try:
            await self._connection.send_notification(AGENT_METHODS[method], to_wire(params))
        except ConnectionError:
            return

    async def _answer(self, method: str, params: Any, is_notification: bool) -> Any:
        try:
            return await self._handle(method, params if isinstance(params, dict) else {})
        except (ValidationError, RequestError) as error:
            if is_notification:  # nobody waits for an answer
                self.lines.add(f"{method}: unknown".encode())
                return None
            if isinstance(error, RequestError):
                raise
            raise RequestError.invalid_params(
                {"fields": [".".join(map(str, each["loc"])) for each in error.errors()]}
            ) from error

    async def describe_end(self) -> str:
        """How the program ended, with the last line that it printed."""
        if self._transport.problem:
            return self._transport.problem
        try:
            async with asyncio.timeout(1):
                code = await self._child.wait()
        except TimeoutError:
            how = "it closed the connection"
        else:
            how = f"it exited with code {code}" if code >= 0 else "it was killed"
        said = self.lines.last
        return f"{how}: {format_excerpt(said, 200)[1:-1]}" if said else how


def to_wire(params: BaseModel) -> dict[str, Any]:
    sent: dict[str, Any] = params.model_dump(mode="json", by_alias=True, exclude_none=True)
    return sent
