"""Settings of MCP servers."""

import re
from typing import Annotated, Literal

from msgspec import Struct

from alipes.config.value_types import HEADERS, NAMES, PATHS, TEXTS, URL, VARIABLES, seconds

Approve = Literal["ask", "writes", "never"]
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}"


class McpServerConfig(Struct, frozen=True):
    """One server: a command that is started, or a URL."""

    command: Annotated[
        str, "Program of a server that is started here and speaks over its standard input and output."
    ] = ""
    args: Annotated[tuple[str, ...], TEXTS, "Arguments of the program."] = ()
    env: Annotated[
        dict[str, str],
        VARIABLES,
        "Variables of the program. `${NAME}` is replaced by a variable, so that secrets stay in .env.",
    ] = {}
    cwd: Annotated[str, "Directory in which the program runs. Empty: the working directory of the conversation."] = ""
    url: Annotated[str, URL, "URL of a server that is reached over HTTP."] = ""
    headers: Annotated[dict[str, str], HEADERS, "Sent with every request. `${NAME}` is replaced by a variable."] = {}
    enabled: Annotated[bool, "Whether the server is used."] = True
    tools: Annotated[tuple[str, ...], NAMES, "Tools of the server that are offered. Empty: all."] = ()
    approve: Annotated[
        Approve,
        "Which calls you are asked about: `ask` all, `writes` those that the server does not declare as read-only, "
        "`never` none; choose that only for a server whose author you trust.",
    ] = "writes"
    timeout: Annotated[float, seconds(1, 86_400), "Seconds that one call may take."] = 120.0
    start_timeout: Annotated[float, seconds(1, 600), "Seconds within which the server must be connected."] = 30.0
    write: Annotated[tuple[str, ...], PATHS, "Paths that a started server may change, besides the project."] = ()
    source: str = "config.toml"
    """Where it was configured: a file, such as `.mcp.json` of the project."""
    problem: str = ""
    """Why it is off although it is enabled, as the end of a sentence: a variable that it needs is not set."""

    @property
    def is_on(self) -> bool:
        return self.enabled and not self.problem


def find_server_problem(name: str, config: McpServerConfig) -> str:
    """What is wrong with a server, as the end of a sentence; empty if nothing is."""
    if not re.fullmatch(_NAME, name) or "__" in name:
        return "has an invalid name: use at most 32 letters, digits, - and single _."
    if bool(config.command) == bool(config.url):
        return "needs either a command or a url: give one of them."
    return ""


class McpConfig(Struct, frozen=True):
    """`[mcp]`: the servers, and what is common to them."""

    wait: Annotated[
        float,
        seconds(0, 600),
        "Seconds that a turn waits for the tools of a server that was never connected before. Later turns use the "
        "stored list.",
    ] = 5.0
    servers: dict[str, McpServerConfig] = {}
    """By name, such as `[mcp.servers.time]`."""
    in_conversations: bool = False
    """Conversations may bring servers of their own, such as those of an editor."""
