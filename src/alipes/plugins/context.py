"""What a plugin is given: its own scope, and the doors through which it adds to the house."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from inspect import iscoroutinefunction, isroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct

from alipes.kernel.errors import PluginError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json, Message, ToolResult
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Inbound, Op, Replied, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import Owner
from alipes.plugins.registration import USUAL, Hook, Ways, parameters
from alipes.plugins.registry import (
    CliOffer,
    CommandAct,
    CommandOffer,
    Offer,
    Offers,
    ProviderOffer,
    SkillOffer,
    ToolOffer,
)
from alipes.plugins.tool_decorator import tool_of

if TYPE_CHECKING:  # authors import this file for its words, and no network with them
    from alipes.runtime.http.clients import ClientScope


class Host(Protocol):
    """What a plugin may ask of the house while it runs."""

    async def submit(self, inbound: Inbound) -> str | None:
        """Say something in someone's name: through the same door as every message. That opens when all
        plugins are open: in `setup`, do this in `ctx.run`."""
        ...

    async def post(self, key: str, op: Op) -> None:
        """Ask something of a session; `Stop` is the way to end its turn."""
        ...

    async def unfinished(self, key: str) -> tuple[str, ...]:
        """The turns of a session that live or wait, by id, in order."""
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
    """The plain table of its settings."""
    folder: Path = Path()
    """Where it may keep files; made when first asked for."""
    may_override: bool = False
    deadlines: Mapping[str, float] = {}
    """By hook, what the operator allows; it goes over what the plugin asks for."""
    sync_hooks: bool = False
    """Doors to older plugins may register plain functions."""
    secret: Callable[[str], str] = lambda _name: ""


class _Registration(Struct, frozen=True):
    hook: Hook
    name: str
    deadline: float | None
    patient: bool
    ways: Ways

    def add_to(self, hooks: Hooks, owner: Owner) -> None:
        hooks.add(
            owner, self.hook, name=self.name, deadline=self.deadline, patient=self.patient, ways=self.ways
        )


class Context:
    """One plugin's side of the house. What it opens here is closed with the plugin, in reverse order.

    What it registers while it is being opened counts once it is open, all at once.
    """

    def __init__(
        self, standing: Standing, *, hooks: Hooks, offers: Offers, host: Host, scope: "Scope"
    ) -> None:
        self.name = standing.owner.name
        self.owner = standing.owner
        self.config = standing.config
        """As the plugin's own `Config` says, or the plain table."""
        self.host = host
        self.log = logging.getLogger(f"alipes.plugins.{standing.owner.name}")
        self.registered: list[str] = []
        """The names of its hooks."""
        self._standing, self._hooks, self._offers, self._scope = standing, hooks, offers, scope
        self._live = False
        self._early: tuple[list[_Registration], list[Offer]] = ([], [])
        self._trial = Hooks()

    @property
    def clients(self) -> "ClientScope":
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

    def secret(self, name: str) -> str:
        """The value of a variable, of the environment or of `.env`; empty where it is not set."""
        return self._standing.secret(name)

    def tell(self, words: str) -> None:
        """Show the person a sentence, in the turn in whose course we are; elsewhere it is not shown."""
        self._hooks.report(words, {})

    def run(self, work: Coroutine[Any, Any, object], name: str = "") -> asyncio.Task[object]:
        """Run something beside the turns, until it is done or the plugin is closed.

        If it raises, that is a strike, and nobody else is disturbed.
        """
        return self._scope.run(work, name or self.name)

    def hook(
        self,
        hook: Hook,
        *,
        name: str = "",
        deadline: float | None = None,
        patient: bool = False,
        ways: Ways = USUAL,
    ) -> None:
        """Register a hook of `specs`, under its own name or `name`; refused where it cannot be one."""
        name = name or hook.__name__
        if parameters(name) is None:
            raise PluginError(self.name, name, f"there is no such hook.{did_you_mean(name, hook_names())}")
        if not (self._standing.sync_hooks or iscoroutinefunction(hook)):
            raise PluginError(self.name, name, "a hook must be `async def`")
        told = self._standing.deadlines
        deadline = told.get(ways.title, told.get(name, deadline))
        made = _Registration(hook, name, deadline, patient, ways)
        made.add_to(self._trial, self.owner)  # refused here, where its author sees the line
        self.registered.append(ways.title or name)
        if self._live:
            made.add_to(self._hooks, self.owner)
        else:
            self._early[0].append(made)

    def tool(
        self,
        tool: Tool | Callable[..., Awaitable[Any]],
        *,
        toolset: str = "",
        available: Callable[[], bool] | None = None,
        override: bool = False,
    ) -> None:
        """Offer a tool: an async function (`@tool` says more about it), or any object that is a `Tool`.

        Also while it runs: the next turn sees it. `override`: it stands in for one of the house's, where
        the operator allows that; else that name is refused, with the reason.
        """
        made = tool_of(tool) if isroutine(tool) else cast(Tool, tool)
        override = override and self._standing.may_override
        self._offer(ToolOffer(self.owner, made, toolset or self.name, available, override))

    def drop_tool(self, name: str) -> bool:
        """Take a tool back; turns that live keep it."""
        early = self._early[1]
        mine = [each for each in early if isinstance(each, ToolOffer) and each.name == name]
        early[:] = [each for each in early if each not in mine]
        return self._offers.drop(self.owner, ToolOffer, name) or bool(mine)

    def command(self, name: str, act: CommandAct, *, help: str = "", hint: str = "") -> None:
        """Offer `/name`, on every surface, also while a turn runs."""
        self._offer(CommandOffer(self.owner, name.removeprefix("/").lower(), act, help, hint))

    def cli(
        self,
        name: str,
        help: str,
        prepare: Callable[[Any], None],
        run: Callable[[Any], int | None] | None = None,
    ) -> None:
        """Offer `alipes NAME`."""
        self._offer(CliOffer(self.owner, name, help, prepare, run))

    def skill(self, name: str, path: Path | str, description: str = "") -> None:
        """Offer a text that the model may read when it needs it."""
        self._offer(SkillOffer(self.owner, name, str(path), description))

    def provide(self, kind: str, name: str, thing: object) -> None:
        """Offer something of a kind that the house asks for by name, such as a `platform`."""
        self._offer(ProviderOffer(self.owner, kind, name, thing))

    def publish(self) -> None:
        """For the loader: what was registered so far counts from now on. All of it, or, if something is
        refused, nothing."""
        hooks, offers = self._early
        for offer in offers:
            self._offers.check(offer)
        for offer in offers:
            self._offers.add(offer)
        for made in hooks:
            made.add_to(self._hooks, self.owner)
        self._live, self._early = True, ([], [])

    def _offer(self, offer: Offer) -> None:
        if self._live:
            self._offers.add(offer)
        else:
            self._offers.check(offer)
            self._early[1].append(offer)


def hook_names() -> tuple[str, ...]:
    """All that `specs` knows."""
    return tuple(name for name in vars(specs) if parameters(name) is not None)


class Scope(Protocol):
    """What one plugin has open. The loader makes it, and closes it."""

    @property
    def clients(self) -> "ClientScope": ...

    @property
    def stack(self) -> AsyncExitStack: ...

    def run(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]: ...
