"""Shutdown and full clusters: pauses turns where the next process resumes them, and holds new messages."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Json, ToolCall
from alipes.kernel.platform import IncomingMessage, OnMessage, OnStatus, Platform
from alipes.kernel.ports import ToolOutput
from alipes.kernel.turns import Turn
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import CORE

DELEGATE = "delegate_task"
POLL_S = 0.05
"""Interval between two checks."""
FULL_PAUSE_S = 1.0
"""Interval at which a held message asks whether the cluster has room again."""
QUIET_S = 0.3
"""A turn without model call or tool for this long is waiting for a person."""
_SERVICE_COMMANDS = re.compile(
    r"\b(alipes|systemctl|service|supervisorctl|s6-svc|sv|docker|podman|launchctl|reboot|shutdown|pkill|killall)\b"
)
"""Programs that may stop this process and wait for its exit."""


class TurnPhase:
    """What a turn is doing."""

    __slots__ = ("calling_model", "overseers", "parked", "running_tools", "since")

    def __init__(self) -> None:
        self.calling_model = self.parked = False
        self.running_tools = self.overseers = 0
        self.since = time.monotonic()

    def is_safe(self) -> bool:
        """True if an exit would interrupt nothing: before a model call, or while waiting for a person."""
        if self.overseers:
            return True  # it waits for our exit, so do not wait for it
        idle = not self.calling_model and not self.running_tools
        return self.parked or (idle and time.monotonic() - self.since > QUIET_S)


class TurnDrain:
    """Tracks turns with hooks. After `start`, each turn pauses before its next model call, from where
    the next process resumes it."""

    def __init__(self) -> None:
        self._turns: dict[str, TurnPhase] = {}
        self._leaving = False
        self._forever = asyncio.Event()

    def register(self, hooks: Hooks) -> None:
        hooks.add(CORE, self.request_sent, patient=True)
        hooks.add(CORE, self.request_answered)
        hooks.add(CORE, self.request_failed)
        hooks.add(CORE, self.around_tool, patient=True)
        hooks.add(CORE, self.turn_ended)

    async def request_sent(self, turn: Turn) -> None:
        phase = self._touch_phase(turn)
        if self._leaving:
            phase.parked = True
            await self._forever.wait()
        phase.calling_model = True

    async def request_answered(self, turn: Turn) -> None:
        self._touch_phase(turn).calling_model = False

    async def request_failed(self, turn: Turn) -> None:
        self._touch_phase(turn).calling_model = False

    async def around_tool(
        self,
        go: Callable[[Mapping[str, Json]], Awaitable[str | ToolOutput]],
        args: Mapping[str, Json],
        call: ToolCall,
        turn: Turn,
    ) -> str | ToolOutput:
        # delegate_task waits for subagents, which are tracked themselves
        phase, oversees = self._touch_phase(turn), call.name == DELEGATE or may_stop_this_process(call)
        phase.running_tools += 1
        phase.overseers += oversees
        try:
            return await go(args)
        finally:
            phase.running_tools -= 1
            phase.overseers -= oversees
            phase.since = time.monotonic()

    async def turn_ended(self, turn: Turn) -> None:
        self._turns.pop(turn.id, None)

    def start(self) -> None:
        self._leaving = True

    async def wait_until_safe(self) -> None:
        """Wait until an exit would interrupt no turn."""
        while self.unsafe_turns:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    @property
    def unsafe_turns(self) -> int:
        """The number of turns that an exit would interrupt."""
        return sum(not phase.is_safe() for phase in self._turns.values())

    def _touch_phase(self, turn: Turn) -> TurnPhase:
        phase = self._turns.setdefault(turn.id, TurnPhase())
        phase.since = time.monotonic()
        return phase


def may_stop_this_process(call: ToolCall) -> bool:
    """True for a command that may wait until this process has exited."""
    command = call.args.get("command")
    if not isinstance(command, str):
        return False
    return bool(_SERVICE_COMMANDS.search(command)) or re.search(rf"\b{os.getpid()}\b", command) is not None


class MessageHeld(AlipesError):
    """The process is exiting: the sender must deliver this message again."""


class DrainGate:
    """Wraps a platform and holds its messages once `leaving` is set: unconfirmed, so they are sent again. While the
    cluster is full they wait in the same way, and no further ones are fetched.

    Commands and buttons still pass, because running turns may need them. `pushed`: the sender waits
    for a response, so `MessageHeld` is raised at once.
    """

    def __init__(
        self,
        platform: Platform,
        leaving: asyncio.Event,
        *,
        pushed: bool = False,
        is_full: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._platform, self._leaving, self._pushed, self._is_full = platform, leaving, pushed, is_full

    def __getattr__(self, name: str) -> Any:
        return getattr(self._platform, name)

    async def listen(self, take: OnMessage, tell: OnStatus) -> None:
        async def taking(arrival: IncomingMessage) -> None:
            if not arrival.pressed and not arrival.text.startswith("/"):
                await self._hold_while_full()
                if self._leaving.is_set():
                    if self._pushed:
                        raise MessageHeld("shutting down")
                    await asyncio.Event().wait()
            await take(arrival)

        await self._platform.listen(taking, tell)

    async def _hold_while_full(self) -> None:
        while self._is_full is not None and not self._leaving.is_set() and await self._is_full():
            if self._pushed:
                raise MessageHeld("all workers are busy")
            await asyncio.sleep(FULL_PAUSE_S)
