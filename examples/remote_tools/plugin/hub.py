"""Who is connected, and what they brought: tools come and go here. It opens no socket."""

import asyncio
from collections.abc import Mapping

import msgspec
from websockets.asyncio.connection import broadcast
from websockets.asyncio.server import ServerConnection

from alipes.plugin import Act, Context, Json, PluginError, ToolError, ToolSpec

from . import protocol as wire
from .calls import Calls, OpenCall
from .config import Config


class Client:
    """One connection that said hello."""

    def __init__(self, connection: ServerConnection, hello: wire.Hello, number: int, backlog: int) -> None:
        self.id, self.name, self.instance = f"c{number}", hello.name, hello.instance
        self.tools: dict[str, RemoteTool] = {}
        self._connection, self._backlog = connection, backlog

    def post(self, words: wire.Told) -> None:
        """Written at once and without waiting: whoever is being cancelled has no time for a slow reader."""
        broadcast([self._connection], wire.written(words), text=True)
        if self._connection.transport.get_write_buffer_size() > self._backlog:
            self._connection.transport.abort()  # it does not read; its calls fail as it leaves

    async def close(self, code: int, reason: str) -> None:
        await self._connection.close(code, reason)


class RemoteTool:
    """A tool that somebody else runs. A turn may hold it longer than its client is connected."""

    def __init__(self, hub: "Hub", spec: wire.RemoteSpec, client: Client, timeout: float) -> None:
        about = f"{spec.description}\n(Run by {client.name}, over the network; fails after {timeout:g} s.)"
        self.spec = ToolSpec(spec.name, about, spec.schema, spec.effect)
        self.client, self.timeout = client, timeout
        self._hub = hub

    async def run(self, args: Mapping[str, Json], act: Act) -> str:
        """To stop it, cancel it: the client is told before this returns."""
        return await self._hub.call(self, args, act)


class Hub:
    """Lives as long as the plugin. Nothing but a call waits for anything here, so nothing comes between."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self.config = config
        self.clients: list[Client] = []
        self._ctx, self._log = ctx, ctx.log
        self._tools: dict[str, RemoteTool] = {}
        self._calls = Calls()
        self._number = 0

    # --- clients

    def admit(self, connection: ServerConnection, hello: wire.Hello) -> Client:
        """It is one of us now. A connection with the same instance is its former self, and goes."""
        config = self.config
        for former in [each for each in self.clients if hello.instance and each.instance == hello.instance]:
            self._part(former, wire.REPLACED, "the same client connected anew")
        self._number += 1
        client = Client(connection, hello, self._number, backlog=4 * config.message_bytes)
        self.clients.append(client)
        limits = wire.Limits(
            config.message_bytes, config.tools, config.calls, config.timeout, config.max_timeout
        )
        client.post(wire.Welcome(wire.VERSION, client.id, limits))
        self._log.info("%s (%s) connected", client.name, client.id)
        return client

    def dismiss(self, client: Client) -> None:
        """It is gone: so are its tools from the next turn on, and what it was asked fails now."""
        if client not in self.clients:
            return
        self.clients.remove(client)
        for name in tuple(client.tools):
            self._take_away(client, name)
        for call in self._calls.of(client):
            call.fail(f"{client.name}, which runs {call.tool}, disconnected: what was done is not known")
        self._log.info("%s (%s) is gone", client.name, client.id)

    def send_away(self, why: str) -> None:
        """Close all connections; who knows the new token may come back."""
        for client in list(self.clients):
            self._part(client, wire.BAD_TOKEN, why)

    def _part(self, client: Client, code: int, why: str) -> None:
        self.dismiss(client)
        self._ctx.run(client.close(code, why), f"goodbye to {client.name}")

    def heed(self, client: Client, words: wire.Said | wire.Refused) -> None:
        """Do what the client says, and answer."""
        match words:
            case wire.Register():
                client.post(self._register(client, words))
            case wire.Unregister(id=id, name=name) if name in client.tools:
                self._take_away(client, name)
                client.post(wire.Unregistered(id, name))
            case wire.Unregister(id=id, name=name):
                client.post(wire.Refused("no_such_tool", f"you have no tool {name}", id))
            case wire.Progress() | wire.Result() | wire.Broke():
                self._calls.hear(words, client)
            case wire.Ping(id=id):
                client.post(wire.Pong(id))
            case wire.Hello():
                client.post(wire.Refused("bad_message", "you said hello already"))
            case wire.Refused():
                client.post(words)

    # --- tools

    def _register(self, client: Client, words: wire.Register) -> wire.Registered | wire.Refused:
        spec = words.tool
        held = self._tools.get(spec.name)
        if wrong := wire.unsound(spec.schema):
            return wire.Refused("bad_tool", f"{spec.name}: {wrong}", words.id)
        if held is not None and held.client is not client:
            return wire.Refused("name_taken", f"{held.client.name} has a tool {spec.name} already", words.id)
        if held is None and len(client.tools) >= self.config.tools:
            return wire.Refused("too_many_tools", f"a client may have {self.config.tools} tools", words.id)
        timeout = min(spec.timeout or self.config.timeout, self.config.max_timeout)
        tool = RemoteTool(self, spec, client, timeout)
        try:
            self._ctx.tool(tool)
        except PluginError as error:  # the house or another plugin has one of this name
            return wire.Refused("name_taken", str(error), words.id)
        self._tools[spec.name] = client.tools[spec.name] = tool
        return wire.Registered(words.id, spec.name, timeout)

    def _take_away(self, client: Client, name: str) -> None:
        del client.tools[name], self._tools[name]
        self._ctx.drop_tool(name)

    # --- calls

    async def call(self, tool: RemoteTool, args: Mapping[str, Json], act: Act) -> str:
        tool = self._living(tool)
        client, limits = tool.client, self.config
        if len(self._calls.of(client)) >= limits.calls:
            raise ToolError(f"{client.name} is busy with {limits.calls} calls; try again later")
        call = OpenCall(tool.spec.name, act, client, limit=tool.timeout)
        question = call.question(args)
        if len(wire.written(question)) > limits.message_bytes:
            raise ToolError(f"the arguments are too long: a message may have {limits.message_bytes:,} bytes")
        with self._calls.opened(call):
            client.post(question)
            try:
                async with asyncio.timeout(tool.timeout):
                    return _text(await call.answer())
            except TimeoutError as error:
                call.expire()
                raise ToolError(
                    f"{client.name} did not answer within {tool.timeout:g} s: what was done is not known"
                ) from error

    def _living(self, tool: RemoteTool) -> RemoteTool:
        """The tool as it is now: its client may have left, or come back, since the turn began."""
        now, name, by = self._tools.get(tool.spec.name), tool.spec.name, tool.client.name
        if now is not None and (now.client.name, now.spec) == (by, tool.spec):
            return now
        if tool.client in self.clients:
            raise ToolError(f"{by} took {name} back, or changed it, since this turn began")
        raise ToolError(f"{by}, which ran {name}, is not connected any more")

    async def agent_loop_stopped(self, session_id: str, tool_call_ids: tuple[str, ...], reason: str) -> None:
        """Told before anything is cancelled, so the client knows at once, and why."""
        self._calls.stopped(session_id, tool_call_ids, reason)


def _text(output: object) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
