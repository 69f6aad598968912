"""What happens: the turn that answers what arrived, what it tells, and what is asked of it. Pure values."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.inbound import Address, Inbound, Offered, Origin, Telling
from alipes.kernel.messages import Json, Message, ToolCall, ToolResult

Ending: TypeAlias = Literal["answered", "stopped", "out_of_steps", "failed", "steered"]
"""`steered`: the message was taken in by the turn that lived at the time; the detail is that turn's id."""
Busy: TypeAlias = Literal["interrupt", "queue", "steer"]
"""What a message does that finds a turn at work: ends it, waits for it, or is taken in by it."""
Consent: TypeAlias = Literal["once", "session", "always", "no"]
StopCause: TypeAlias = Literal["end", "calls", "length", "refused"]


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens of one model call; `cached` and `cache_write` are part of `input`, `reasoning` of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None
    """In US dollars; None when the price is unknown, which is not zero."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


class Digest(Struct, frozen=True, omit_defaults=True):
    """What a model is told in place of the beginning of a conversation, all of which stays as it was said."""

    upto: int = 0
    """It stands for so many messages, from the first on; zero: for none."""
    text: str = ""
    trimmed: int = 0
    """In so many messages, from the first on, what tools gave is shown shortened."""
    widest: int = 0
    """Letters that a single result or text may have, anywhere; zero: as many as it has."""


class Turn(Struct, frozen=True):
    """One inbound and everything we do about it."""

    id: str
    session: str
    """Id of the conversation it belongs to; `/new` starts another under the same key."""
    inbound: Inbound
    began: float = 0.0
    """When the session began (seconds since the epoch)."""
    model: str = ""
    """The model chosen for the session; empty means the house's."""
    history: tuple[Message, ...] = ()
    """What the session had said before this turn."""
    said: tuple[Message, ...] = ()
    """What this turn had already said; empty unless it is being resumed, but for what is `fresh`."""
    fresh: tuple[Message, ...] = ()
    """The end of `said`: said with the claim, and told to nobody yet."""
    acts: dict[str, ToolResult | None] = {}
    """By call id: what finished calls gave; None for a call that was begun and never finished."""
    epoch: int = 0
    """The claim under which we may write; a later claim fences this one."""
    attempt: int = 1
    alone: bool = False
    """When it was claimed nothing else waited in its session: neither a message nor an op."""
    digest: Digest = Digest()
    """What stands for the beginning of `history` and `said`, taken together."""
    counted: tuple[int, int] = (0, 0)
    """Tokens of the last model call, in and out, and how many messages of both it was about; or zeros,
    where none was counted since the digest was made."""

    @property
    def key(self) -> str:
        return self.inbound.address.key


class TextDelta(Struct, frozen=True, tag="text_delta"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta"):
    text: str


class Replied(Struct, frozen=True):
    """The end of a model's stream: the whole message, what it cost, and why it ended."""

    message: Message
    usage: Usage = Usage()
    stop: StopCause = "end"


class TurnStarted(Struct, frozen=True, tag="turn_started", omit_defaults=True):
    turn: str
    session: str
    attempt: int = 1
    text: str = ""


class Said(Struct, frozen=True, tag="said", omit_defaults=True):
    """A message joined the transcript. The transcript is these, in order, and nothing else."""

    message: Message
    model: str = ""
    usage: Usage | None = None


class ToolStarted(Struct, frozen=True, tag="tool_started"):
    call: ToolCall


class ToolProgress(Struct, frozen=True, tag="tool_progress"):
    call_id: str
    text: str


class ToolFinished(Struct, frozen=True, tag="tool_finished", omit_defaults=True):
    call: ToolCall
    result: ToolResult
    seconds: float = 0.0


class Retracted(Struct, frozen=True, tag="retracted"):
    """The text shown since the last `Said` was part of an answer that failed; another follows."""

    reason: str


class Noted(Struct, frozen=True, tag="noted"):
    """A word of the house to the person: waiting, another model, a step limit."""

    text: str


class ApprovalAsked(Struct, frozen=True, tag="approval_asked"):
    """A call waits for someone's word. `Answer` gives it; the turn lives on meanwhile, and can be stopped."""

    ask: str
    call: ToolCall
    reason: str
    rule: str
    """Exactly what `session` and `always` would allow, and nothing beyond."""


class ApprovalAnswered(Struct, frozen=True, tag="approval_answered", omit_defaults=True):
    ask: str
    choice: Consent
    by: str = ""
    """Who said so; `stop` when the turn was stopped instead, `nobody` when the question reached none."""


class Asked(Struct, frozen=True, tag="asked", omit_defaults=True):
    """The turn waits for a person's answer to a question of the model's. `Reply` gives it."""

    ask: str
    question: str
    choices: tuple[str, ...] = ()
    """What is proposed; other words are an answer, too."""
    until: float = 0.0
    """When it is given up (seconds since the epoch)."""

    def meant(self, words: str) -> str:
        """The answer that is given in these words; for a number alone, the choice that has it."""
        words, number = words.strip(), words.strip().rstrip(".)")
        chosen = number.isdecimal() and len(number) < 3 and 0 < int(number) <= len(self.choices)
        return self.choices[int(number) - 1] if chosen else words


class Heard(Struct, frozen=True, tag="heard", omit_defaults=True):
    """What was answered; empty where nobody did in time, or the turn was stopped instead."""

    ask: str
    text: str = ""
    by: str = ""


class SessionChanged(Struct, frozen=True, tag="session_changed"):
    """Another conversation goes on under this key now. It belongs to no turn."""

    old: str
    new: str
    """Empty when the conversation went on elsewhere: the next message begins a new one."""
    why: str


class TurnEnded(Struct, frozen=True, tag="turn_ended", omit_defaults=True):
    turn: str
    ending: Ending
    detail: str = ""
    usage: Usage | None = None
    """The sum over the turn's model calls."""


Delta: TypeAlias = TextDelta | ThinkingDelta | Replied
"""What a provider may say; a stream is any number of deltas and exactly one `Replied`, last."""

Event: TypeAlias = (
    TurnStarted
    | TextDelta
    | ThinkingDelta
    | Said
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | Retracted
    | Noted
    | ApprovalAsked
    | ApprovalAnswered
    | Asked
    | Heard
    | SessionChanged
    | TurnEnded
)
"""What a turn may say, to every front end alike."""

Recorded: TypeAlias = Said | ToolStarted | ToolFinished
"""The events that are rows: kept before they are shown."""


class Envelope(Struct, frozen=True):
    """An event on the bus: whose it is, and which turn told it; no turn where it concerns the session."""

    key: str
    turn: str
    event: Event


class Take(Struct, frozen=True, tag="take"):
    """Something waits in the store for this session: live it, in order."""


class Stop(Struct, frozen=True, tag="stop", omit_defaults=True):
    """End the living turn, keep the session. The only way to interrupt a turn."""

    reason: str = "user_stop"
    invalidation_reason: str = "session_interrupt"
    turn: str = ""
    """Stop only this turn; empty means whichever lives."""


class Steer(Struct, frozen=True, tag="steer"):
    """A message waits to be taken in by the living turn at its next step."""

    turn: str
    """The waiting message's own turn: if it is not taken in, it runs next."""


class Answer(Struct, frozen=True, tag="answer", omit_defaults=True):
    """Someone's word on an `ApprovalAsked`; the first counts."""

    ask: str
    choice: Consent
    by: str = ""
    unasked: str = ""
    """Why the question reached nobody; then this is nobody's word, and counts as a no."""


class Reply(Struct, frozen=True, tag="reply", omit_defaults=True):
    """Someone's answer to an `Asked`; the first counts."""

    ask: str
    text: str
    by: str = ""
    unasked: str = ""
    """Why the question reached nobody; then there is no text."""


class Reset(Struct, frozen=True, tag="reset", omit_defaults=True):
    """The conversation was left for another: end what still lives of it."""

    reason: str = "reset"
    invalidation_reason: str = "new_command"
    session: str = ""
    """The one that was left."""
    successor: str = ""
    """The one it was left for."""


Op: TypeAlias = Take | Stop | Steer | Answer | Reply | Reset
"""What a front end may ask of a session. Pure data: it travels between processes."""

__all__ = [
    "Address",
    "Answer",
    "ApprovalAnswered",
    "ApprovalAsked",
    "Asked",
    "Busy",
    "Consent",
    "Delta",
    "Digest",
    "Ending",
    "Envelope",
    "Event",
    "Heard",
    "Inbound",
    "Json",
    "Noted",
    "Offered",
    "Op",
    "Origin",
    "Recorded",
    "Replied",
    "Reply",
    "Reset",
    "Retracted",
    "Said",
    "SessionChanged",
    "Steer",
    "Stop",
    "StopCause",
    "Take",
    "Telling",
    "TextDelta",
    "ThinkingDelta",
    "ToolFinished",
    "ToolProgress",
    "ToolStarted",
    "Turn",
    "TurnEnded",
    "TurnStarted",
    "Usage",
]
