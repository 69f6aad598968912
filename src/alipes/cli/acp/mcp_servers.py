"""MCP servers that an editor brings along, as settings of alipes."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from alipes.config.display import is_secret_name, looks_secret
from alipes.core.app import App
from alipes.features.mcp.feature import McpFeature
from alipes.features.mcp.settings import McpServerConfig

SOURCE = "the editor"


async def use_editor_servers(app: App, conversation: str, given: list[Any]) -> tuple[str, ...]:
    """Offer the servers in the conversation only. Returns the names of those that cannot be used."""
    servers = app.features.get(McpFeature).servers
    assert servers is not None  # see `serve_editor`
    found = [(str(each.name), _to_config(each)) for each in given]
    app.secrets.add(*(secret for _, config in found for secret in _secrets(config)))
    names: tuple[str, ...] = await import_module("alipes.features.mcp.client.conversation_servers").offer_only_in(
        servers, conversation, found
    )
    return names


def _to_config(given: Any) -> McpServerConfig:
    """Settings without a command and a URL if it is of a kind that we do not know."""
    url = str(getattr(given, "url", ""))
    return McpServerConfig(
        command=str(getattr(given, "command", "")),
        args=tuple(map(str, getattr(given, "args", ()))),
        env={each.name: each.value for each in getattr(given, "env", ())},
        url=url if url.startswith(("http://", "https://")) else "",
        headers={each.name: each.value for each in getattr(given, "headers", ())},
        source=SOURCE,
    )


def _secrets(config: McpServerConfig) -> Iterator[str]:
    for name, value in (config.env | config.headers).items():
        if is_secret_name(name) or looks_secret(value):
            yield value
            yield value.removeprefix("Bearer ")
