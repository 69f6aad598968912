"""The input and result of a command. A front end creates the first and carries out the second."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from alipes.agent.auxiliary import AuxiliaryModels
from alipes.agent.compaction.compaction import Compactor
from alipes.agent.loop import Agent
from alipes.agent.search.conversations import ConversationSearch
from alipes.config.keys import KeysConfig
from alipes.kernel.turns import BusyMode, Inbound, Turn
from alipes.plugins.features import OpenFeatures
from alipes.plugins.loader import Plugins
from alipes.plugins.registry import Contributions
from alipes.providers.registry import Models
from alipes.sessions.sessions import Sessions
from alipes.sessions.tool_access import ToolAccess
from alipes.sessions.user_shell import UserShell
from alipes.store.sql.store import Store
from alipes.tools.shell.background import BackgroundProcesses


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


class CommandServices(Struct, frozen=True):
    """What an app gives its commands."""

    sessions: Sessions
    store: Store
    models: Models
    plugins: Plugins
    features: OpenFeatures
    tools: ToolAccess
    """Knows which tools are on."""
    processes: BackgroundProcesses
    """The background processes of all sessions."""
    compactor: Compactor
    shell: UserShell
    """Runs commands of the person."""
    search: ConversationSearch
    """Searches conversations, also by meaning."""
    open_agent: Callable[[Turn], Awaitable[Agent]]
    """The agent that would run the turn."""
    auxiliary: AuxiliaryModels


class CommandContext(Struct, frozen=True):
    """A command as received, what the front end gives it, and the services of the app."""

    inbound: Inbound
    """Its id makes a second copy harmless."""
    services: CommandServices
    local_files: bool = True
    """The person is on this machine, so files can be written for them."""
    keys: KeysConfig = KeysConfig()
    """The keys of the terminal."""
    queue_hint: str = "/queue send to send them, /queue drop to discard"
    """How a person sends or discards held messages here."""
    default_busy: BusyMode | None = None
    """The busy mode of the place, if nothing was chosen; None: the default."""
    on_submit: Callable[[str], None] = lambda _text: None
    """Called before a message is sent that the person did not type like this."""
    deadline: float = 60.0
    """Seconds within which a plugin's command must finish."""
    clock: Callable[[], float] = time.time

    @property
    def key(self) -> str:
        return self.inbound.address.key

    @property
    def sessions(self) -> Sessions:
        return self.services.sessions

    @property
    def store(self) -> Store:
        return self.services.store

    @property
    def features(self) -> OpenFeatures:
        """Where a command of a feature finds it."""
        return self.services.features

    @property
    def contributions(self) -> Contributions:
        """What plugins contribute, including commands."""
        return self.services.plugins.contributions
