"""Values about a conversation: its state, its pending turns, and the results of leaving, undoing and retrying."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Image, Message
from alipes.kernel.turns import Address, ApprovalChoice, BusyMode, Effort, PermissionMode


class QuestionUndelivered(Struct, frozen=True):
    """The question could not be delivered to the person."""

    why: str


class DeniedBecause(Struct, frozen=True):
    """The person said no, and why."""

    why: str


class QuestionWithdrawn(Struct, frozen=True):
    """What the question was about changed before anybody answered."""


ApprovalDecision: TypeAlias = ApprovalChoice | DeniedBecause | QuestionUndelivered | QuestionWithdrawn | None
"""None: nobody is available to ask."""


def denial_reason(word: ApprovalDecision) -> str:
    """Why the call was not allowed; empty if it was."""
    match word:
        case "once" | "session" | "always":
            return ""
        case "no":
            return "denied by the user"
        case DeniedBecause(why):
            return f"denied by the user, who said: “{why}”"
        case QuestionUndelivered(why):
            return f"the user could not be asked ({why})"
        case QuestionWithdrawn():
            return "the files that it reads keep changing while the user is asked"
        case _:
            return "nobody is available to approve it"


class ActiveSession(Struct, frozen=True):
    """The conversation that is active under a session key, with its settings."""

    session: str
    address: Address
    title: str
    """Set by the person; empty if there is none."""
    model: str
    """Empty: the default model."""
    busy: BusyMode | Literal[""]
    created: float
    parent: str
    """The session it was branched from, or empty."""
    permission_mode: PermissionMode | Literal[""] = ""
    effort: Effort = ""


class PendingTurn(Struct, frozen=True):
    """A turn that is running or queued."""

    id: str
    session: str
    text: str
    busy: BusyMode
    """The busy mode under which the message was accepted."""
    accepted_at: float
    started_at: float | None
    """When it was first claimed; None while it is queued."""
    held: bool = False
    """Queued, and kept back by a stop until it is sent or dropped."""
    resumes_at: float = 0.0
    """When a turn continues that waits for the limit of its provider; 0: it does not wait."""
    attachments: tuple[Image, ...] = ()
    """Filled in when the message is taken back."""


class AdmittedTurn(Struct, frozen=True):
    turn: str
    busy: BusyMode
    ahead: tuple[PendingTurn, ...]
    """Unfinished turns before it, in order, without held ones."""
    holder: str | None = None
    """In a cluster, the worker that holds the session now; admitting may have taken it for this one."""


class StoppedQueue(Struct, frozen=True):
    """The result of a person's stop."""

    turn: str = ""
    """The turn to stop: the running one, or the one that is about to start; empty if there is none."""
    held: tuple[PendingTurn, ...] = ()
    """All messages that are held now, in order."""


class SteeredMessage(Struct, frozen=True):
    turn: str
    """The message's own turn, which has ended."""
    message: Message


class SessionSwitch(Struct, frozen=True):
    """The result of switching a session key to another conversation."""

    old: str
    """Empty if there was none."""
    new: str
    dropped: tuple[str, ...] = ()
    """Queued turns that were ended."""
    running_turn: str = ""
    """The turn that is still at work, here or in another process; not one that only lacks its ending."""
    moved_from: str = ""
    """The key under which the new conversation was active before."""


class UndoneTurn(Struct, frozen=True):
    turn: str
    text: str
    running: bool = False
    """It had not ended: send `Stop` to the session that runs it."""


class RetriedTurn(Struct, frozen=True):
    undone: UndoneTurn
    turn: str
    """The new turn for the same message."""
    steered: tuple[str, ...] = ()
    """New turns for the messages that had been steered into it."""
