"""What the house needs from its wings. Each port has one contract suite in `tests/contract`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.conversations import Absorbed, Admitted, Left, Retried, Standing, Undone, Waiting
from alipes.kernel.messages import Image, Json, Message, ToolResult
from alipes.kernel.outbox import Outbound
from alipes.kernel.turns import (
    Address,
    Busy,
    Delta,
    Ending,
    Envelope,
    Event,
    Inbound,
    Op,
    Recorded,
    Turn,
)

Emit: TypeAlias = Callable[[Event], Awaitable[None]]
Proceed: TypeAlias = Callable[[], Awaitable[None]]
"""Asked before every act; a turn that was stopped does not come back from it."""
Effort: TypeAlias = Literal["", "low", "medium", "high"]


class ToolSpec(Struct, frozen=True, dict=True):
    name: str
    description: str
    schema: dict[str, Json]
    effect: Literal["read", "write"] = "write"
    """`read` tools run side by side and are run again after a crash; `write` tools neither."""

    @cached_property
    def letters(self) -> int:
        """How much of a model's window it takes."""
        return len(self.name) + len(self.description) + len(str(self.schema))


class Request(Struct, frozen=True):
    """One question to a model, free of any wire's shape."""

    model: str
    """The model's own name at its provider, without the provider's."""
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    effort: Effort = ""
    """Empty: the model's own default."""
    session: str = ""
    """A stable name of the conversation, for providers that route their prompt cache by it."""
    extra: dict[str, Json] = {}
    """Merged over the JSON body, by plugins that know who is asked; the operator's own words go over it."""
    tool_choice: Literal["auto", "none"] = "auto"
    """`none`: the tools are shown, because the transcript uses them, and no call of one is wanted."""


class Provider(Protocol):
    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        """Ask once. Raise `ProviderError` kinds only; retrying is not yours to do.

        A context manager, because a half-read stream must be closed by the turn
        that opened it and not by the garbage collector. Leaving it early closes
        its connection at once; reading it to the end keeps the connection for the next.
        """
        ...


class Act(Protocol):
    """What a tool is told about the call it serves."""

    @property
    def call_id(self) -> str: ...

    @property
    def session(self) -> str: ...

    @property
    def workdir(self) -> str: ...

    async def progress(self, text: str) -> None:
        """Show `text` to whoever watches; it does not reach the model."""
        ...

    async def use(self, name: str, args: Mapping[str, Json]) -> ToolResult:
        """Have another tool do something on behalf of this call, past the same gates and the same eyes."""
        ...


class Output(Struct, frozen=True):
    """What a tool gives when text alone does not say it."""

    text: str
    images: tuple[Image, ...] = ()


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, args: Mapping[str, Json], act: Act) -> str | Output:
        """Do it. Raise `ToolError` with a sentence for the model; when cancelled, leave nothing running."""
        ...


Opening: TypeAlias = Callable[[Turn], tuple[Message, ...]]
"""What a turn says as it begins. May be asked more than once, on any thread."""


class TurnStore(Protocol):
    """Where promises are rows. Every method returns after its rows are on disk, but for rows that nobody
    acts on before the next is there, which get there with that one: a claim, the message that a turn begins
    with, an answer that makes calls (before any of them is run) or is owed to a chat (before it is sent), the
    end of a turn that was answered, and giving up a session. For `admit` see there."""

    async def accept(self, inbound: Inbound) -> str | None:
        """Id of the new turn that waits for its session, or None if this inbound was accepted before."""
        ...

    def admit(
        self, inbound: Inbound, *, busy: Busy | None = None, usual: Busy = "queue"
    ) -> Awaitable[Admitted | None]:
        """Take it in, and say what lay ahead; None if that was done before. `busy` is what was asked for with
        the message; else the session's own mode counts, else the `usual` one.

        Asked for by the call itself: who looks for a turn from then on finds it, so that it may begin at
        once. But whoever brought it may forget it only when the database has `kept` it.
        """
        ...

    async def next_turn(self, key: str, opening: Opening = lambda _turn: ()) -> Turn | None:
        """Claim the oldest unfinished turn of the session `key`; None when nothing waits.

        Each claim raises the epoch and counts an attempt. What `opening` gives for the turn is said in the
        same transaction, and is `fresh` in it. Raises `Held` while another living process holds the session.
        """
        ...

    async def record(self, turn: Turn, event: Recorded, *owed: Outbound) -> None:
        """Keep what the turn did and, in the same transaction, what is owed to a chat for it.

        Raises `Fenced` when a later claim exists.
        """
        ...

    async def finish(
        self, turn: Turn, ending: Ending, detail: str, *closing: Message, owed: tuple[Outbound, ...] = ()
    ) -> None:
        """Write the ending and, in the same transaction, the messages that close the transcript, and
        what is owed to a chat."""
        ...

    async def release(self, key: str) -> None:
        """Give up holding the session, so that another process may."""
        ...

    async def put_control(self, key: str, op: Op) -> None:
        """Leave `op` for whoever holds, or next holds, the session."""
        ...

    async def drain_control(self, key: str) -> tuple[Op, ...]:
        """Take what was left, oldest first; each is given out once."""
        ...

    async def orphans(self, begun: int = 0) -> tuple[str, ...]:
        """Keys of sessions with unfinished turns that no living process holds, oldest first; only those with
        one that was `begun` so often, or more."""
        ...

    async def holder(self, key: str) -> str | None:
        """The living process that holds the session, or None."""
        ...


class SessionStore(Protocol):
    """The conversations of a key: which one goes on there, and what of it is told to the model.

    Nothing here forgets: what is undone or left stays in the archive. Every method is one transaction.
    Raises `SessionError` with a sentence for the person where something cannot be done.
    """

    async def standing(self, key: str) -> Standing | None:
        """The conversation that goes on under `key`, or None where none was begun."""
        ...

    async def open(self, address: Address) -> Standing:
        """The same, begun if need be."""
        ...

    async def configure(
        self,
        session: str,
        *,
        title: str | None = None,
        model: str | None = None,
        busy: Busy | Literal[""] | None = None,
    ) -> None:
        """Set what is not None; an empty value brings back the house's own, as title the first words."""
        ...

    async def unfinished(self, key: str) -> tuple[Waiting, ...]:
        """What lives or waits under `key`, in the order it is lived."""
        ...

    async def absorb(self, turn: Turn) -> tuple[Absorbed, ...]:
        """Move the messages that wait to be steered into `turn`, oldest first: each is said there, and its
        own turn ends as `steered`. Raises `Fenced` like `record`."""
        ...

    async def reset(self, key: str) -> Left | None:
        """Leave the conversation for a new one; None where there is none to leave.

        Leaving ends the turns that wait. One that is lived by a living process is told in `Left.living`:
        whoever lives it has to be sent `Reset`.
        """
        ...

    async def switch(self, address: Address, session: str) -> Left:
        """Leave the conversation for another; that one no longer goes on where it did before."""
        ...

    async def branch(self, key: str, title: str = "") -> Left:
        """Leave it for one that shares all that was finished in it, without copying a message."""
        ...

    async def undo(self, key: str, count: int = 1) -> tuple[Undone, ...]:
        """Hide the last turns that were begun from the model, the latest first."""
        ...

    async def retry(self, key: str) -> Retried | None:
        """Hide the last turn and accept its message anew, with those that were steered into it."""
        ...


class Grants(Protocol):
    """What was allowed for good: exact rules, each compared as a whole."""

    async def allow(self, rule: str) -> None: ...

    async def allowed(self, rule: str) -> bool: ...

    async def rules(self) -> tuple[str, ...]:
        """The oldest first."""
        ...

    async def withdraw(self, rule: str) -> bool:
        """False when it was never allowed."""
        ...


class Dispatcher(Protocol):
    """Brings a session's work to the process that holds it."""

    async def wake(self, key: str) -> None:
        """Something waits for `key`: whoever holds it, or we if nobody does, is told."""
        ...

    async def signal(self, key: str, op: Op) -> None:
        """Hand `op` to the session's holder, wherever it lives; durable before it is sent."""
        ...

    async def run(self, on_op: Callable[[str, Op], None]) -> None:
        """Serve until cancelled: call `on_op(key, op)` for each wake (`Take`) and signal meant for us."""
        ...


class Bus(Protocol):
    """Events between processes of one home: fast and lossy. Who missed some re-reads the journal."""

    def publish(self, envelope: Envelope) -> None:
        """Hand it to every subscriber of its key; never waits, drops for a reader that does not keep up."""
        ...

    def heard(self, key: str) -> bool:
        """Does anybody listen under `key`, here or in another process?"""
        ...

    def subscribe(self, key: str) -> AbstractAsyncContextManager[AsyncIterator[Envelope]]:
        """What is published under `key` from now on, by us or by the process that holds it.

        The iterator ends when the publishing process goes away; ask the store then.
        """
        ...
