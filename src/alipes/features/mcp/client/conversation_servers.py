"""MCP servers that belong to single conversations, such as those that an editor brings along."""

import re
from collections.abc import Iterable

from alipes.features.mcp.client.catalog import server_key
from alipes.features.mcp.client.servers import McpServers
from alipes.features.mcp.client.tools import READ_RESOURCE, McpTool
from alipes.features.mcp.settings import McpServerConfig, find_server_problem
from alipes.kernel.turns import Turn

MAX_NAME_CHARS, KEY_CHARS = 20, 10
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")


def name_server(given: str, config: McpServerConfig) -> str:
    """A name with a part that depends on what is behind it: approvals and accepted tools hold for the same program or
    address only, and a server of the settings is never replaced."""
    plain = _NOT_IN_NAMES.sub("-", given).strip("-")[:MAX_NAME_CHARS].strip("-") or "server"
    return f"{plain}-{server_key(config)[:KEY_CHARS]}"


async def offer_only_in(
    servers: McpServers, conversation: str, given: Iterable[tuple[str, McpServerConfig]]
) -> tuple[str, ...]:
    """Offer these servers in the conversation, instead of those it had before. Servers that no conversation has any
    longer are stopped. Returns the names of those that cannot be used."""
    wanted, refused = dict[str, McpServerConfig](), list[str]()
    for label, config in given:
        name = name_server(label, config)
        if find_server_problem(name, config):
            refused.append(label)
        else:
            wanted[name] = config
    for name, config in wanted.items():
        known = servers.servers.get(name)
        if known is None or known.config != config:
            others = known.only_in or set() if known is not None else set()
            server = servers.servers[name] = servers.make_server(name, config)
            server.limit_to({conversation} | others)
            if known is not None:  # its variables or headers are others now
                await known.stop()
        elif known.only_in is not None:
            known.only_in.add(conversation)
    for name, server in tuple(servers.servers.items()):
        if server.only_in is not None and name not in wanted:
            server.only_in.discard(conversation)
            if not server.only_in:
                del servers.servers[name]
                await server.stop()
    return tuple(refused)


def hidden_tools(servers: McpServers, turn: Turn) -> set[str]:
    """Tools that the turn does not have, because their servers belong to other conversations."""
    if all(server.only_in is None for server in servers.servers.values()):
        return set()
    ours = {name: server for name, server in servers.servers.items() if server.serves(turn.inbound)}
    offers = (servers.catalog.find(name, server.config) for name, server in ours.items() if server.config.is_on)
    hidden = set() if any(offer is not None and offer.has_resources for offer in offers) else {READ_RESOURCE}
    for name, tool in servers.tools().items():
        if isinstance(tool, McpTool) and tool.server.name not in ours:
            hidden.add(name)
    return hidden
