"""What plugins contribute: tools, commands, skills, platforms, each with its owner."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from alipes.kernel.errors import PluginError, ToolError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json
from alipes.kernel.ports import MayBeUnavailable, Tool, ToolContext, ToolOutput, ToolSpec
from alipes.kernel.turns import Inbound
from alipes.plugins.dispatch import guard
from alipes.plugins.interruption.attribution import run_as
from alipes.plugins.owner import CORE, PluginOwner

CommandHandler: TypeAlias = Callable[[str, Inbound], Awaitable[str | None]]
"""Called with the arguments and the message; the returned text is shown."""
AVAILABILITY_TIMEOUT = 5.0
"""Seconds within which a tool must say whether it is available."""
_TOOL = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")
_SERVER = lazy_pattern(r"mcp__.+?(?=__)")
_COMMAND = lazy_pattern(r"[a-z0-9][a-z0-9_-]{0,31}")


class ToolContribution(Struct, frozen=True):
    owner: PluginOwner
    tool: Tool
    toolset: str
    available: Callable[[], bool] | None = None
    """Called at the start of each turn, in a thread; an unavailable tool is not listed."""
    override: bool = False
    """It replaces the built-in tool of the same name."""

    @property
    def name(self) -> str:
        return self.tool.spec.name


class CommandContribution(Struct, frozen=True):
    owner: PluginOwner
    name: str
    """Without the slash."""
    act: CommandHandler
    help: str = ""
    hint: str = ""


class CliContribution(Struct, frozen=True):
    """`alipes NAME ...`: `prepare` adds arguments to an argparse parser, `run` gets the parsed result."""

    owner: PluginOwner
    name: str
    help: str
    prepare: Callable[[Any], None]
    run: Callable[[Any], int | None] | None = None


class SkillContribution(Struct, frozen=True):
    owner: PluginOwner
    name: str
    path: str
    """A text file that the model reads when it needs it."""
    description: str = ""


class PromptTemplate(Struct, frozen=True):
    """A command that sends a prepared prompt, from a Markdown file."""

    name: str
    """Without the slash, such as `git:review` for `git/review.md`."""
    path: str
    text: str
    description: str = ""
    hint: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    """The tools it may use; None: all."""
    project: bool = False
    """It belongs to the project, so its text may be a stranger's."""
    fill: Callable[[str], Awaitable[str]] | None = None
    """Makes the prompt from the arguments, instead of `text`."""
    origin: str = ""
    """Where its text comes from, if that is a stranger, such as an MCP server."""
    skill: str = ""
    """The name of the skill whose text it sends."""


class ProviderContribution(Struct, frozen=True):
    """Something that alipes looks up by kind and name: a platform, a voice, an image generator."""

    owner: PluginOwner
    kind: str
    name: str
    thing: Any


Contribution: TypeAlias = (
    ToolContribution | CommandContribution | CliContribution | SkillContribution | ProviderContribution
)
Kind = TypeVar("Kind", ToolContribution, CommandContribution, CliContribution, SkillContribution, ProviderContribution)


class Contributions:
    """All current contributions. A turn keeps the tools it started with."""

    def __init__(
        self,
        commands: Callable[[], Iterable[Any]] = tuple,
        templates: Callable[[], Mapping[str, PromptTemplate]] = dict,
    ) -> None:
        """`commands()`: see `add_commands`. `templates()`: the current templates by name."""
        self._template_sources = [templates]
        self._load_commands = [commands]
        self._commands: dict[str, Any] = {}
        self._contributions: dict[tuple[type, str], Contribution] = {}
        self._built_in: dict[str, Tool] = {}
        self._sources: dict[str, Callable[[], Mapping[str, Tool]]] = {}
        self._why_unavailable: dict[str, Callable[[], str]] = {}
        self.commands_off: dict[str, str] = {}
        """Commands of plugins that are off, and the plugin: they are not for the model."""

    def add_builtin(self, *tools: Tool, why_unavailable: Callable[[], str] | None = None) -> None:
        """Add built-in tools; a plugin's tool of the same name needs `override`.

        `why_unavailable`: as in `MayBeUnavailable`, for tools that do not say it themselves.
        """
        for tool in tools:
            self._built_in[tool.spec.name] = tool
            ask = tool.why_unavailable if isinstance(tool, MayBeUnavailable) else why_unavailable
            if ask is not None:
                self._why_unavailable[tool.spec.name] = ask

    def add_commands(self, load: Callable[[], Iterable[Any]]) -> None:
        """Add slash commands of alipes itself; `load()` imports them, when one is first needed."""
        self._load_commands.append(load)

    def builtin_commands(self) -> Mapping[str, Any]:
        """The slash commands of alipes itself by name; plugins may not use these names."""
        while self._load_commands:
            self._commands |= {command.name: command for command in self._load_commands.pop(0)()}
        return self._commands

    def add_source(self, toolset: str, list_tools: Callable[[], Mapping[str, Tool]]) -> None:
        """Add tools that may change from turn to turn; `list_tools()` returns the current ones and must be fast."""
        self._sources[toolset] = list_tools

    def check(self, offer: Contribution) -> None:
        """Raise PluginError for an invalid name, or one that is already taken."""
        match offer:
            case CommandContribution(name=name) if not _COMMAND.fullmatch(name):
                raise _refuse(offer, "a command name may have only lower-case letters, digits, - and _, at most 32")
            case CommandContribution(name=name) if name in self.builtin_commands():
                raise _refuse(offer, "this command name is built in")
            case ToolContribution(name=name) if not _TOOL.fullmatch(name):
                raise _refuse(offer, "a tool name may have only letters, digits, _ and -, at most 64")
            case ToolContribution(name=name, override=False) if name in self._built_in:
                raise _refuse(
                    offer,
                    "this tool is built in; to replace it, the plugin must set override and you must allow "
                    f"it with allow_tool_override = true in [plugins.entries.{offer.owner.name}]",
                )
        held = self._contributions.get(_key(offer))
        if held is not None and held.owner.name != offer.owner.name and not held.owner.disabled:
            raise _refuse(offer, f"plugin {held.owner.name} has this {_noun(offer)} already")

    def add(self, offer: Contribution) -> None:
        """Add it after `check`. An owner may add the same name again: the latest wins."""
        self.check(offer)
        self._contributions[_key(offer)] = offer
        if isinstance(offer, CommandContribution):
            self.commands_off.pop(offer.name, None)

    def remove_one(self, owner: PluginOwner, kind: type[Contribution], name: str) -> bool:
        """Remove one contribution; False if the owner has none of that name."""
        held = self._contributions.get((kind, name))
        if held is None or held.owner is not owner:
            return False
        del self._contributions[kind, name]
        return True

    def remove(self, owner: PluginOwner) -> None:
        """Remove everything the owner contributed."""
        commands = (each for each in self.by_owner(owner) if isinstance(each, CommandContribution))
        self.commands_off |= {each.name: owner.name for each in commands}
        self._contributions = {key: offer for key, offer in self._contributions.items() if offer.owner is not owner}

    def all(self, kind: type[Kind]) -> tuple[Kind, ...]:
        return tuple(
            each for each in self._contributions.values() if isinstance(each, kind) and not each.owner.disabled
        )

    def add_templates(self, load: Callable[[], Mapping[str, PromptTemplate]]) -> None:
        """Add templates of alipes itself; those that were added before win. `load()` must be fast."""
        self._template_sources.append(load)

    def _templates(self) -> Mapping[str, PromptTemplate]:
        return {name: each for load in reversed(self._template_sources) for name, each in load().items()}

    def templates(self) -> tuple[PromptTemplate, ...]:
        """The templates, without those that are only found by their full name."""
        return tuple(each for name, each in self._templates().items() if each.name == name)

    def find_template(self, name: str) -> PromptTemplate | None:
        return self._templates().get(name)

    def providers(self, kind: str) -> tuple[ProviderContribution, ...]:
        """The providers of a kind, available or not, in the order of their plugins."""
        return tuple(each for each in self.all(ProviderContribution) if each.kind == kind)

    def by_owner(self, owner: PluginOwner) -> tuple[Contribution, ...]:
        """Everything one plugin contributes."""
        return tuple(each for each in self._contributions.values() if each.owner is owner)

    def find(self, kind: type[Kind], name: str) -> Kind | None:
        held = self._contributions.get((kind, name))
        return held if isinstance(held, kind) and not held.owner.disabled else None

    def groups(self) -> dict[str, str]:
        """All tools, available or not, and their groups: `core`, `mcp__NAME` (a server), or the toolset of a plugin."""
        groups = dict.fromkeys(self._built_in, CORE.name)
        for toolset, list_tools in self._sources.items():
            groups |= dict.fromkeys(list_tools(), toolset)
        groups |= {offer.name: offer.toolset for offer in self.all(ToolContribution)}
        return {name: _server_group(name) or group for name, group in groups.items()}

    def tools(self, toolsets: Iterable[str] | None = None, without: Iterable[str] = ()) -> Mapping[str, Tool]:
        """By name, the tools of a turn that starts now, except `without`.

        `toolsets` limits them: to these toolsets (`core`: the built-in tools) and to tools named
        individually.
        """
        wanted, left_out = None if toolsets is None else {*toolsets}, {*without}

        def fits(name: str, toolset: str) -> bool:
            return name not in left_out and (wanted is None or not wanted.isdisjoint((name, toolset)))

        tools = {name: tool for name, tool in self._built_in.items() if fits(name, CORE.name)}
        for toolset, list_tools in self._sources.items():
            tools |= {name: tool for name, tool in list_tools().items() if fits(name, toolset)}
        for offer in self.all(ToolContribution):
            if offer.override:
                tools.pop(offer.name, None)
            if fits(offer.name, offer.toolset) or (offer.override and fits(offer.name, CORE.name)):
                tools[offer.name] = _PluginTool(offer)
        return tools

    async def unavailable(self) -> dict[str, str]:
        """The tools that are unavailable now, and why; one that fails to answer counts as unavailable."""
        reasons = {name: why for name, ask in self._why_unavailable.items() if (why := ask())}
        asked = [offer for offer in self.all(ToolContribution) if offer.available is not None]
        if not asked:
            return reasons
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(_available(offer)) for offer in asked]
        off = (offer for offer, at in zip(asked, answers, strict=True) if not at.result())
        return reasons | {offer.name: f"The plugin {offer.owner.name} says that it is not available." for offer in off}


class _PluginTool:
    """A plugin's tool as a turn uses it: it runs on the plugin's behalf."""

    def __init__(self, offer: ToolContribution) -> None:
        self._offer = offer

    @property
    def spec(self) -> ToolSpec:
        return self._offer.tool.spec

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        owner = self._offer.owner
        if owner.disabled:
            raise ToolError(f"not run: the plugin {owner.name} is {owner.disabled_reason}")
        return await run_as(owner, f"the tool {self._offer.name}", self._run(args, act))

    async def _run(self, args: Mapping[str, Json], act: ToolContext) -> str | ToolOutput:
        return await self._offer.tool.run(args, act)


@lru_cache(maxsize=1024)
def _server_group(name: str) -> str:
    """`mcp__NAME` for a tool of the MCP server NAME; else empty."""
    found = _SERVER.match(name)
    return found[0] if found else ""


async def _available(offer: ToolContribution) -> bool:
    assert offer.available is not None
    what = f"availability of {offer.name}"
    try:
        return bool(await guard(offer.owner, what, asyncio.to_thread(offer.available), deadline=AVAILABILITY_TIMEOUT))
    except PluginError:
        return False


def _refuse(offer: Contribution, why: str) -> PluginError:
    name = f"/{offer.name}" if isinstance(offer, CommandContribution) else offer.name
    return PluginError(offer.owner.name, name, why)


def _noun(offer: Contribution) -> str:
    return (
        offer.kind
        if isinstance(offer, ProviderContribution)
        else type(offer).__name__.removesuffix("Contribution").lower()
    )


def _key(offer: Contribution) -> tuple[type, str]:
    name = f"{offer.kind}:{offer.name}" if isinstance(offer, ProviderContribution) else offer.name
    return type(offer), name
