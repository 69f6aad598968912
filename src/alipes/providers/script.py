"""The model of scheduled scripts: it runs the message as a command and answers with its output. It costs nothing."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from alipes.kernel.errors import Refused
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, assistant
from alipes.kernel.ports import Request
from alipes.kernel.turns import Delta, ModelReply, Usage

TIMEOUT_S = 3600
MAX_ERROR_CHARS = 2000
_STATUS = re.compile(r"\n\[(exit code (?P<code>\d+)[^\]\n]*|timed out[^\]\n]*|killed[^\]\n]*)\]")
_NO_OUTPUT = "(no output)"


class ScriptProvider:
    """A provider that calls `terminal` once."""

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        yield _one(ModelReply(_reply(request.messages), Usage(cost=0.0)))


async def _one(reply: ModelReply) -> AsyncIterator[Delta]:
    yield reply


def _reply(messages: tuple[Message, ...]) -> Message:
    """Raises `Refused` if the script failed: the turn fails with its output."""
    results = [part for part in messages[-1].parts if isinstance(part, ToolResult)]
    if not results:
        script = next(each.text for each in reversed(messages) if each.role == "user")
        return assistant(ToolCall("script", "terminal", {"command": script, "timeout": TIMEOUT_S}))
    text, outcome = results[-1].text, results[-1].outcome
    if outcome != "ok":
        raise Refused(f"the script did not run to its end: {text}")
    found = [*_STATUS.finditer(f"\n{text}")]
    status = found[-1] if found else None
    output = text if status is None else f"\n{text}"[: status.start()].strip("\n")
    output = "" if output.strip() == _NO_OUTPUT else output
    if status is None or status["code"] != "0":
        why = status[1] if status is not None else "no exit code"
        raise Refused(f"the script failed ({why}): {output[-MAX_ERROR_CHARS:] or 'no output'}")
    return assistant(Text(output or "[SILENT]"))
