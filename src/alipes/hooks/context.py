"""What a plugin is given: its own scope, and the doors through which it adds to the house."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from inspect import isroutine
from pathlib import Path
from typing import Any, Protocol, cast

from msgspec import Struct

from alipes.hooks.offers import (
    CliOffer,
    CommandAct,
    CommandOffer,
    Offers,
    ProviderOffer,
    SkillOffer,
    ToolOffer,
)
from alipes.hooks.owners import Owner
from alipes.hooks.relay import Hook, Hooks
from alipes.hooks.toolmaking import tool_of
from alipes.kernel.messages import Json, Message, ToolResult
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Inbound, Op, Replied, Turn
from alipes.runtime.clients import ClientScope


class Host(Protocol):
    """What a plugin may ask of the house while it runs."""

    async def submit(self, inbound: Inbound) -> str | None:
        """Say something in someone's name: through the same door as every message."""
        ...

    async def post(self, key: str, op: Op) -> None:
        """Ask something of a session; `Stop` is the way to end its turn."""
        ...

    async def ask(
        self, messages: tuple[Message, ...], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> Replied:
        """A question to a model beside the conversation: by default to the one that answers in it."""
        ...

    async def use(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        """Run a tool as the model would: with the same rules, and asking where it would ask."""
        ...

    def living(self) -> Turn | None:
        """The turn in whose course we are called, or None."""
        ...

    def setting(self, key: str) -> object:
        """The value of a key of config.toml, such as `model` or `serve.port`; never a secret."""
        ...


class Standing(Struct, frozen=True):
    """What the loader knows of a plugin when it opens it."""

    owner: Owner
    config: Any = None
    """As the plugin's own `Config` says, or the plain table."""
    folder: Path = Path()
    """Where it may keep files; made when first asked for."""
    may_override: bool = False


class Context:
    """One plugin's side of the house. What it opens here is closed with the plugin, in reverse order."""

    def __init__(
        self, standing: Standing, *, hooks: Hooks, offers: Offers, host: Host, scope: "Scope"
    ) -> None:
        self.name = standing.owner.name
        self.owner = standing.owner
        self.config = standing.config
        self.host = host
        self.log = logging.getLogger(f"alipes.plugins.{standing.owner.name}")
        self._standing, self._hooks, self._offers, self._scope = standing, hooks, offers, scope

    @property
    def clients(self) -> ClientScope:
        """Network clients of the plugin's own: they live and die with it, on the host's loop."""
        return self._scope.clients

    @property
    def folder(self) -> Path:
        """Where the plugin may keep files of its own."""
        self._standing.folder.mkdir(parents=True, exist_ok=True)
        return self._standing.folder

    @property
    def stack(self) -> AsyncExitStack:
        """For whatever else must be closed with the plugin."""
        return self._scope.stack

    def run(self, work: Coroutine[Any, Any, object], name: str = "") -> asyncio.Task[object]:
        """Run something beside the turns, until it is done or the plugin is closed.

        If it raises, that is a strike, and nobody else is disturbed.
        """
        return self._scope.run(work, name or self.name)

    def hook(self, hook: Hook, *, name: str = "", deadline: float | None = None) -> None:
        """Register a hook of `specs`, under its own name or `name`."""
        self._hooks.add(self.owner, hook, name=name, deadline=deadline)

    def tool(
        self,
        tool: Tool | Callable[..., Awaitable[Any]],
        *,
        toolset: str = "",
        available: Callable[[], bool] | None = None,
        override: bool = False,
    ) -> None:
        """Offer a tool: an async function (`@tool` says more about it), or any object that is a `Tool`.

        Also while it runs: the next turn sees it.
        """
        if override and not self._standing.may_override:
            override = False  # then a name of the house's is refused, with the reason
        made = tool_of(tool) if isroutine(tool) else cast(Tool, tool)
        self._offers.add(ToolOffer(self.owner, made, toolset or self.name, available, override))

    def drop_tool(self, name: str) -> bool:
        """Take a tool back; turns that live keep it."""
        return self._offers.drop(self.owner, ToolOffer, name)

    def command(self, name: str, act: CommandAct, *, help: str = "", hint: str = "") -> None:
        """Offer `/name`, on every surface, also while a turn runs."""
        self._offers.add(CommandOffer(self.owner, name.removeprefix("/"), act, help, hint))

    def cli(
        self,
        name: str,
        help: str,
        prepare: Callable[[Any], None],
        run: Callable[[Any], int | None] | None = None,
    ) -> None:
        """Offer `alipes NAME`."""
        self._offers.add(CliOffer(self.owner, name, help, prepare, run))

    def skill(self, name: str, path: Path | str, description: str = "") -> None:
        """Offer a text that the model may read when it needs it."""
        self._offers.add(SkillOffer(self.owner, name, str(path), description))

    def provide(self, kind: str, name: str, thing: object) -> None:
        """Offer something of a kind that the house asks for by name, such as a `platform`."""
        self._offers.add(ProviderOffer(self.owner, kind, name, thing))


class Scope(Protocol):
    """What one plugin has open. The loader makes it, and closes it."""

    @property
    def clients(self) -> ClientScope: ...

    @property
    def stack(self) -> AsyncExitStack: ...

    def run(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]: ...
