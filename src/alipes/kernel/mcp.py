"""Names of the tools of MCP servers: `mcp__SERVER__TOOL`."""

PREFIX = "mcp__"


def split_mcp_name(name: str) -> tuple[str, str] | None:
    """The server and the tool in the name of a tool; None if it is not one of an MCP server."""
    server, separator, tool = name.removeprefix(PREFIX).partition("__")
    return (server, tool) if name.startswith(PREFIX) and separator and server and tool else None


def mcp_source(server: str) -> str:
    """The start of the names under which results of a server are recorded as read."""
    return f"mcp: {server} "
