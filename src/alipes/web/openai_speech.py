"""A turn's text while it is being said: what is to be sent next, also where some of it was lost. Pure.

And what is told of the agent's own tools meanwhile.
"""

from alipes.kernel.messages import Json
from alipes.kernel.turns import Event, TextDelta, ToolFinished, ToolProgress, ToolStarted

LONGEST = 2000
"""Letters of a tool's result that are told; the model has all of it."""
TOOL = "alipes.tool"
"""The event that tells of the agent's own tools; clients of OpenAI's need not know it."""


class Speech:
    """One message after the other. What was sent cannot be taken back."""

    def __init__(self) -> None:
        self.current = ""
        """What was sent of the message that is not whole yet."""

    def hear(self, delta: TextDelta) -> str:
        self.current += delta.text
        return delta.text

    def complete(self, text: str) -> str:
        """The message is whole: what of it was not sent. The bus may have lost some."""
        current, self.current = self.current, ""
        if text.startswith(current):
            return text[len(current) :]
        return "" if text.strip() == current.strip() else text

    def drop(self) -> bool:
        """The message was taken back; True when some of it was sent."""
        current, self.current = self.current, ""
        return bool(current)


def progress(event: Event, offered: frozenset[str]) -> dict[str, Json] | None:
    """What is told of a tool of the agent's; None for all else, and for the client's own tools."""
    match event:
        case ToolStarted(call) if call.name not in offered:
            return {"status": "started", "call_id": call.id, "name": call.name, "arguments": dict(call.args)}
        case ToolProgress(call_id, text):
            return {"status": "progress", "call_id": call_id, "text": _cut(text)}
        case ToolFinished(call, result, seconds) if call.name not in offered:
            told: dict[str, Json] = {"status": "finished", "call_id": call.id, "name": call.name}
            return {
                **told,
                "outcome": result.outcome,
                "text": _cut(result.text),
                "seconds": round(seconds, 3),
            }
    return None


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
