"""Connected clients and their tools. It opens no socket."""

import asyncio
from collections.abc import Mapping

import msgspec
from websockets.asyncio.connection import broadcast
from websockets.asyncio.server import ServerConnection

from alipes.plugin import Context, Json, PluginError, ToolContext, ToolError, ToolSpec

from . import protocol as wire
from .calls import Calls, OpenCall
from .config import Config


class Client:
    """A connection after its hello."""

    def __init__(self, connection: ServerConnection, hello: wire.Hello, number: int, backlog: int) -> None:
        self.id, self.name, self.instance = f"c{number}", hello.name, hello.instance
        self.tools: dict[str, RemoteTool] = {}
        self._connection, self._backlog = connection, backlog

    def post(self, message: wire.ServerMessage) -> None:
        """Write without waiting: a call that is being cancelled must not wait for a slow reader."""
        broadcast([self._connection], wire.encode(message), text=True)
        if self._connection.transport.get_write_buffer_size() > self._backlog:
            self._connection.transport.abort()  # it does not read; its calls fail when it disconnects

    async def close(self, code: int, reason: str) -> None:
        await self._connection.close(code, reason)


class RemoteTool:
    """A tool that a client runs. A turn may hold it longer than its client is connected."""

    def __init__(self, hub: "Hub", spec: wire.RemoteSpec, client: Client, timeout: float) -> None:
        about = f"{spec.description}\n(Run by {client.name}, over the network; fails after {timeout:g} s.)"
        self.spec = ToolSpec(spec.name, about, spec.schema, spec.effect)
        self.client, self.timeout = client, timeout
        self._hub = hub

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        """Cancelling it informs the client before this returns."""
        return await self._hub.call(self, args, act)


class Hub:
    """All clients and tools, for the life of the plugin. Only calls wait, so every other method is atomic."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self.config = config
        self.clients: list[Client] = []
        self._ctx, self._log = ctx, ctx.log
        self._tools: dict[str, RemoteTool] = {}
        self._calls = Calls()
        self._number = 0

    # --- clients

    def admit(self, connection: ServerConnection, hello: wire.Hello) -> Client:
        """Add a client. An older connection with the same instance is closed."""
        config = self.config
        for former in [each for each in self.clients if hello.instance and each.instance == hello.instance]:
            self._disconnect(former, wire.REPLACED, "the same client connected again")
        self._number += 1
        client = Client(connection, hello, self._number, backlog=4 * config.message_bytes)
        self.clients.append(client)
        limits = wire.Limits(config.message_bytes, config.tools, config.calls, config.timeout, config.max_timeout)
        client.post(wire.Welcome(wire.VERSION, client.id, limits))
        self._log.info("%s (%s) connected", client.name, client.id)
        return client

    def remove(self, client: Client) -> None:
        """Remove a client: its tools disappear from the next turn on, and its open calls fail."""
        if client not in self.clients:
            return
        self.clients.remove(client)
        for name in tuple(client.tools):
            self._remove_tool(client, name)
        for call in self._calls.of(client):
            call.fail(f"{client.name}, which runs {call.tool}, disconnected: the result is unknown")
        self._log.info("%s (%s) disconnected", client.name, client.id)

    def disconnect_all(self, why: str) -> None:
        """Close all connections; clients with the new token may reconnect."""
        for client in list(self.clients):
            self._disconnect(client, wire.BAD_TOKEN, why)

    def _disconnect(self, client: Client, code: int, why: str) -> None:
        self.remove(client)
        self._ctx.run(client.close(code, why), f"disconnect {client.name}")

    def handle(self, client: Client, message: wire.ClientMessage | wire.Refused) -> None:
        """Handle a client's message and answer it."""
        match message:
            case wire.Register():
                client.post(self._register(client, message))
            case wire.Unregister(id=id, name=name) if name in client.tools:
                self._remove_tool(client, name)
                client.post(wire.Unregistered(id, name))
            case wire.Unregister(id=id, name=name):
                client.post(wire.Refused("no_such_tool", f"you have no tool {name}", id))
            case wire.Progress() | wire.Result() | wire.Failure():
                self._calls.receive(message, client)
            case wire.Ping(id=id):
                client.post(wire.Pong(id))
            case wire.Hello():
                client.post(wire.Refused("bad_message", "hello was already sent"))
            case wire.Refused():
                client.post(message)

    # --- tools

    def _register(self, client: Client, message: wire.Register) -> wire.Registered | wire.Refused:
        spec = message.tool
        held = self._tools.get(spec.name)
        if wrong := wire.check_schema(spec.schema):
            return wire.Refused("bad_tool", f"{spec.name}: {wrong}", message.id)
        if held is not None and held.client is not client:
            return wire.Refused("name_taken", f"{held.client.name} has a tool {spec.name} already", message.id)
        if held is None and len(client.tools) >= self.config.tools:
            return wire.Refused("too_many_tools", f"a client may have {self.config.tools} tools", message.id)
        timeout = min(spec.timeout or self.config.timeout, self.config.max_timeout)
        tool = RemoteTool(self, spec, client, timeout)
        try:
            self._ctx.tool(tool)
        except PluginError as error:  # the name is built in or used by another plugin
            return wire.Refused("name_taken", str(error), message.id)
        self._tools[spec.name] = client.tools[spec.name] = tool
        return wire.Registered(message.id, spec.name, timeout)

    def _remove_tool(self, client: Client, name: str) -> None:
        del client.tools[name], self._tools[name]
        self._ctx.drop_tool(name)

    # --- calls

    async def call(self, tool: RemoteTool, args: Mapping[str, Json], act: ToolContext) -> str:
        tool = self._current(tool)
        client, limits = tool.client, self.config
        if len(self._calls.of(client)) >= limits.calls:
            raise ToolError(f"{client.name} is busy with {limits.calls} calls; try again later")
        call = OpenCall(tool.spec.name, act, client, limit=tool.timeout)
        request = call.to_wire(args)
        if len(wire.encode(request)) > limits.message_bytes:
            raise ToolError(f"the arguments are too long: a message may have {limits.message_bytes:,} bytes")
        with self._calls.open(call):
            client.post(request)
            try:
                async with asyncio.timeout(tool.timeout):
                    return _text(await call.answer())
            except TimeoutError as error:
                call.expire()
                raise ToolError(
                    f"{client.name} did not answer within {tool.timeout:g} s: the result is unknown"
                ) from error

    def _current(self, tool: RemoteTool) -> RemoteTool:
        """The tool as it is now: its client may have disconnected or reconnected since the turn started."""
        now, name, by = self._tools.get(tool.spec.name), tool.spec.name, tool.client.name
        if now is not None and (now.client.name, now.spec) == (by, tool.spec):
            return now
        if tool.client in self.clients:
            raise ToolError(f"{by} removed or changed {name} since this turn started")
        raise ToolError(f"{by}, which ran {name}, is no longer connected")

    async def agent_loop_stopped(self, session_id: str, tool_call_ids: tuple[str, ...], reason: str) -> None:
        """Called before anything is cancelled, so the client learns at once, and why."""
        self._calls.cancel_all(session_id, tool_call_ids, reason)


def _text(output: object) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
