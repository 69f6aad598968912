"""A provider and a tool that take random moments, and what a transcript owes."""

import asyncio
from contextlib import asynccontextmanager

from alipes.kernel.messages import Message, Text, ToolCall
from alipes.kernel.ports import ToolSpec
from alipes.kernel.turns import Replied, TextDelta


class Slow:
    """Every other reply calls a tool; every await takes a random moment."""

    def __init__(self, dice):
        self.dice, self.n = dice, 0

    @asynccontextmanager
    async def stream(self, request):
        async def deltas():
            self.n += 1
            await asyncio.sleep(self.dice.random() * 0.002)
            yield TextDelta("x")
            part = ToolCall(f"c{self.n}", "nap", {}) if self.n % 2 else Text(f"reply {self.n}")
            yield Replied(Message("assistant", (part,)))

        yield deltas()


class Napper:
    spec = ToolSpec("nap", "", {"type": "object", "properties": {}})

    async def run(self, args, act):
        await asyncio.sleep(0.001)
        return "rested"


def valid(messages):
    """Every call is answered before anything else is said."""
    owed = set()
    for message in messages:
        if message.role == "tool":
            owed -= {part.call_id for part in message.parts}
        else:
            assert not owed, f"{owed} unanswered before {message}"
        owed |= {call.id for call in message.calls}
    assert not owed
