"""What API clients look up and send: runs, sessions, responses, histories, and pages of messages."""

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.errors import AlipesError
from alipes.kernel.messages import Message, ToolResult
from alipes.kernel.turns import Address, Ending, Inbound, Usage
from alipes.store.ports.search import SessionOwner

API_PLATFORM = "api"


class StoredResponse(Struct, frozen=True):
    """A stored response of the API."""

    id: str
    turn: str
    session: str
    caller: str
    request: str
    """JSON of the parts of the request that the response repeats."""


class ResponseStore(Protocol):
    async def find(self, id: str) -> StoredResponse | None: ...

    async def add_history_hash(self, turn: str, hash: bytes) -> None:
        """The history with this hash ends with this turn."""

    async def delete(self, response: StoredResponse) -> None:
        """Delete it, and its conversation once all responses in it are deleted and no branch uses it."""

    async def delete_temporary(self) -> None:
        """Delete the temporary conversations that are finished."""


SessionStatus: TypeAlias = Literal["idle", "running", "waiting", "queued", "held"]


class RunQuery(Struct, frozen=True):
    """Which runs to list; empty values select all."""

    limit: int
    session: str = ""
    """The id of a conversation."""
    state: str = ""
    """`queued`, `held`, `running` or an ending."""
    before: str = ""
    """Only those before this run."""


class ApiSession(Struct, frozen=True):
    id: str
    address: Address
    is_current: bool
    """It is the active conversation of its address."""
    title: str
    """The title that was set; else the first words of the first message."""
    model: str
    busy: str
    permission_mode: str
    effort: str
    workdir: str
    status: SessionStatus
    created: float
    updated: float
    parent: str
    turns: int
    unfinished: int
    messages: int
    preview: str
    """The start of its last message."""
    person: str
    """The name of the person or job that it is with, if that is known."""

    @property
    def cursor(self) -> str:
        """Its place in the list of sessions."""
        return f"{self.updated!r}:{self.id}"


class SessionQuery(Struct, frozen=True):
    """Which sessions to list; empty values select all."""

    limit: int
    words: str = ""
    before: float = 0.0
    cursor: str = ""
    """`cursor` of the last one of the page before."""
    platform: str = ""


class ApiRunStore(Protocol):
    """Runs and sessions of the API; `owner=None` means all owners."""

    async def find_by_prefix(self, platform: str, prefix: str) -> tuple[str, str] | None:
        """The turn whose message id starts with `prefix`, and that id."""

    async def count_unfinished(self, platform: str) -> dict[str, int]:
        """By user, the turns that are running or queued."""

    async def list_runs(self, owner: SessionOwner | None, query: "RunQuery") -> list[str]:
        """Ids of the newest turns first."""

    async def unfinished(self, platform: str) -> list[tuple[str, Inbound]]: ...

    async def sessions(self, owner: SessionOwner | None, query: SessionQuery) -> list[ApiSession]:
        """Latest first; `words`: all of them in the title or the first message. Raises `SessionError` for a wrong
        cursor."""

    async def session(self, id: str) -> ApiSession | None: ...

    async def find_current(self, address: Address) -> ApiSession | None:
        """The active session at `address`."""

    async def fork(self, session: str, address: Address, title: str = "", until: int = 0) -> str:
        """Create a branch of `session` at `address` that shares its finished turns, or those up to the turn number
        `until`; returns its id.

        Raises `SessionError` if no turn has finished yet.
        """


class HistoryMismatch(AlipesError):
    """The message does not fit the turn that it is to continue; `code` is for programs."""

    def __init__(self, why: str, code: str) -> None:
        super().__init__(why)
        self.code = code


class Continuation(Struct, frozen=True):
    """A message of an API client, and what it continues."""

    inbound: Inbound
    """Its address is used if a new conversation is created."""
    history: tuple[Message, ...] = ()
    """The messages before it, as the client has them; every call in them is answered."""
    history_hash: bytes = b""
    """Of `history`; empty if it cannot end with an answer of ours."""
    after: str = ""
    """The turn that it continues, if the client names one instead of sending the history."""
    conversation: str = ""
    """The id of the conversation that it continues, instead of a turn."""
    results: tuple[ToolResult, ...] = ()
    """Results of the client's own tools that the previous turn called."""
    response: tuple[str, str] | None = None
    """The id under which the response is stored, and the JSON of its request."""
    temporary: bool = False
    """Delete the conversation once it is answered."""


class AdmittedContinuation(Struct, frozen=True):
    turn: str
    session: str
    address: Address


class ApiHistoryStore(Protocol):
    async def admit_continuation(self, request: Continuation) -> AdmittedContinuation:
        """Queue the message; wake its session afterwards. Raises `HistoryMismatch`."""


class PageQuery(Struct, frozen=True):
    """Which messages: the newest ones, or those before, after or around a number."""

    limit: int
    before: int = 0
    after: int = 0
    around: int = 0


class TranscriptMessage(Struct, frozen=True):
    number: int
    turn: str
    message: Message
    model: str
    created: float
    usage: Usage | None
    place: int = 0
    """Its place among the messages of its turn, from 1."""


class TranscriptTurn(Struct, frozen=True):
    """The turn that a message belongs to."""

    id: str
    inbound: Inbound
    ending: Ending | None
    detail: str
    attempts: int
    created: float
    ended: float | None
    held: bool
    usage: Usage | None
    steered: tuple[Inbound, ...] = ()
    """The messages that were steered into it, in order."""


class TranscriptPage(Struct, frozen=True):
    messages: tuple[TranscriptMessage, ...]
    turns: dict[str, TranscriptTurn]
    """By id."""
    calls: TranscriptMessage | None
    """The message before a page that starts with results: it has their calls."""
    total: int
    more_before: bool
    more_after: bool


class TranscriptStore(Protocol):
    async def page(self, session: str, query: PageQuery) -> TranscriptPage:
        """The messages in order. A number that is not in the conversation is a position in it like any other."""

    async def message(self, session: str, number: int) -> Message:
        """One message. Raises `SessionError` if the conversation does not have it, or it was undone."""

    async def last_inbound(self, session: str) -> Inbound | None:
        """The last message of the conversation that its own place sent; None if there is none."""

    async def turn_of(self, session: str, number: int) -> int:
        """The number of the turn of a message. Raises `SessionError`."""
