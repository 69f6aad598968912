"""Steps of the agent's own tools as reasoning, for clients that ask for them."""

from collections.abc import Iterator

from alipes.kernel.formatting import format_excerpt
from alipes.kernel.messages import Message, ToolCall, ToolResult
from alipes.kernel.tool_labels import describe_tool
from alipes.web.endpoint import ApiCall

HEADER = "x-alipes-steps"
MAX_RESULT_CHARS = 300


def wants_steps(call: ApiCall, steps: str | None) -> bool:
    """True if the field `steps` of the body or the header asks for them."""
    return "reasoning" in (steps, call.request.headers.get(HEADER, "").strip().lower())


class ToolSteps:
    """Describes the calls of a turn from its messages; the client's own tools are left out."""

    def __init__(self, offered: frozenset[str]) -> None:
        self._offered = offered
        self._calls: dict[str, ToolCall] = {}

    def add(self, message: Message) -> tuple[str, ...]:
        """The steps that a message completes, a line or two for each."""
        if message.role == "assistant":
            self._calls.update((call.id, call) for call in message.calls if call.name not in self._offered)
            return ()
        return tuple(self._describe(message)) if message.role == "tool" else ()

    def _describe(self, message: Message) -> Iterator[str]:
        for part in message.parts:
            if isinstance(part, ToolResult) and (call := self._calls.pop(part.call_id, None)) is not None:
                shown = format_excerpt(part.text, MAX_RESULT_CHARS)[1:-1]
                yield f"{describe_tool(call).text} ({part.outcome})" + (f"\n{shown}" if shown else "")
