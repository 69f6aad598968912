"""Remote tools: a client that connects over a WebSocket provides tools that the agent can call.

This file is the entry point of the plugin; README.md beside the folder describes the protocol.
"""

from alipes.plugin import Context, Inbound

from .config import Config
from .hub import Hub
from .server import Server
from .tokens import Token

__all__ = ["Config", "setup"]
HERE = "terminal"
"""The platform of people at this machine: only they see the token."""


async def setup(ctx: Context) -> None:
    hub = Hub(ctx, ctx.config)
    token = Token(ctx.folder)
    server = Server(hub, token, ctx.log)
    ctx.stack.callback(server.close)
    ctx.hook(hub.agent_loop_stopped, name="agent_loop_stopped")
    ctx.run(server.run(), "server")

    async def remote(args: str, inbound: Inbound) -> str:
        if args.strip() == "renew":
            token.renew()
            hub.disconnect_all("the token was renewed")
        elif args.strip():
            return "Usage: /remote (list clients) or /remote renew (new token, disconnects all)"
        return _report(hub, server, token, local=inbound.address.platform == HERE)

    ctx.command("remote", remote, help="show remote tools and how a client connects", hint="[renew]")


def _report(hub: Hub, server: Server, token: Token, *, local: bool) -> str:
    if not server.url:
        port = hub.config.port
        return f"Another process listens on port {port}; this one takes over when it exits."
    access = (
        [f"Open {server.url}#token={token.text}", f"or start a client with the token {token.text}"]
        if local
        else [f"The server is at {server.url}; its token is in {token.path} on the machine that runs alipes"]
    )
    rows = [f"{each.name} ({each.id}): {', '.join(each.tools) or 'no tools yet'}" for each in hub.clients]
    return "\n".join([*access, "", *(rows or ["No clients connected."])])
