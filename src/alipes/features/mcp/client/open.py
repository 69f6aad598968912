"""Makes the MCP servers of an app, and adds to it what they offer. Imported only if one is configured."""

from contextlib import suppress
from functools import partial
from importlib import import_module

from alipes.core.app import App
from alipes.core.resources import tool_environment
from alipes.features.mcp.client.conversation_servers import hidden_tools
from alipes.features.mcp.client.host import McpHost
from alipes.features.mcp.client.servers import McpServers
from alipes.features.mcp.client.token_store import make_store
from alipes.features.mcp.requests import PeopleAndModels, assess_mcp_call, prompt_templates
from alipes.features.mcp.settings import McpConfig, McpServerConfig
from alipes.kernel.errors import ToolError
from alipes.kernel.turns import Turn
from alipes.tools.shell.output import SpillFolder


def make_servers(app: App, config: McpConfig) -> McpServers:
    settings = app.settings
    host = McpHost(
        app.backend,
        app.scope,
        tool_environment(settings),
        settings.paths.logs / "mcp",
        auth_for=partial(_make_auth, app),
        requests=PeopleAndModels(app.sessions.questions, app.auxiliary, settings.clarify.timeout),
        network=app.resources.namespaces,
        mask=app.secrets,
    )
    spill = SpillFolder(settings.paths.spill, mask=app.secrets)
    return McpServers(config, host, home=settings.home / "mcp", spill=spill, notify=app.notify)


def add_servers(app: App, servers: McpServers) -> None:
    """Add what they offer to the app, now and later."""
    app.contributions.add_source("mcp", servers.tools)
    app.contributions.add_templates(partial(prompt_templates, servers))
    app.tool_access.add_hidden(partial(hidden_tools, servers))
    app.files.add_resources(servers)
    app.add_preparation(partial(_require_sdk, app))
    app.add_preparation(servers.prepare)
    app.add_tool_risk(partial(assess_mcp_call, servers))
    app.add_prompt_section(servers.describe)


async def _require_sdk(app: App, turn: Turn) -> None:
    with suppress(ToolError):  # the servers report it
        await app.extras.require("mcp", turn)


def _make_auth(app: App, name: str, config: McpServerConfig) -> object:
    """Called for a server that is connected over HTTP, so the SDK is imported already."""
    store = make_store(app.settings, app.secrets.add)
    return import_module("alipes.features.mcp.client.oauth").make_auth(name, config, store, clients=app.scope)
