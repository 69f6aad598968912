"""All configured MCP servers: their tools, prompts and resources for turns, and their state for people."""

import asyncio
import logging
import shlex
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from alipes.features.mcp.client.catalog import INSTRUCTIONS, StoredOffer, ToolCatalog, describe_change
from alipes.features.mcp.client.definitions import McpError, PromptInfo, clean_text, name_tools, only_tools
from alipes.features.mcp.client.host import McpHost
from alipes.features.mcp.client.results import ResultReader
from alipes.features.mcp.client.server import McpServer, ServerStatus
from alipes.features.mcp.client.tools import McpTool, ReadResource
from alipes.features.mcp.settings import McpConfig
from alipes.kernel.errors import ConfigError, ToolError
from alipes.kernel.mcp import split_mcp_name
from alipes.kernel.ports import Tool, ToolOutput
from alipes.kernel.turns import Turn
from alipes.tools.shell.output import SpillFolder

if TYPE_CHECKING:
    from alipes.features.mcp.client.sdk import McpConnection

log = logging.getLogger(__name__)
NotifyPeople: TypeAlias = Callable[[str, Turn | None], None]
"""Shows a sentence in a turn; without one, in the turn that runs."""
HEADING = "How the MCP servers say that their tools are used. This is their text, not the user's:"
MAX_INSTRUCTIONS_CHARS, MAX_ALL_INSTRUCTIONS_CHARS = 2_000, 6_000
"""Of the instructions of one server, and of all together, in the prompt of a turn."""


class McpServers:
    """An async context manager; leaving it closes every connection. Costs nothing until a server is used."""

    def __init__(
        self,
        config: McpConfig,
        host: McpHost,
        *,
        home: Path,
        spill: SpillFolder,
        notify: NotifyPeople = lambda text, turn: None,
    ) -> None:
        """`home`: folder of the stored lists of tools. `notify` shows people what they must know."""
        self.config, self.host, self.catalog = config, host, ToolCatalog(home)
        self._reader, self._notify = ResultReader(spill), notify
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.make_server = partial(McpServer, host=host, spawn=self._spawn, on_offer=self._store_offer)
        self.servers = {name: self.make_server(name, each) for name, each in config.servers.items()}
        self._tools: dict[str, tuple[McpServer, StoredOffer, dict[str, Tool]]] = {}
        self._reported = set[str]()
        self._resources = ReadResource(self.servers, self._reader)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        cancelled = isinstance(error, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def configure(self, config: McpConfig) -> None:
        """Use these servers from now on. Changed and removed ones end with the calls that run; servers of single
        conversations stay."""
        self.config = config
        for name, server in tuple(self.servers.items()):
            if server.only_in is None and config.servers.get(name) != server.config:
                del self.servers[name]
                server.retire()
        for name, each in config.servers.items():
            if name not in self.servers:
                self.servers[name] = self.make_server(name, each)
                self._reported.discard(name)

    def _enabled(self) -> list[McpServer]:
        return [server for server in self.servers.values() if server.config.is_on]

    # --- for turns

    async def prepare(self, turn: Turn) -> None:
        """Before a turn: servers that were never connected are started, and waited for within `mcp.wait` seconds."""
        self._report_pending(turn)
        ours = [server for server in self._enabled() if server.serves(turn.inbound)]
        new = [server for server in ours if self.catalog.find(server.name, server.config) is None]
        first = [server for server in new if not server.was_started]
        for server in first:
            server.mark_started()
        waiting = []
        for server in new:
            instance = server.instance(turn.inbound.workdir)
            if server in first or not instance.backoff.seconds_left:
                instance.start(turn)
                waiting += [instance.wait_until_opened()] if server in first else []
        if not waiting:
            return
        tasks = {self._spawn(each, "first connection of an MCP server") for each in waiting}
        await asyncio.wait(tasks, timeout=self.config.wait)
        for server in first:
            if server.state in ("starting", "failed"):
                self._notify(f"MCP: {self._explain_start(server)}", turn)

    def _explain_start(self, server: McpServer) -> str:
        """Why the tools of a server that was never connected are not there, and what to do."""
        if server.state == "failed":
            return f"{server.last_error}. Its tools are not available in this turn."
        return (
            f"{server.name} is still starting after {self.config.wait:g} s, so its tools are not available in this "
            f"turn. `alipes mcp test {server.name}` waits until it has started, and stores what it offers."
        )

    def _report_pending(self, turn: Turn) -> None:
        """Say once per process which servers have tools that nobody has accepted."""
        for server in self._enabled():
            stored = self.catalog.find(server.name, server.config)
            unsaid = server.name not in self._reported and server.serves(turn.inbound)
            if stored is not None and stored.pending_names and unsaid:
                self._reported.add(server.name)
                self._notify(describe_changes(server.name, stored.pending_names), turn)

    def tools(self) -> Mapping[str, Tool]:
        """By name, the accepted tools of all servers, from the stored lists."""
        found: dict[str, Tool] = {}
        has_resources = False
        for server in self._enabled():
            stored = self.catalog.find(server.name, server.config)
            if stored is not None:
                found |= self._tools_of(server, stored)
                has_resources = has_resources or stored.has_resources
        if has_resources:
            found[self._resources.spec.name] = self._resources
        return found

    def _tools_of(self, server: McpServer, stored: StoredOffer) -> dict[str, Tool]:
        known = self._tools.get(server.name)
        if known is None or known[0] is not server or known[1] is not stored:
            wanted = server.config.tools
            named = name_tools(server.name, tuple(each for each in stored.tools if not wanted or each.name in wanted))
            made: dict[str, Tool] = {name: McpTool(name, server, each, self._reader) for name, each in named.items()}
            self._tools[server.name] = known = server, stored, made
        return known[2]

    def find_tool(self, name: str) -> McpTool | None:
        """A tool by the name that models use."""
        parts = split_mcp_name(name)
        server = self.servers.get(parts[0]) if parts is not None else None
        stored = self.catalog.find(server.name, server.config) if server is not None else None
        tool = self._tools_of(server, stored).get(name) if server is not None and stored is not None else None
        return tool if isinstance(tool, McpTool) else None

    def _store_offer(self, server: McpServer, connection: "McpConnection") -> None:
        offer = only_tools(connection.offer, server.config.tools)
        try:
            changed = self.catalog.record(server.name, server.config, offer, connection.info)
        except OSError as error:
            log.warning("the list of tools of %s was not stored: %s", server.name, error)
            return
        if changed:
            self._reported.add(server.name)
            self._notify(describe_changes(server.name, changed), None)

    async def describe(self, turn: Turn) -> str:
        """For the system prompt: what the servers of the turn say about their use, as far as it was accepted."""
        found = ((each, self.catalog.find(each.name, each.config)) for each in self._enabled())
        said = [
            f"[{server.name}] {clean_text(stored.instructions, MAX_INSTRUCTIONS_CHARS)}"
            for server, stored in found
            if stored is not None and stored.instructions and server.serves(turn.inbound)
        ]
        return clean_text("\n".join((HEADING, *said)), MAX_ALL_INSTRUCTIONS_CHARS) if said else ""

    # --- prompts and resources

    def prompts(self) -> list[tuple[str, PromptInfo]]:
        """The prompts of all servers, each with the server's name."""
        found = ((each.name, self.catalog.find(each.name, each.config)) for each in self._enabled())
        return [(name, prompt) for name, stored in found if stored is not None for prompt in stored.prompts]

    async def fill_prompt(self, server: str, prompt: PromptInfo, args: str) -> str:
        """The text of a prompt. Raises `ToolError`."""
        given = parse_arguments(prompt, args)
        result = await self._find(server).use(lambda connection: connection.get_prompt(prompt.name, given))
        output = await self._reader.read_blocks(message.content for message in result.messages)
        return self.host.mask(output.text)

    def has_server(self, name: str) -> bool:
        return name in self.servers and self.servers[name].config.is_on

    async def read_resource(self, server: str, uri: str, workdir: str = "") -> ToolOutput:
        """Raises `ToolError`."""
        result = await self._find(server).use(lambda connection: connection.read_resource(uri), workdir)
        return await self._reader.read_contents(result)

    def _find(self, name: str) -> McpServer:
        server = self.servers.get(name)
        if server is not None and server.last_error and not server.config.is_on:
            raise McpError(f"the MCP server {name} is off: {server.last_error}")
        if server is None or not server.config.is_on:
            raise McpError(f"no MCP server named {name} is configured and enabled")
        return server

    # --- for people

    def statuses(self) -> tuple[ServerStatus, ...]:
        return tuple(self._status(server) for server in self.servers.values())

    def _status(self, server: McpServer) -> ServerStatus:
        stored, config = self.catalog.find(server.name, server.config), server.config
        names = tuple(self._tools_of(server, stored)) if stored is not None else ()
        return ServerStatus(
            server.name,
            server.state,
            config.url or shlex.join((config.command, *config.args)),
            len(names),
            stored.pending_names if stored is not None else (),
            server.last_error,
            config.source,
            config.approve,
            tuple((split_mcp_name(each) or (server.name, each))[1] for each in names),
        )

    async def reload(self, name: str) -> ServerStatus:
        """Connect again and list the tools. Raises `ToolError` and `ConfigError`."""
        server = self.servers.get(name)
        if server is not None and server.last_error and not server.config.is_on:
            raise ConfigError(f"The MCP server {name} is off: {server.last_error}.")
        if server is None or not server.config.is_on:
            raise ConfigError(
                f"No MCP server named {name} is enabled. Configured: {', '.join(self.servers) or 'none'}."
            )
        workdirs = [*server.instances] or [""]
        await server.stop()
        await server.connect(workdirs[-1])
        return self._status(server)

    def accept(self, name: str) -> tuple[str, ...]:
        """Accept the new and changed tools of a server; returns their names with what is new. Raises `ConfigError`."""
        server = self.servers.get(name)
        if server is None:
            raise ConfigError(f"No MCP server named {name}. Configured: {', '.join(self.servers) or 'none'}.")
        stored = self.catalog.find(name, server.config)
        try:
            self.catalog.accept(name, server.config)
        except OSError as error:
            raise ConfigError(f"The list of tools of {name} cannot be stored: {error}") from error
        return stored.pending_names if stored is not None else ()

    def describe_pending(self, name: str) -> tuple[str, ...]:
        """One line for each tool that needs to be accepted."""
        server = self.servers.get(name)
        stored = self.catalog.find(name, server.config) if server is not None else None
        if stored is None:
            return ()
        new = "changed" if stored.accepted else "new"
        tools = (
            f"{tool.name} ({new if tool.name in stored.accepted else describe_change(None, tool)}): {tool.description}"
            for tool in stored.pending
        )
        instructions = (f"{INSTRUCTIONS}: {stored.info.instructions or 'removed'}",)
        return (*tools, *(instructions if stored.has_new_instructions else ()))


def describe_changes(server: str, tools: tuple[str, ...]) -> str:
    """What a person must know about changed tools."""
    names = ", ".join(tools[:5]) + (" and others" if len(tools) > 5 else "")
    return f"MCP: the server {server} changed its tools ({names}). To use them, accept them: /mcp accept {server}"


def parse_arguments(prompt: PromptInfo, text: str) -> dict[str, str]:
    """The arguments of a prompt: `name=value`, or in order; the last one gets the rest. Raises `ToolError`."""
    names = [name for name, _ in prompt.arguments]
    try:
        words = shlex.split(text)
    except ValueError:  # an apostrophe
        words = text.split()
    given, plain = dict[str, str](), list[str]()
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names:
            given[name] = value
        else:
            plain.append(word)
    free = [name for name in names if name not in given]
    if plain and not free:
        raise ToolError(f"the prompt {prompt.name} takes {'no arguments' if not names else ', '.join(names)}")
    for at, name in enumerate(free[: len(plain)]):
        given[name] = " ".join(plain[at:]) if at == len(free) - 1 else plain[at]
    missing = [name for name, required in prompt.arguments if required and not given.get(name)]
    if missing:
        raise ToolError(f"the prompt {prompt.name} needs {', '.join(missing)}: give them as NAME=VALUE")
    return given
