"""What the sessions of a process share: defaults, activity, and the objects they use."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from alipes.agent.loop import Agent
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import BusyMode, Effort, Event, PermissionMode, Turn
from alipes.plugins.dispatch import Hooks
from alipes.sessions.questions import Questions
from alipes.sessions.subagents.registry import BackgroundWork, SubagentRegistry
from alipes.store.sql.store import Store

OpenAgent: TypeAlias = Callable[[Turn], Awaitable[Agent]]
"""Makes the agent of a turn; called at its start, so a turn keeps what it started with."""
OutboundFor: TypeAlias = Callable[[Turn, Event], tuple[Outbound, ...]]
"""The chat messages to send for an event of a turn; stored together with it."""

ShareFiles: TypeAlias = Callable[[tuple[Outbound, ...]], Awaitable[tuple[Outbound, ...]]]


async def _share_nothing(outbounds: tuple[Outbound, ...]) -> tuple[Outbound, ...]:
    return outbounds


def _no_messages(_turn: Turn, _event: Event) -> tuple[Outbound, ...]:
    return ()


class SessionDefaults(Struct, frozen=True):
    """How sessions behave unless something else was chosen."""

    busy: BusyMode = "queue"
    """What a message does while a turn runs."""
    interactive: bool = False
    """People watch who can answer questions."""
    runs_on: bool = False
    """The process keeps running after a turn, so turns may start work in the background."""
    permission_mode: PermissionMode = "ask"
    """What conversations may do without asking."""
    effort: Effort = ""
    """The reasoning effort."""
    idle_seconds: float = 300.0
    """How long an idle session stays in memory."""
    max_silence: float = 0.0
    """Seconds without an event after which a turn is stopped; zero: never."""
    max_subagent_seconds: float = 0.0
    """How long a subagent may run; zero: no limit."""
    waits_for_limits: bool = False
    """Turns may wait for the limit of a provider."""
    background: BackgroundWork | None = None
    """Processes that sessions run between their turns."""
    workdir: str = ""
    """Interrupted turns of this folder are resumed at the start; empty: those of all folders."""
    outbound: OutboundFor = _no_messages
    share: ShareFiles = _share_nothing
    """Makes the files of chat messages available to other workers."""
    mask: Callable[[str], str] = str
    """Removes known secrets from text that is stored."""


class SessionActivity:
    """Which sessions of this process have work, and after which turn the process leaves them."""

    def __init__(self, on_idle: Callable[[], None] = lambda: None) -> None:
        """`on_idle` is called whenever a session becomes idle."""
        self._on_idle = on_idle
        self.busy: set[str] = set()
        self.changed = asyncio.Event()
        """Set whenever a session becomes idle."""
        self.parked = asyncio.Event()
        """Set whenever a turn of this process begins to wait for a limit."""
        self.final_turns: dict[str, str] = {}
        """By session, the last turn to run here: the process exits, and others run the next one."""

    def mark_idle(self, key: str) -> None:
        self.busy.discard(key)
        self.changed.set()
        self._on_idle()

    def is_final(self, key: str, turn: str) -> bool:
        return bool(turn) and self.final_turns.get(key) == turn

    async def wait_idle(self, key: str = "") -> None:
        """Return once the session, or every session, is idle."""
        while key in self.busy if key else self.busy:
            self.changed.clear()
            await self.changed.wait()


class SessionServices(Struct, frozen=True):
    store: Store
    hooks: Hooks
    agent: OpenAgent
    questions: Questions
    subagents: SubagentRegistry
    activity: SessionActivity
    defaults: SessionDefaults
