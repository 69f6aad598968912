"""The way to a safe point: turns that live when we are told to leave go on to where nothing is cut off."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping

from alipes.hooks.owners import CORE
from alipes.hooks.relay import Hooks
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.ports import Output
from alipes.kernel.turns import Turn

DELEGATE = "delegate_task"
LOOK = 0.05
"""Seconds between two looks."""
QUIET = 0.3
"""Seconds after which a turn that neither asks nor acts is taken to wait for somebody."""
_OVERSEERS = re.compile(
    r"\b(alipes|systemctl|service|supervisorctl|s6-svc|sv|docker|podman|launchctl|reboot|shutdown|pkill|killall)\b"
)
"""Programs by which a turn asks for our own end, and which may then wait for it."""


class Phase:
    """What a turn is at."""

    __slots__ = ("acting", "asking", "overseeing", "parked", "since")

    def __init__(self) -> None:
        self.asking = self.parked = False
        self.acting = self.overseeing = 0
        self.since = time.monotonic()

    def safe(self) -> bool:
        """Nothing of it would be cut off: before a question, or while it waits for a person's word."""
        if self.overseeing:
            return True  # it waits for us to leave, and we do not wait for it
        idle = not self.asking and not self.acting
        return self.parked or (idle and time.monotonic() - self.since > QUIET)


class Draining:
    """Follows turns by the hooks of the house. Once `begin` was called no turn asks a model any more: each
    comes to rest before its next question, from where the next process takes it up."""

    def __init__(self) -> None:
        self._turns: dict[str, Phase] = {}
        self._leaving = False
        self._never = asyncio.Event()

    def listen(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_sent, patient=True)
        hooks.add(CORE, self.request_answered)
        hooks.add(CORE, self.request_failed)
        hooks.add(CORE, self.around_tool, patient=True)
        hooks.add(CORE, self.turn_ended)

    async def request_sent(self, turn: Turn) -> None:
        phase = self._phase(turn)
        if self._leaving:
            phase.parked = True
            await self._never.wait()
        phase.asking = True

    async def request_answered(self, turn: Turn) -> None:
        self._phase(turn).asking = False

    async def request_failed(self, turn: Turn) -> None:
        self._phase(turn).asking = False

    async def around_tool(
        self,
        go: Callable[[Mapping[str, Json]], Awaitable[str | Output]],
        args: Mapping[str, Json],
        call: ToolCall,
        turn: Turn,
    ) -> str | Output:
        # who waits for subagents is found waiting again; each of them is followed by itself
        phase, oversees = self._phase(turn), call.name == DELEGATE or asks_for_our_end(call)
        phase.acting += 1
        phase.overseeing += oversees
        try:
            return await go(args)
        finally:
            phase.acting -= 1
            phase.overseeing -= oversees
            phase.since = time.monotonic()

    async def turn_ended(self, turn: Turn) -> None:
        self._turns.pop(turn.id, None)

    def begin(self) -> None:
        self._leaving = True

    async def drained(self) -> None:
        """Return once no living turn would be cut off."""
        while self.unsafe:  # noqa: ASYNC110 (that a turn waits for somebody shows in time only)
            await asyncio.sleep(LOOK)

    @property
    def unsafe(self) -> int:
        """Turns that would be cut off now."""
        return sum(not phase.safe() for phase in self._turns.values())

    def _phase(self, turn: Turn) -> Phase:
        phase = self._turns.setdefault(turn.id, Phase())
        phase.since = time.monotonic()
        return phase


def asks_for_our_end(call: ToolCall) -> bool:
    """A command that may wait until this very process has left."""
    command = call.args.get("command")
    if not isinstance(command, str):
        return False
    return bool(_OVERSEERS.search(command)) or re.search(rf"\b{os.getpid()}\b", command) is not None
