"""A model and a tool with random delays, and a check of the transcript."""

import asyncio
from contextlib import asynccontextmanager

from alipes.kernel.messages import Message, Text, ToolCall
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import ModelReply, TextDelta


class SlowModel:
    """Every other reply calls a tool; every await takes a random time."""

    def __init__(self, dice):
        self.dice, self.n = dice, 0

    @asynccontextmanager
    async def stream(self, request):
        async def deltas():
            self.n += 1
            await asyncio.sleep(self.dice.random() * 0.002)
            yield TextDelta("x")
            part = ToolCall(f"c{self.n}", "nap", {}) if self.n % 2 else Text(f"reply {self.n}")
            yield ModelReply(Message("assistant", (part,)))

        yield deltas()


class SlowTool:
    spec = ToolSpec("nap", "", {"type": "object", "properties": {}})

    async def run(self, args, act):
        await asyncio.sleep(0.001)
        return "rested"


def check_transcript(messages):
    """Assert that every call is answered before the next message."""
    unanswered = set()
    for message in messages:
        if message.role == "tool":
            unanswered -= {part.call_id for part in message.parts}
        else:
            assert not unanswered, f"{unanswered} unanswered before {message}"
        unanswered |= {call.id for call in message.calls}
    assert not unanswered
