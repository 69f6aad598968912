"""The input and result of a command. A front end creates the first and carries out the second."""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

from alipes.agent.compaction.compaction import Compactor
from alipes.agent.search.conversations import ConversationSearch
from alipes.config.keys import KeysConfig
from alipes.features.checkpoints.checkpoints import Checkpoints
from alipes.features.learning.learning import Learning
from alipes.features.memory.service import MemoryService
from alipes.features.skills.skills import Skills
from alipes.kernel.turns import BusyMode, Effort, Inbound
from alipes.plugins.dispatch import Hooks
from alipes.plugins.loader import Plugins
from alipes.plugins.registry import Contributions
from alipes.providers.registry import ModelChoice, Models
from alipes.sessions.sessions import Sessions
from alipes.sessions.tool_access import ToolAccess
from alipes.sessions.user_shell import UserShell
from alipes.store.ports.store import Store
from alipes.tools.shell.background import BackgroundProcesses

if TYPE_CHECKING:
    from alipes.features.schedules.schedules import Schedules


class Quit(Struct, frozen=True):
    """The person quits."""


class CopyText(Struct, frozen=True):
    """Copy the text to the person's clipboard."""

    text: str


class ShowConversation(Struct, frozen=True):
    """Another conversation is active now: show its last messages."""

    session: str


class SendFile(Struct, frozen=True):
    """Send a file to a person who is not on this machine."""

    name: str
    text: str


class PutText(Struct, frozen=True):
    """Put the text into the person's input, to be edited and sent again."""

    text: str


class RunSetup(Struct, frozen=True):
    """Run the setup wizard in the person's terminal."""


class FollowJob(Struct, frozen=True):
    """Show the output of a background process as it comes; without a name, stop showing it."""

    session: str
    name: str


Action: TypeAlias = Quit | CopyText | ShowConversation | SendFile | PutText | RunSetup | FollowJob


class CommandReply(Struct, frozen=True):
    """What to show, and what else the front end has to do."""

    text: str = ""
    """Plain lines; may be empty."""
    failed: bool = False
    """It was not done; the text says why."""
    turns: tuple[str, ...] = ()
    """Turns accepted by the command, in order; `Sessions.follow` shows each."""
    action: Action | None = None
    diff: bool = False
    """The text is a unified diff."""


def parse_count(text: str, most: int) -> int | None:
    """A whole number from 1 to `most`; None for anything else."""
    short = text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if short and 1 <= int(text) <= most else None


class McpStatus(Protocol):
    """One server, as `/mcp` shows it."""

    @property
    def name(self) -> str: ...

    @property
    def where(self) -> str: ...

    @property
    def line(self) -> str: ...

    @property
    def pending(self) -> tuple[str, ...]: ...


class McpControl(Protocol):
    """The MCP servers, as `/mcp` uses them."""

    def statuses(self) -> Sequence[McpStatus]: ...

    async def reload(self, name: str) -> McpStatus:
        """Connect again. Raises `AlipesError` kinds."""

    def describe_pending(self, name: str) -> tuple[str, ...]: ...

    def accept(self, name: str) -> tuple[str, ...]:
        """Accept changed tools. Raises `ConfigError`."""


class CommandContext(Struct, frozen=True):
    inbound: Inbound
    """The command as received. Its id makes a second copy harmless."""
    sessions: Sessions
    store: Store
    models: Models
    choice: Callable[[], Awaitable[ModelChoice]]
    """The default model and where it comes from."""
    background: Callable[[str], str] = lambda _session: ""
    """What a session has running in the background, in a few words."""
    processes: BackgroundProcesses | None = None
    """The background processes of all sessions."""
    contributions: Contributions | None = None
    """What plugins contribute, including commands."""
    hooks: Hooks | None = None
    plugins: Plugins | None = None
    deadline: float = 60.0
    """Seconds within which a plugin's command must finish."""
    local_files: bool = True
    """The person is on this machine, so files can be written for them."""
    queue_hint: str = "/queue send to send them, /queue drop to discard"
    """How a person sends or discards held messages here."""
    default_busy: BusyMode | None = None
    """The busy mode of the place, if nothing was chosen; None: the default."""
    clock: Callable[[], float] = time.time
    keys: KeysConfig = KeysConfig()
    """The keys of the terminal."""
    compactor: Compactor | None = None
    """Compacts long conversations."""
    shell: UserShell | None = None
    """Runs commands of the person."""
    checkpoints: Checkpoints | None = None
    """Snapshots of projects."""
    on_submit: Callable[[str], None] = lambda _text: None
    """Called before a message is sent that the person did not type like this."""
    tools: ToolAccess | None = None
    """Knows which tools are on."""
    default_effort: Effort = ""
    """The reasoning effort, if nothing was chosen."""
    mcp: McpControl | None = None
    """The MCP servers; None if none is configured."""
    schedules: "Callable[[], Schedules] | None" = None
    """Scheduled jobs."""
    search: ConversationSearch | None = None
    """Searches conversations, also by meaning; without it, the archive does by words."""
    memory: MemoryService | None = None
    """Notes of earlier conversations."""
    learning: Learning | None = None
    """Proposals for notes and skills."""
    skills: Skills | None = None

    @property
    def key(self) -> str:
        return self.inbound.address.key
