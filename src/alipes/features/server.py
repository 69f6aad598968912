"""What a process that serves has beside its app. Features add endpoints, routes and background work to it."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from msgspec import Struct, field

from alipes.gateway.gateway import Gateway
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.kernel.turns import Address
from alipes.web.admission import TurnAdmission
from alipes.web.auth import Authenticator
from alipes.web.control import ServerControl
from alipes.web.endpoint import ServerState
from alipes.web.files import ApiFiles
from alipes.web.runs.events import LiveRuns

ResolveTarget: TypeAlias = Callable[[str], Awaitable[Address]]
Work: TypeAlias = Coroutine[Any, Any, None]
ListNotes: TypeAlias = Callable[[], Awaitable[Iterable[str]]]


class Server(Struct, frozen=True, kw_only=True):
    """The parts of the server, before it listens."""

    workdir: str
    gateway: Gateway
    outbound: OutboundPolicy
    runs: LiveRuns
    admission: TurnAdmission
    control: ServerControl
    state: ServerState
    keys: Authenticator
    files: ApiFiles
    resolve_target: ResolveTarget
    """The address for an answer; raises `MessageRejected`."""
    background: list[Work] = field(default_factory=list)
    notes: list[ListNotes] = field(default_factory=list)

    def add_background(self, work: Work) -> None:
        """Run it while the process serves."""
        self.background.append(work)

    def add_notes(self, list_notes: ListNotes) -> None:
        """Show these sentences at the start."""
        self.notes.append(list_notes)
