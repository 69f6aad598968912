"""Lines of JSON over a socket. A client registers tools; each call is sent to it, and so is its end.

client: {"type": "register", "tools": [...]}, {"type": "remove", "name": ...}, {"type": "result", "id": ..., "result": ...}
server: {"type": "registered"}, {"type": "call", ...}, {"type": "timeout", "id": ...}, {"type": "cancelled", "id": ...}
"""

import asyncio
import itertools
import json

from gateway.session_context import get_session_env
from hermes_constants import get_hermes_home
from tools.registry import registry, tool_error

NUMBERS = itertools.count(1)
CLIENTS = set()
SETTINGS = {}


class Client:
    def __init__(self, writer):
        self.writer = writer
        self.pending = {}
        self.tools = set()

    def send(self, **message):
        self.writer.write(json.dumps(message).encode() + b"\n")

    def hear(self, message):
        kind = message["type"]
        if kind == "register":
            for tool in message["tools"]:
                self.register(tool)
            self.send(type="registered")
        elif kind == "remove":
            registry.deregister(message["name"])
            self.tools.discard(message["name"])
            self.send(type="removed")
        elif kind == "result":
            _, future = self.pending.pop(message["id"], (None, None))
            if future is not None and not future.done():
                future.set_result(message["result"])

    def register(self, tool):
        name = tool["name"]

        async def call(args, **kwargs):
            return await self.call(name, args)

        registry.register(name=name, toolset="remote", schema=tool, handler=call, is_async=True)
        self.tools.add(name)

    async def call(self, name, args):
        number = f"r{next(NUMBERS)}"
        future = asyncio.get_running_loop().create_future()
        self.pending[number] = get_session_env("HERMES_SESSION_KEY"), future
        self.send(type="call", id=number, name=name, args=args)
        try:
            return await asyncio.wait_for(future, SETTINGS["timeout"])
        except TimeoutError:
            self.send(type="timeout", id=number)
            raise
        except asyncio.CancelledError:
            if number in self.pending:  # the hook has not spoken for it
                self.send(type="cancelled", id=number)
            raise
        finally:
            self.pending.pop(number, None)

    def stopped(self, session_key, reason):
        for number, (key, future) in [*self.pending.items()]:
            if key == session_key:
                del self.pending[number]
                asyncio.create_task(self.tell(number, reason))  # noqa: RUF006
                if SETTINGS["resolves"] and not future.done():
                    future.set_result(tool_error("stopped"))

    async def tell(self, number, reason):
        self.send(type="cancelled", id=number, reason=reason)
        await self.writer.drain()

    def gone(self):
        for name in self.tools:
            registry.deregister(name)
        for _, future in self.pending.values():
            if not future.done():
                future.set_exception(ConnectionError("the client is gone"))


async def serve(reader, writer):
    client = Client(writer)
    CLIENTS.add(client)
    try:
        while line := await reader.readline():
            client.hear(json.loads(line))
    finally:
        client.gone()
        CLIENTS.discard(client)
        writer.close()


async def listen():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        (get_hermes_home() / "remote.port").write_text(str(port))
        await server.serve_forever()


def on_agent_loop_stopped(session_key="", platform="", reason="", invalidation_reason="", **_):
    for client in CLIENTS:
        client.stopped(session_key, invalidation_reason)


def register(ctx):
    SETTINGS.update(timeout=ctx.get_config("timeout", 30), resolves=ctx.get_config("resolves", False))
    ctx.register_hook("agent_loop_stopped", on_agent_loop_stopped)
    asyncio.get_event_loop().create_task(listen())
