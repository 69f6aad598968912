"""What connections to MCP servers use of the app, and how requests of servers are answered."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from alipes.features.mcp.settings import McpServerConfig
from alipes.kernel.messages import Json, Message
from alipes.kernel.turns import Turn
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.sandbox.backend import CommandBackend
from alipes.runtime.sandbox.policy import short_hash

AuthFor: TypeAlias = Callable[[str, McpServerConfig], Any]
"""The `httpx2.Auth` of a server by its name and settings, or None if it needs none."""


class SamplingRequest(Struct, frozen=True):
    """A question of a server to a model."""

    system: str
    messages: tuple[Message, ...]
    max_tokens: int


class SamplingReply(Struct, frozen=True):
    text: str
    model: str


class Elicitation(Struct, frozen=True):
    """A question of a server to the person: a form, or an address to open."""

    message: str
    fields: Mapping[str, dict[str, Json]] = {}
    """By name, the JSON schema of each field of the form."""
    required: tuple[str, ...] = ()
    url: str = ""


class ElicitationAnswer(Struct, frozen=True):
    action: str
    """`accept`, `decline` or `cancel`."""
    content: dict[str, str | int | float | bool | list[str] | None] | None = None


class ServerRequests(Protocol):
    """Answers what servers ask of us while a call runs."""

    async def sample(self, server: str, turn: Turn, request: SamplingRequest) -> SamplingReply:
        """The answer of a model. Raises `ToolError` kinds and `ProviderError` kinds if it is refused or fails."""

    async def elicit(self, server: str, turn: Turn, question: Elicitation) -> ElicitationAnswer:
        """The answer of the person."""


class ServerNetwork(Protocol):
    """The network of sandboxed servers."""

    def set_turn(self, session: str, turn: Turn | None) -> None:
        """The turn whose person is asked about connections from now on."""

    async def close(self, session: str) -> None: ...


class McpHost(Struct, frozen=True):
    """What connections use of the app. `App.mcp.host` is ready to use."""

    backend: CommandBackend
    """Runs the commands of servers."""
    clients: ClientScope
    environment: Mapping[str, str]
    """Variables of started servers, without secrets."""
    logs: Path
    """Folder of the logs: `NAME.log` has what the server wrote to its standard error."""
    auth_for: AuthFor | None = None
    requests: ServerRequests | None = None
    network: ServerNetwork | None = None
    mask: Callable[[str], str] = str
    """Removes known secrets from what servers say: definitions, questions, errors and logs."""


def expand_home(path: str) -> str:
    return os.path.expanduser(path)


def server_folder(config: McpServerConfig, workdir: str) -> str:
    """The directory in which the program of a server runs."""
    return os.path.abspath(os.path.expanduser(config.cwd) if config.cwd else workdir or os.getcwd())


def sandbox_session(name: str, folder: str) -> str:
    """Names the network of a started server."""
    return f"mcp:{name}:{short_hash(folder)}"
