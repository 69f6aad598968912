"""Incoming messages, the turns they become, the events that turns emit, and the ops that front ends send.

Pure values.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Image, Json, Message, Text, ToolCall, ToolResult

Ending: TypeAlias = Literal["answered", "stopped", "out_of_steps", "failed", "steered", "gave_up"]
"""`steered`: the message was steered into the running turn; the detail is that turn's id. `gave_up`: the answer does
not match the schema that was asked for."""
BusyMode: TypeAlias = Literal["interrupt", "queue", "steer"]
Effort: TypeAlias = Literal["", "off", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORT_LEVELS: tuple[Effort, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
"""From none to most."""
"""What a new message does to a running turn: stop it, wait for it, or be steered into it."""
PermissionMode: TypeAlias = Literal["ask", "edits", "plan", "all"]
"""`ask`: risky calls are asked about; `edits`: so too, but not file edits in the project; `plan`: only tools that
read; `all`: nothing is asked, except for what nothing allows."""
ApprovalChoice: TypeAlias = Literal["once", "session", "always", "no"]
StopReason: TypeAlias = Literal["end", "calls", "length", "refused"]
NoticeMode: TypeAlias = Literal["", "answered", "kept"]
"""For a message from alipes itself: `answered` if the model replies to it, `kept` if it is only recorded."""


ASKED = "ask-"
"""Start of the names of conversations that `alipes ask` begins."""
SCHEDULED = "schedule"
"""The platform of the conversations of scheduled jobs; it has no chat and no screen."""
SCHEDULED_PREFIX = f"agent:main:{SCHEDULED}:"
"""The start of their session keys."""


class Address(Struct, frozen=True, omit_defaults=True):
    """Where a conversation takes place. Its `key` is the session key."""

    platform: str
    chat: str
    chat_type: str = "dm"
    thread: str = ""
    user: str = ""

    @property
    def key(self) -> str:
        """`agent:main:<platform>:<chat_type>:<chat>[:<thread>][:<user>]`; colons in names are escaped."""
        names = (self.platform, self.chat_type, self.chat, self.thread, self.user)
        return "agent:main:" + ":".join(n.replace("%", "%25").replace(":", "%3A") for n in names if n)


class ClientTool(Struct, frozen=True, omit_defaults=True):
    """A tool that the client runs itself: a call of it ends the turn and is returned to the client."""

    name: str
    description: str = ""
    schema: dict[str, Json] = {}


class Origin(Struct, frozen=True, omit_defaults=True):
    """The conversation that a subagent or background turn works for."""

    address: Address
    session: str = ""
    turn: str = ""
    """The turn there that started it."""
    goal: str = ""
    """The task, in short."""
    reports: NoticeMode = ""
    """Not empty: it runs in the background, and its result is reported to that conversation."""
    model: str = ""
    """The model chosen for the original message alone; with `only`, it also applies to the report."""
    only: tuple[str, ...] | None = None


class Inbound(Struct, frozen=True, omit_defaults=True):
    """One message from a person, as received from the platform."""

    id: str
    """The platform's own id; a second copy is ignored."""
    address: Address
    sender: str
    text: str
    attachments: tuple[Image, ...] = ()
    model: str = ""
    """The model for this message alone; empty: the session's."""
    workdir: str = ""
    """Working directory of tools; stored with the message, so a resumed turn uses the same one."""
    trusted: bool = False
    """The sender approved everything in advance (`--yes`): mode `all` for this message."""
    permission_mode: PermissionMode | Literal[""] = ""
    """The mode that its conversation has from now on; empty: as before."""
    reply_to: str = ""
    """The platform's id of the message, if the answer should be a reply to it."""
    instructions: str = ""
    """Added to the system prompt for this message alone."""
    offered: tuple[ClientTool, ...] = ()
    """Tools of the client. An answer that calls one ends the turn: the client runs the calls."""
    only: tuple[str, ...] | None = None
    """The built-in tools that may be used, by name; None: all that the platform allows."""
    answer_to: Address | None = None
    """A chat that receives the answer, if the message did not come from a chat."""
    parent: str = ""
    """The turn it works for; empty: a person's message."""
    depth: int = 0
    """How many turns are above it."""
    origin: Origin | None = None
    """The conversation it works for, if that is another one."""
    notice: NoticeMode = ""
    """Not empty: alipes wrote it, not a person; the value says how it is handled."""
    attended: bool = False
    """Of no use once the client has disconnected: the front end stops it then."""
    budget: str = ""
    """What its turn may spend, such as `$0.50`; empty: no limit of its own."""
    untrusted: str = ""
    """Whose text it is, if not an owner's own, such as "mail from x@y": standing approvals do not hold then."""
    owner: bool = False
    """An owner of this home sent it, so it may use the owner's notes."""
    skills: tuple[str, ...] = ()
    """The skills whose text it contains: their use is counted."""
    via: str = ""
    """Not empty: an owner wrote it on another surface, such as `page`, into this conversation."""
    output_schema: dict[str, Json] = {}
    """The JSON schema that the answer must match; empty: any text."""

    @property
    def message(self) -> Message:
        """The message as it appears in the transcript."""
        words = (Text(self.text),) if self.text or not self.attachments else ()
        return Message("notice" if self.notice else "user", (*words, *self.attachments))


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens of one model call; `cached` and `cache_write` are part of `input`, `reasoning` of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float | None = None
    """In US dollars; None if the price is unknown, which is not zero."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


class CompactionState(Struct, frozen=True, omit_defaults=True):
    """How the start of a conversation is shortened for the model. The recorded messages do not change."""

    covered: int = 0
    """The summary replaces this many messages from the start; zero: none."""
    text: str = ""
    trimmed_until: int = 0
    """Tool results in this many messages from the start are shown shortened."""
    max_chars: int = 0
    """Limit for any single result or text, in characters; zero: no limit."""


class Turn(Struct, frozen=True):
    """One inbound message and all work on it."""

    id: str
    session: str
    """Id of its conversation; `/new` starts another under the same key."""
    inbound: Inbound
    session_started: float = 0.0
    """When the session was created (seconds since the epoch)."""
    model: str = ""
    """The model chosen for the session; empty: the default."""
    effort: Effort = ""
    """The effort chosen for the session; empty: the default."""
    tools_off: tuple[str, ...] = ()
    """The tools and groups that a person switched off in the session."""
    claimed_mode: PermissionMode | Literal[""] | None = None
    """The permission mode of the session at the claim, empty if none was chosen; None: it was not read."""
    prompt_sections: dict[str, str] = {}
    """Parts of the system prompt that stay the same for the whole session, as far as they were made."""
    history: tuple[Message, ...] = ()
    """The messages of the session before this turn."""
    said: tuple[Message, ...] = ()
    """The messages of this turn so far; empty unless it is resumed, except for those in `unpublished`."""
    unpublished: tuple[Message, ...] = ()
    """The end of `said`: recorded with the claim and not published yet."""
    tool_results: dict[str, ToolResult | None] = {}
    """By call id: results of finished calls; None for a call that started and never finished."""
    epoch: int = 0
    """The claim under which we may write; a later claim fences this one."""
    attempt: int = 1
    queue_empty: bool = False
    """Nothing else was queued in the session when it was claimed: neither a message nor an op."""
    compaction: CompactionState = CompactionState()
    """How `history` and `said` together are shortened for the model."""
    measured_tokens: tuple[int, int] = (0, 0)
    """Tokens of the last model call (input and output), and the number of messages it covered; zeros if there
    was no call since the last compaction."""

    @property
    def key(self) -> str:
        return self.inbound.address.key


class TextDelta(Struct, frozen=True, tag="text_delta"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta"):
    text: str


class ToolCallBegun(Struct, frozen=True):
    """The model begins to write a call; its arguments follow, and it may never be complete."""

    name: str


class ModelReply(Struct, frozen=True):
    """The end of a model's stream: the whole message, its usage, and why it ended."""

    message: Message
    usage: Usage = Usage()
    stop: StopReason = "end"


class TurnStarted(Struct, frozen=True, tag="turn_started", omit_defaults=True):
    turn: str
    session: str
    attempt: int = 1
    text: str = ""
    calls: int = 0
    """For a resumed turn: the tool calls that earlier attempts asked for."""
    calls_done: int = 0
    """How many of them have a result."""


class Said(Struct, frozen=True, tag="said", omit_defaults=True):
    """A message was added to the transcript. The transcript is these events, in order."""

    message: Message
    model: str = ""
    usage: Usage | None = None
    partial: bool = False
    """The turn ended before the model had said all of it."""


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
    """The text shown since the last `Said` belongs to an answer that failed; another one follows."""

    reason: str


class Notice(Struct, frozen=True, tag="noted", omit_defaults=True):
    """A message from alipes to the person: a retry, a model change, a step limit."""

    text: str
    live: bool = False
    """It says what happens now, and the next event of the turn replaces it: a retry."""


class TurnParked(Struct, frozen=True, tag="turn_parked", omit_defaults=True):
    """The turn waits until the limit of its model's provider resets. It starts again by itself, with `TurnStarted`;
    meanwhile nothing of it runs, and it can be stopped."""

    turn: str
    until: float
    """Seconds since the epoch."""
    text: str
    """For the person: why, until when, and how to end the wait."""


class ApprovalAsked(Struct, frozen=True, tag="approval_asked"):
    """A call needs approval. `AnswerApproval` gives it; meanwhile the turn can be stopped."""

    ask: str
    call: ToolCall
    reason: str
    """All reasons, separated by semicolons."""
    rule: str
    """Exactly what `session` and `always` would allow."""
    workdir: str = ""
    """The folder in which the call runs; empty if that does not matter."""
    diff: str = ""
    """What a write would change, as a unified diff; empty if there is none to show."""
    pattern: str = ""
    """A pattern of commands that could be allowed instead, to be edited; empty if none can cover the call."""
    files: str = ""
    """The files that the command reads, and their content; `session` and `always` hold for this content only."""
    once: str = ""
    """Why only `once` and `no` can be answered, as a clause; empty if every answer can."""


class ApprovalAnswered(Struct, frozen=True, tag="approval_answered", omit_defaults=True):
    ask: str
    choice: ApprovalChoice
    by: str = ""
    """Who decided; `stop` if the turn was stopped, `nobody` if the question was not delivered."""
    pattern: str = ""
    """The pattern of commands that is allowed; empty: exactly this call."""
    note: str = ""
    """Why not, in the person's words."""


class QuestionAsked(Struct, frozen=True, tag="asked", omit_defaults=True):
    """The turn waits for a person's answer to the model's question. `AnswerQuestion` gives it."""

    ask: str
    question: str
    choices: tuple[str, ...] = ()
    """Suggestions; any other text is valid too."""
    until: float = 0.0
    """When it expires (seconds since the epoch)."""

    def interpret(self, words: str) -> str:
        """The answer meant by `words`; a number selects the choice with that number."""
        words, number = words.strip(), words.strip().rstrip(".)")
        chosen = number.isdecimal() and len(number) < 3 and 0 < int(number) <= len(self.choices)
        return self.choices[int(number) - 1] if chosen else words


class QuestionAnswered(Struct, frozen=True, tag="heard", omit_defaults=True):
    """The answer; empty if there was none in time or the turn was stopped."""

    ask: str
    text: str = ""
    by: str = ""


class SessionChanged(Struct, frozen=True, tag="session_changed"):
    """Another conversation is now active under this key. The event belongs to no turn."""

    old: str
    new: str
    """Empty if the conversation moved to another key: the next message starts a new one."""
    why: str


class QueuedMessage(Struct, frozen=True, omit_defaults=True):
    turn: str
    text: str
    """Its start, if it is long."""
    held: bool = False
    """Kept back by a stop until it is sent or dropped."""


class QueueChanged(Struct, frozen=True, tag="queue_changed"):
    """Messages were held, released, dropped or taken back. The event belongs to no turn."""

    messages: tuple[QueuedMessage, ...] = ()
    """All that have not started, in the order in which they would run; held ones last."""


class ModeChanged(Struct, frozen=True, tag="mode_changed"):
    """The conversation has another permission mode. The event belongs to no turn."""

    mode: PermissionMode


HOME_KEY = "agent:home"
"""Instead of a session key: the events under it concern the whole home."""


class HomeChanged(Struct, frozen=True, tag="home_changed", omit_defaults=True):
    """Something that people see has changed; ids only. Published under `HOME_KEY`, and only if somebody watches."""

    kind: str
    """`session`, `run`, `inbox`, `schedule` and so on."""
    id: str = ""
    session: str = ""
    status: str = ""


class TurnEnded(Struct, frozen=True, tag="turn_ended", omit_defaults=True):
    turn: str
    ending: Ending
    detail: str = ""
    usage: Usage | None = None
    """The total of the turn's model calls."""


Delta: TypeAlias = TextDelta | ThinkingDelta | ToolCallBegun | ModelReply
"""What a provider may emit; a stream is any number of deltas and one final `ModelReply`."""

Event: TypeAlias = (
    TurnStarted
    | TextDelta
    | ThinkingDelta
    | Said
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | Retracted
    | Notice
    | TurnParked
    | ApprovalAsked
    | ApprovalAnswered
    | QuestionAsked
    | QuestionAnswered
    | SessionChanged
    | QueueChanged
    | ModeChanged
    | HomeChanged
    | TurnEnded
)
"""What a turn may emit, for every front end."""

JournalEvent: TypeAlias = Said | ToolStarted | ToolFinished
"""The events that are journal rows: stored before they are shown."""


class Envelope(Struct, frozen=True):
    """An event on the bus with its session key and turn; no turn if it concerns the session."""

    key: str
    turn: str
    event: Event


class Wake(Struct, frozen=True, tag="take"):
    """Turns are queued in the store for this session: run them in order."""


class Stop(Struct, frozen=True, tag="stop", omit_defaults=True):
    """Stop the running turn, keep the session. The only way to interrupt a turn."""

    reason: str = "user_stop"
    invalidation_reason: str = "session_interrupt"
    turn: str = ""
    """Stop only this turn; empty: the running one."""


class Steer(Struct, frozen=True, tag="steer"):
    """A message is queued to be steered into the running turn at its next step."""

    turn: str
    """The queued message's own turn: if it is not steered, it runs next."""


class AnswerApproval(Struct, frozen=True, tag="answer", omit_defaults=True):
    """A person's decision on an `ApprovalAsked`; the first one counts."""

    ask: str
    choice: ApprovalChoice
    by: str = ""
    unasked: str = ""
    """Why the question could not be delivered; the decision then counts as "no"."""
    pattern: str = ""
    """With `always`: the pattern of commands that is allowed in this folder, instead of exactly this call."""
    note: str = ""
    """With `no`: the reason, for the model."""


class AnswerQuestion(Struct, frozen=True, tag="reply", omit_defaults=True):
    """A person's answer to a `QuestionAsked`; the first one counts."""

    ask: str
    text: str
    by: str = ""
    unasked: str = ""
    """Why the question could not be delivered; there is no text then."""


class Reset(Struct, frozen=True, tag="reset", omit_defaults=True):
    """The conversation was replaced by another: stop its running turn."""

    reason: str = "reset"
    invalidation_reason: str = "new_command"
    session: str = ""
    """The old conversation."""
    successor: str = ""
    """The new conversation."""


Op: TypeAlias = Wake | Stop | Steer | AnswerApproval | AnswerQuestion | Reset
"""What a front end may ask of a session. Pure data that travels between processes."""
