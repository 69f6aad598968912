"""Remote tools: a client that connects over a WebSocket brings tools that the agent can call.

This file is the plugin as the house sees it; README.md beside the folder tells the protocol.
"""

from alipes.plugin import Context, Inbound

from .config import Config
from .hub import Hub
from .server import Door
from .tokens import Token

__all__ = ["Config", "setup"]
HERE = "terminal"
"""The platform of those who sit at this machine: nobody else is shown the token."""


async def setup(ctx: Context) -> None:
    hub = Hub(ctx, ctx.config)
    token = Token(ctx.folder)
    door = Door(hub, token, ctx.log)
    ctx.stack.callback(door.close)
    ctx.hook(hub.agent_loop_stopped, name="agent_loop_stopped")
    ctx.run(door.run(), "the server")

    async def remote(args: str, inbound: Inbound) -> str:
        if args.strip() == "renew":
            token.renew()
            hub.send_away("the token was renewed")
        elif args.strip():
            return "/remote shows who is connected; /remote renew makes a new token and sends all away"
        return _account(hub, door, token, local=inbound.address.platform == HERE)

    ctx.command("remote", remote, help="Show the remote tools, and how a client connects", hint="[renew]")


def _account(hub: Hub, door: Door, token: Token, *, local: bool) -> str:
    if not door.url:
        port = hub.config.port
        return f"Another process listens on port {port}; I take over when it ends."
    way = (
        [f"Open {door.url}#token={token.text}", f"or give a client the token {token.text}"]
        if local
        else [f"The server is at {door.url}; its token is in {token.path}, on the machine I run on"]
    )
    who = [f"{each.name} ({each.id}): {', '.join(each.tools) or 'no tools yet'}" for each in hub.clients]
    return "\n".join([*way, "", *(who or ["Nobody is connected."])])
