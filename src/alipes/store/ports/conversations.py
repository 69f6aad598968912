"""Conversations of a session key, and what is stored for each: todos, choices, prompt sections."""

from collections.abc import Iterable
from typing import Literal, Protocol

from alipes.kernel.conversations import (
    ActiveSession,
    PendingTurn,
    RetriedTurn,
    SessionSwitch,
    SteeredMessage,
    StoppedQueue,
    UndoneTurn,
)
from alipes.kernel.turns import Address, BusyMode, Effort, PermissionMode, Turn


class SessionStore(Protocol):
    """The conversations of a key: which one is active, and what of it the model sees.

    Nothing is deleted: undone and left turns stay in the archive. Every method is one transaction. Raises
    `SessionError` with a message for the person if something cannot be done.
    """

    async def active(self, key: str) -> ActiveSession | None:
        """The active conversation of `key`, or None."""

    async def open(self, address: Address) -> ActiveSession:
        """The active conversation, created if needed."""

    async def configure(
        self,
        session: str,
        *,
        title: str | None = None,
        model: str | None = None,
        busy: BusyMode | Literal[""] | None = None,
        permission_mode: PermissionMode | Literal[""] | None = None,
        effort: Effort | None = None,
    ) -> None:
        """Set what is not None; an empty value restores the default (for the title: the first words)."""

    async def permission_mode(self, session: str) -> PermissionMode | Literal[""]:
        """The mode that was chosen for the conversation; empty if none was."""

    async def unfinished(self, key: str) -> tuple[PendingTurn, ...]:
        """The running turn of `key`, then the queued ones, then the held ones, each in order."""

    async def hold(self, key: str, turn: str = "") -> StoppedQueue:
        """A person stops the running turn, or `turn`: hold the messages queued behind it. The caller sends
        `Stop` to the turn that is returned."""

    async def release_held(self, key: str) -> tuple[PendingTurn, ...]:
        """Queue the held messages again, in order; the caller wakes the session."""

    async def drop_queued(self, key: str, turn: str = "") -> tuple[PendingTurn, ...]:
        """End the queued and held messages, or only `turn`, as `stopped` with the detail `dropped`."""

    async def take_back(self, key: str) -> PendingTurn | None:
        """Remove the newest queued or held message of a person; None if all have started or were steered in."""

    async def take_steered(self, turn: Turn) -> tuple[SteeredMessage, ...]:
        """Move the messages queued for steering into `turn`, oldest first: each is recorded there and its own
        turn ends as `steered`. Raises `Fenced` like `record`."""

    async def reset(self, key: str) -> SessionSwitch | None:
        """Start a new conversation under `key`; None if there is nothing to leave.

        Queued turns are ended. A turn that is still running is named in `SessionSwitch.running_turn`: send
        `Reset` to the session that runs it.
        """

    async def switch(self, address: Address, session: str) -> SessionSwitch:
        """Switch to another conversation; it is no longer active where it was before."""

    async def branch(self, key: str, title: str = "") -> SessionSwitch:
        """Switch to a branch that shares all finished turns without copying messages."""

    async def undo(self, key: str, count: int = 1, *, all_or_none: bool = False) -> tuple[UndoneTurn, ...]:
        """Hide the last started turns from the model, latest first, with the notices after them.

        `all_or_none`: raise `SessionError` if there are fewer than `count`, unless there is none.
        """

    async def count_turns_since(self, key: str, turn: str) -> int:
        """How many turns `undo` undoes if this one is the last of them; 0 if it is not part of the conversation."""

    async def redo(self, key: str) -> tuple[str, ...]:
        """Bring back the turns of the last undo; their messages, oldest first. None if one was started since."""

    async def last_ending(self, key: str) -> str:
        """How the last visible turn ended; empty if there is none or it has not ended."""

    async def retry(self, key: str) -> RetriedTurn | None:
        """Hide the last turn and accept its message again, with those that were steered into it."""

    async def set_title_if_empty(self, session: str, title: str) -> bool:
        """False if the session has a title already, or does not exist."""


class TodoStore(Protocol):
    async def read(self, session: str) -> str:
        """The list as it was written, for a branch without one that of its parent; empty if there is none."""

    async def write(self, session: str, items: str) -> None:
        """Replace the list."""


class ToolChoiceStore(Protocol):
    """The tools and groups that a person switched off in a conversation."""

    async def read(self, session: str) -> tuple[str, ...]: ...

    async def write(self, session: str, off: Iterable[str]) -> None:
        """Replace them."""


class SkillChoiceStore(Protocol):
    """The skills that a person switched off in a conversation."""

    async def read(self, session: str) -> tuple[str, ...]: ...

    async def write(self, session: str, off: Iterable[str]) -> None:
        """Replace them."""


class PromptSectionStore(Protocol):
    """Sections of the system prompt of a conversation, which keep their first text."""

    async def read(self, session: str, section: str) -> str | None: ...

    async def keep(self, session: str, section: str, text: str) -> str:
        """Store the text unless there is one already; returns the stored one."""

    async def forget(self, session: str, section: str) -> None:
        """The next turn makes it again."""
