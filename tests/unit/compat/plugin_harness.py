"""A small house around one Hermes plugin: real relay, offers and scope; the host is a book of what was asked."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from alipes.compat.hermes.loader import HermesLoader, open_loader
from alipes.config.settings import Settings
from alipes.kernel.messages import Message, Text, ToolCall, ToolResult, assistant, user
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Address, Inbound, ModelReply, Op, Turn, Usage
from alipes.plugins.context import Context, PluginSetup
from alipes.plugins.discovery import DiscoveredPlugin, Manifest
from alipes.plugins.dispatch import HookDispatcher, Hooks
from alipes.plugins.instance import open_scope
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.owner import PluginOwner
from alipes.runtime.http.clients import ClientScope
from tests.world.commands import core_commands

HISTORY = (user("before"), assistant(Text("yes")))
TURN_HERE = Turn(
    id="t1",
    session="s1",
    inbound=Inbound("m1", Address("terminal", "desk"), "ada", "do it", workdir="/work"),
    history=HISTORY,
    model="acme/large",
)
FAR = Inbound("m2", Address("telegram", "42", "group", user="7"), "7", "hello there")
CALL = ToolCall("c1", "terminal", {"command": "ls"})


class RecordingHost:
    """Answers as it was scripted to do, and writes down what it was asked."""

    def __init__(self) -> None:
        self.submitted: list[Inbound] = []
        self.asked: list[tuple[tuple[Message, ...], dict[str, Any]]] = []
        self.tool_calls: list[tuple[str, Mapping[str, Any], Turn | None]] = []
        self.reply = ModelReply(assistant(Text("an answer")), Usage(input=10, output=3))
        self.result = ToolResult("x", "done")
        self.refusal: Exception | None = None
        self.received = asyncio.Event()

    async def submit(self, inbound: Inbound) -> str | None:
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append(inbound)
        self.received.set()
        return "t9"

    async def post(self, key: str, op: Op) -> None: ...

    async def unfinished(self, key: str) -> tuple[str, ...]:
        return ()

    async def ask(self, messages: tuple[Message, ...], **more: Any) -> ModelReply:
        await asyncio.sleep(0)
        self.asked.append((messages, more))
        return self.reply

    async def run_tool(self, name: str, args: Mapping[str, Any], *, turn: Turn | None = None) -> ToolResult:
        await asyncio.sleep(0)
        self.tool_calls.append((name, args, turn))
        return self.result

    def current_turn(self) -> Turn | None:
        return TURN.get()

    def setting(self, key: str) -> object:
        return {"model": "acme/usual"}.get(key, "")


class PluginHarness:
    def __init__(self, home: Path) -> None:
        providers = {"acme": Endpoint("acme", "openai-chat", "https://acme.test/v1")}
        self.settings = Settings(home=home, providers=providers)
        self.hooks, self.host = Hooks(), RecordingHost()
        self.contributions = core_commands()
        self.door: HermesLoader = open_loader(self.host, self.settings)
        self.owner = PluginOwner("")
        self.context: Context | None = None
        self.folder = home

    @property
    def dispatcher(self) -> HookDispatcher:
        return self.hooks.dispatcher

    @property
    def module(self) -> ModuleType:
        return sys.modules[f"hermes_plugins.{self.owner.name.replace('-', '_')}"]

    @property
    def calls(self) -> list[Any]:
        return self.module.calls  # type: ignore[no-any-return]

    def tool(self, name: str) -> Tool:
        return self.contributions.tools()[name]

    @asynccontextmanager
    async def plugin(
        self, source: str, *, name: str = "sample", config: Any = None, files: Mapping[str, str] = {}, **more: Any
    ) -> AsyncIterator["PluginHarness"]:
        """Open a folder plugin with this `__init__.py`, until the block is left."""
        folder = self.settings.home / "plugins" / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in {"__init__.py": source, **files}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(dedent(text))
        found = DiscoveredPlugin(name, "hermes", folder, source="here", manifest=Manifest(version="1.2", author="ada"))
        async with self.opened(found, config=config, **more):
            self.folder = folder
            yield self

    @asynccontextmanager
    async def opened(
        self, found: DiscoveredPlugin, *, config: Any = None, may_override: bool = False
    ) -> AsyncIterator[Context]:
        owner, failed = PluginOwner(found.name), None
        async with open_scope(owner, ClientScope()) as scope:
            standing = PluginSetup(owner=owner, config=config or {}, may_override=may_override, sync_hooks=True)
            context = Context(standing, hooks=self.hooks, contributions=self.contributions, host=self.host, scope=scope)
            try:
                await self.door.open(found, context)
                context.publish()
            except Exception as error:
                failed = error
            else:
                self.owner, self.context = owner, context
                try:
                    yield context
                finally:
                    self.hooks.remove(owner)
                    self.contributions.remove(owner)
        if failed is not None:
            raise failed


class Act:
    """What a tool is reported about its call."""

    call_id, session, workdir = "c1", "s1", "/work"

    async def progress(self, text: str) -> None: ...
