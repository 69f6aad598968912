"""Opens the MCP servers of an app, and looks for changes of their settings before each turn."""

from contextlib import AsyncExitStack

from alipes.features.mcp.feature import McpFeature


async def add_hooks(feature: McpFeature, stack: AsyncExitStack) -> None:
    configured = feature.configured
    stack.push_async_callback(configured.close)
    feature.app.add_preparation(configured.refresh)
    await configured.use(feature.app.settings.mcp)
