"""The ports between packages. Each has a contract suite in `tests/contract`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.conversations import (
    ActiveSession,
    AdmittedTurn,
    PendingTurn,
    RetriedTurn,
    SessionSwitch,
    SteeredMessage,
    UndoneTurn,
)
from alipes.kernel.messages import Image, Json, Message, ToolResult
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import Address, BusyMode, Delta, Ending, Envelope, Event, Inbound, JournalEvent, Op, Turn

Emit: TypeAlias = Callable[[Event], Awaitable[None]]
CheckStop: TypeAlias = Callable[[], Awaitable[None]]
"""Awaited before every action; does not return if the turn was stopped."""
Effort: TypeAlias = Literal["", "low", "medium", "high"]


class ToolSpec(Struct, frozen=True, dict=True):
    name: str
    description: str
    schema: dict[str, Json]
    effect: Literal["read", "write"] = "write"
    """`read` tools run in parallel and are repeated after a crash; `write` tools are not."""

    @cached_property
    def char_count(self) -> int:
        """How much of the context window the tool takes."""
        return len(self.name) + len(self.description) + len(str(self.schema))


class Request(Struct, frozen=True):
    """One model request, independent of any wire format."""

    model: str
    """The model's name at its provider, without the provider prefix."""
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    effort: Effort = ""
    """Empty: the model's default."""
    session: str = ""
    """A stable id of the conversation, for providers that route their prompt cache by it."""
    extra: dict[str, Json] = {}
    """Merged into the JSON body, by plugins that know the provider; the operator's settings take precedence.
    """
    tool_choice: Literal["auto", "none"] = "auto"
    """`none`: the tools are listed because the transcript uses them, but none may be called."""

    @property
    def fixed_chars(self) -> int:
        """Characters of the system prompt and tools, which compaction cannot reduce."""
        return len(self.system) + sum(spec.char_count for spec in self.tools)


class Provider(Protocol):
    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Send the request once. Raise `ProviderError` kinds only; do not retry.

        A context manager, because a half-read stream must be closed by the turn that opened it, not by the
        garbage collector. Leaving it early closes its connection at once; reading it to the end keeps the
        connection for the next request.
        """
        ...


class ToolContext(Protocol):
    """What a running tool knows about its call."""

    @property
    def call_id(self) -> str: ...

    @property
    def session(self) -> str: ...

    @property
    def workdir(self) -> str: ...

    async def progress(self, text: str) -> None:
        """Show `text` to people who watch; the model does not see it."""
        ...

    async def run_tool(self, name: str, args: Mapping[str, Json]) -> ToolResult:
        """Run another tool on behalf of this call, with the same approvals and events."""
        ...


class ToolOutput(Struct, frozen=True):
    """A tool result with images."""

    text: str
    images: tuple[Image, ...] = ()


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        """Run it. Raise `ToolError` with a message for the model; when cancelled, leave nothing running."""
        ...


OpeningMessages: TypeAlias = Callable[[Turn], tuple[Message, ...]]
"""The messages a turn starts with. May be called more than once, on any thread."""


class TurnStore(Protocol):
    """Stores turns. Every method returns after its rows are on disk, except for rows that nothing depends on
    before the next write, which reach the disk with it: a claim, the first message of a turn, an answer that
    makes calls (before any of them runs) or is sent to a chat (before it is sent), the end of an answered
    turn, and the release of a session. For `admit` see there."""

    async def accept(self, inbound: Inbound) -> str | None:
        """The id of the new queued turn, or None if this inbound was accepted before."""
        ...

    def admit(
        self, inbound: Inbound, *, busy: BusyMode | None = None, usual: BusyMode = "queue"
    ) -> Awaitable[AdmittedTurn | None]:
        """Queue the message and return what is ahead of it; None if it was accepted before. `busy` was chosen
        for the message; otherwise the session's own mode applies, else `usual`.

        The turn is visible to other reads as soon as the call is made, so it may start at once. The sender
        may forget the message only after the database has synced it.
        """
        ...

    async def claim_next(self, key: str, opening: OpeningMessages = lambda _turn: ()) -> Turn | None:
        """Claim the oldest unfinished turn of the session `key`; None if there is none.

        Each claim raises the epoch and counts an attempt. The messages of `opening` are recorded in the same
        transaction and are `unpublished` in the turn. Raises `SessionHeld` while another live process holds
        the session.
        """
        ...

    async def record(self, turn: Turn, event: JournalEvent, *owed: Outbound) -> None:
        """Record what the turn did and, in the same transaction, the messages to send for it.

        Raises `Fenced` if a later claim exists.
        """
        ...

    async def finish(
        self, turn: Turn, ending: Ending, detail: str, *closing: Message, owed: tuple[Outbound, ...] = ()
    ) -> None:
        """Write the ending and, in the same transaction, the messages that close the transcript and the
        messages to send."""
        ...

    async def release(self, key: str) -> None:
        """Release the session so that another process can claim it."""
        ...

    async def put_op(self, key: str, op: Op) -> None:
        """Store `op` for the current or next holder of the session."""
        ...

    async def take_ops(self, key: str) -> tuple[Op, ...]:
        """Take the stored ops, oldest first; each is returned once."""
        ...

    async def list_orphans(self, begun: int = 0) -> tuple[str, ...]:
        """Keys of sessions with unfinished turns that no live process holds, oldest first; only those with a
        turn that was claimed at least `begun` times."""
        ...

    async def holder(self, key: str) -> str | None:
        """The live process that holds the session, or None."""
        ...


class SessionStore(Protocol):
    """The conversations of a key: which one is active, and what of it the model sees.

    Nothing is deleted: undone and left turns stay in the archive. Every method is one transaction. Raises
    `SessionError` with a message for the person if something cannot be done.
    """

    async def active(self, key: str) -> ActiveSession | None:
        """The active conversation of `key`, or None."""
        ...

    async def open(self, address: Address) -> ActiveSession:
        """The active conversation, created if needed."""
        ...

    async def configure(
        self,
        session: str,
        *,
        title: str | None = None,
        model: str | None = None,
        busy: BusyMode | Literal[""] | None = None,
    ) -> None:
        """Set what is not None; an empty value restores the default (for the title: the first words)."""
        ...

    async def unfinished(self, key: str) -> tuple[PendingTurn, ...]:
        """The running and queued turns of `key`, in order."""
        ...

    async def take_steered(self, turn: Turn) -> tuple[SteeredMessage, ...]:
        """Move the messages queued for steering into `turn`, oldest first: each is recorded there and its own
        turn ends as `steered`. Raises `Fenced` like `record`."""
        ...

    async def reset(self, key: str) -> SessionSwitch | None:
        """Start a new conversation under `key`; None if there is nothing to leave.

        Queued turns are ended. A turn that is still running is named in `SessionSwitch.running_turn`: send
        `Reset` to the session that runs it.
        """
        ...

    async def switch(self, address: Address, session: str) -> SessionSwitch:
        """Switch to another conversation; it is no longer active where it was before."""
        ...

    async def branch(self, key: str, title: str = "") -> SessionSwitch:
        """Switch to a branch that shares all finished turns without copying messages."""
        ...

    async def undo(self, key: str, count: int = 1) -> tuple[UndoneTurn, ...]:
        """Hide the last started turns from the model, latest first."""
        ...

    async def retry(self, key: str) -> RetriedTurn | None:
        """Hide the last turn and accept its message again, with those that were steered into it."""
        ...


class Grants(Protocol):
    """Calls that were always allowed: exact rules, compared as a whole."""

    async def allow(self, rule: str) -> None: ...

    async def is_allowed(self, rule: str) -> bool: ...

    async def rules(self) -> tuple[str, ...]:
        """Oldest first."""
        ...

    async def revoke(self, rule: str) -> bool:
        """False if it was not allowed."""
        ...


class Dispatcher(Protocol):
    """Routes work to the process that holds the session."""

    async def wake(self, key: str) -> None:
        """Work is queued for `key`: notify its holder, or take it ourselves if there is none."""
        ...

    async def signal(self, key: str, op: Op) -> None:
        """Send `op` to the session's holder in any process; stored before it is sent."""
        ...

    async def run(self, on_op: Callable[[str, Op], None]) -> None:
        """Serve until cancelled: call `on_op(key, op)` for each wake-up (`Wake`) and signal meant for us."""
        ...


class Bus(Protocol):
    """Events between the processes of one home: fast and lossy. Readers that miss some read the journal."""

    def publish(self, envelope: Envelope) -> None:
        """Pass it to every subscriber of its key; never waits, and drops events of slow readers."""
        ...

    def has_subscribers(self, key: str) -> bool:
        """True if someone subscribes to `key`, here or in another process."""
        ...

    def subscribe(self, key: str) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """Events published under `key` from now on, by this process or by the session's holder.

        The iterator ends when the publishing process exits; read the store then.
        """
        ...
