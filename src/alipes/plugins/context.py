"""What a plugin works with: its context, its own scope and the host."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from inspect import iscoroutinefunction, isroutine, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct

from alipes.kernel.errors import PluginError
from alipes.kernel.formatting import did_you_mean
from alipes.kernel.messages import Json, Message, ToolResult
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Inbound, ModelReply, Op, Turn
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registration import DEFAULT_OPTIONS, Hook, HookOptions, hook_parameters
from alipes.plugins.registry import (
    CliContribution,
    CommandContribution,
    CommandHandler,
    Contribution,
    Contributions,
    ProviderContribution,
    SkillContribution,
    ToolContribution,
)
from alipes.plugins.tool_decorator import make_tool

if TYPE_CHECKING:  # plugin authors import this file for its names, without any network code
    from alipes.runtime.http.clients import ClientScope


class Host(Protocol):
    """What a plugin may ask of alipes while it runs."""

    async def submit(self, inbound: Inbound) -> str | None:
        """Submit a message on someone's behalf, like any other message. Waits until all plugins are open:
        from `setup`, call it inside `ctx.run`."""
        ...

    async def post(self, key: str, op: Op) -> None:
        """Send an op to a session; `Stop` stops its turn."""
        ...

    async def unfinished(self, key: str) -> tuple[str, ...]:
        """Ids of the running and queued turns of a session, in order."""
        ...

    async def ask(
        self, messages: tuple[Message, ...], *, system: str = "", model: str = "", max_tokens: int = 0
    ) -> ModelReply:
        """Ask a model outside the conversation; by default the conversation's own model."""
        ...

    async def run_tool(self, name: str, args: Mapping[str, Json], *, turn: Turn | None = None) -> ToolResult:
        """Run a tool as the model would: same rules, same approvals."""
        ...

    def current_turn(self) -> Turn | None:
        """The turn that the current code runs for, or None."""
        ...

    def setting(self, key: str) -> object:
        """The value of a config.toml key such as `model` or `serve.port`; never a secret."""
        ...


class PluginSetup(Struct, frozen=True):
    """What the loader passes to a plugin's context."""

    owner: PluginOwner
    config: Any = None
    """The plain table of its settings."""
    folder: Path = Path()
    """Where it may keep files; created on first use."""
    may_override: bool = False
    deadlines: Mapping[str, float] = {}
    """By hook, the operator's deadlines; they override the plugin's own."""
    sync_hooks: bool = False
    """Loaders for older plugin formats may register plain functions."""
    secret: Callable[[str], str] = lambda _name: ""


class _Registration(Struct, frozen=True):
    hook: Hook
    name: str
    deadline: float | None
    patient: bool
    ways: HookOptions

    def add_to(self, hooks: Hooks, owner: PluginOwner) -> None:
        hooks.add(owner, self.hook, name=self.name, deadline=self.deadline, patient=self.patient, options=self.ways)


class Context:
    """A plugin's access to alipes. What it opens here is closed with the plugin, in reverse order.

    Everything it registers while it is opened becomes active at once when it is open.
    """

    def __init__(
        self, setup: PluginSetup, *, hooks: Hooks, contributions: Contributions, host: Host, scope: "PluginScope"
    ) -> None:
        self.name = setup.owner.name
        self.owner = setup.owner
        self.config = setup.config
        """The plugin's `Config` object, or the plain table."""
        self.host = host
        self.log = logging.getLogger(f"alipes.plugins.{setup.owner.name}")
        self.registered: list[str] = []
        """The names of its hooks."""
        self._standing, self._hooks, self._contributions, self._scope = setup, hooks, contributions, scope
        self._live = False
        self._early: tuple[list[_Registration], list[Contribution]] = ([], [])
        self._trial = Hooks()

    @property
    def clients(self) -> "ClientScope":
        """The plugin's own network clients, on the host's loop; closed with the plugin."""
        return self._scope.clients

    @property
    def contributions(self) -> Contributions:
        """What all plugins contribute; for loaders of other plugin formats."""
        return self._contributions

    @property
    def folder(self) -> Path:
        """Where the plugin may keep files."""
        self._standing.folder.mkdir(parents=True, exist_ok=True)
        return self._standing.folder

    @property
    def stack(self) -> AsyncExitStack:
        """For anything else that must be closed with the plugin."""
        return self._scope.stack

    def secret(self, name: str) -> str:
        """The value of a variable from the environment or `.env`; empty if it is not set."""
        return self._standing.secret(name)

    def notify(self, words: str) -> None:
        """Show the person a notice in the current turn; without a turn it is not shown."""
        self._hooks.report(words, {})

    def run(self, work: Coroutine[Any, Any, object], name: str = "") -> asyncio.Task[object]:
        """Run something outside the turns, until it is done or the plugin is closed.

        If it raises, that is a strike; nothing else is affected.
        """
        return self._scope.run(work, name or self.name)

    def hook(
        self,
        hook: Hook,
        *,
        name: str = "",
        deadline: float | None = None,
        patient: bool = False,
        options: HookOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Register a hook of `specs`, under its own name or `name`; raises if the signature does not fit."""
        name = name or hook.__name__
        if hook_parameters(name) is None:
            raise PluginError(self.name, name, f"no such hook.{did_you_mean(name, hook_names())}")
        if not (self._standing.sync_hooks or iscoroutinefunction(hook)):
            raise PluginError(self.name, name, "a hook must be `async def`")
        deadlines = self._standing.deadlines
        deadline = deadlines.get(options.title, deadlines.get(name, deadline))
        made = _Registration(hook, name, deadline, patient, options)
        made.add_to(self._trial, self.owner)  # fail here, where the author sees the line
        self.registered.append(options.title or name)
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
        """Add a tool: an async function (with `@tool` for details), or any `Tool` object.

        Also possible while turns run: the next turn sees it. `override`: replaces a built-in tool, if the
        operator allows it; otherwise the name is refused.
        """
        made = make_tool(tool) if isroutine(tool) else cast(Tool, tool)
        if isroutine(tool) and not made.spec.description.strip():
            why = "it has no description: add a docstring that tells the model when to use it"
            raise PluginError(self.name, f"the tool {made.spec.name}", why)
        override = override and self._standing.may_override
        self._offer(ToolContribution(self.owner, made, toolset or self.name, available, override))

    def drop_tool(self, name: str) -> bool:
        """Remove a tool; running turns keep it."""
        early = self._early[1]
        mine = [each for each in early if isinstance(each, ToolContribution) and each.name == name]
        early[:] = [each for each in early if each not in mine]
        return self._contributions.remove_one(self.owner, ToolContribution, name) or bool(mine)

    def command(self, name: str, act: CommandHandler, *, help: str = "", hint: str = "") -> None:
        """Add the command `/name` in every front end, also while a turn runs."""
        offer = CommandContribution(self.owner, name.removeprefix("/").lower(), act, help, hint)
        self._contributions.check(offer)
        try:
            signature(act).bind("", None)
        except TypeError as error:
            why = f"it is called with two arguments, the text after it and the message: {error}"
            raise PluginError(self.name, f"/{offer.name}", why) from error
        self._offer(offer)

    def cli(
        self, name: str, help: str, prepare: Callable[[Any], None], run: Callable[[Any], int | None] | None = None
    ) -> None:
        """Add the command line command `alipes NAME`."""
        self._offer(CliContribution(self.owner, name, help, prepare, run))

    def skill(self, name: str, path: Path | str, description: str = "") -> None:
        """Add a text file that the model can read when it needs it."""
        self._offer(SkillContribution(self.owner, name, str(path), description))

    def provide(self, kind: str, name: str, thing: object) -> None:
        """Provide something that alipes looks up by kind and name, such as a `platform`."""
        self._offer(ProviderContribution(self.owner, kind, name, thing))

    def publish(self) -> None:
        """For the loader: activate everything registered so far. If anything is refused, nothing is
        activated."""
        hooks, offers = self._early
        for offer in offers:
            self._contributions.check(offer)
        for offer in offers:
            self._contributions.add(offer)
        for made in hooks:
            made.add_to(self._hooks, self.owner)
        self._live, self._early = True, ([], [])

    def _offer(self, offer: Contribution) -> None:
        if self._live:
            self._contributions.add(offer)
        else:
            self._contributions.check(offer)
            self._early[1].append(offer)


def hook_names() -> tuple[str, ...]:
    """The names of all hooks in `specs`."""
    return tuple(name for name in vars(specs) if hook_parameters(name) is not None)


class PluginScope(Protocol):
    """What one plugin has open. Created and closed by the loader."""

    @property
    def clients(self) -> "ClientScope": ...

    @property
    def stack(self) -> AsyncExitStack: ...

    def run(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]: ...
