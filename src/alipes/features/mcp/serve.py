"""`/mcp` of a process that serves."""

from functools import partial

from starlette.routing import BaseRoute

from alipes.features.mcp.feature import McpFeature
from alipes.features.mcp.server.http import McpEndpoint
from alipes.features.mcp.server.tools import ConversationTools
from alipes.features.server import Server
from alipes.gateway.outbound.target import address_message
from alipes.web.router import ApiRouter


def routes(feature: McpFeature, server: Server, api: ApiRouter) -> list[BaseRoute]:
    app = feature.app
    tools = ConversationTools(
        app, server.runs, server.admission, send=partial(_send, feature, server), state=server.state
    )
    endpoint = McpEndpoint(tools, api, server.keys, max_body=app.settings.api.body)
    server.add_background(endpoint.run())
    return [endpoint.route()]


async def _send(feature: McpFeature, server: Server, to: str, text: str) -> str:
    """Queue a message for a chat."""
    store, names = feature.app.store, [each.name for each in server.gateway.states()]
    await store.outbox.enqueue(await address_message(store.people, to, text, names))
    return "Queued."
