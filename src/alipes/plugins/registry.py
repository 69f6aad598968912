"""What plugins add to the house: tools, commands, skills, platforms, each with its owner. It runs none."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from alipes.kernel.errors import PluginError, ToolError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, Output, Tool, ToolSpec
from alipes.kernel.turns import Inbound
from alipes.plugins.attribution import done_by
from alipes.plugins.dispatch import guard
from alipes.plugins.owner import CORE, Owner

CommandAct: TypeAlias = Callable[[str, Inbound], Awaitable[str | None]]
"""Given what follows the name, and the message it came as; what it returns is shown."""
CHECKING = 5.0
"""Seconds in which a tool must say whether it is available."""
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COMMAND = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class ToolOffer(Struct, frozen=True):
    owner: Owner
    tool: Tool
    toolset: str
    available: Callable[[], bool] | None = None
    """Asked at the start of each turn, in a thread; a tool that is not available is not shown."""
    override: bool = False
    """It stands in for a tool of the house's of the same name."""

    @property
    def name(self) -> str:
        return self.tool.spec.name


class CommandOffer(Struct, frozen=True):
    owner: Owner
    name: str
    """Without the slash."""
    act: CommandAct
    help: str = ""
    hint: str = ""


class CliOffer(Struct, frozen=True):
    """`alipes NAME ...`: `prepare` adds arguments to an argparse parser, `run` gets what was parsed."""

    owner: Owner
    name: str
    help: str
    prepare: Callable[[Any], None]
    run: Callable[[Any], int | None] | None = None


class SkillOffer(Struct, frozen=True):
    owner: Owner
    name: str
    path: str
    """Of a text file that the model reads when it needs it."""
    description: str = ""


class ProviderOffer(Struct, frozen=True):
    """Something of a kind that the house asks for by name: a platform, a voice, a maker of images."""

    owner: Owner
    kind: str
    name: str
    thing: Any


Offer: TypeAlias = ToolOffer | CommandOffer | CliOffer | SkillOffer | ProviderOffer
O = TypeVar("O", ToolOffer, CommandOffer, CliOffer, SkillOffer, ProviderOffer)  # noqa: E741


class Offers:
    """All that is offered now. A turn keeps the tools it began with."""

    def __init__(self, reserved: Callable[[], Iterable[str]] = tuple) -> None:
        """`reserved()`: names of commands that no plugin may take."""
        self._reserved = reserved
        self._offers: dict[tuple[type, str], Offer] = {}
        self._built_in: dict[str, Tool] = {}

    def build_in(self, *tools: Tool) -> None:
        """The house's own tools; a plugin's of the same name needs `override`."""
        self._built_in.update((tool.spec.name, tool) for tool in tools)

    def check(self, offer: Offer) -> None:
        """Refuse, in the plugin's name, what nobody could use, and what is somebody else's already."""
        match offer:
            case CommandOffer(name=name) if not _COMMAND.fullmatch(name):
                raise _refused(offer, "a command has small letters, digits, - and _, and at most 32 of them")
            case CommandOffer(name=name) if name in self._reserved():
                raise _refused(offer, "the house has this command already")
            case ToolOffer(name=name) if not _TOOL.fullmatch(name):
                raise _refused(offer, "a tool's name has letters, digits, _ and -, and at most 64 of them")
            case ToolOffer(name=name, override=False) if name in self._built_in:
                raise _refused(
                    offer,
                    "the house has this tool already; to replace it the plugin says override, and you allow "
                    f"it with allow_tool_override = true in [plugins.entries.{offer.owner.name}]",
                )
        held = self._offers.get(_key(offer))
        if held is not None and held.owner.name != offer.owner.name and not held.owner.off:
            raise _refused(offer, f"plugin {held.owner.name} has this {_what(offer)} already")

    def add(self, offer: Offer) -> None:
        """Offer it, if `check` lets it pass. An owner may offer the same name again: the latest counts."""
        self.check(offer)
        self._offers[_key(offer)] = offer

    def drop(self, owner: Owner, kind: type[Offer], name: str) -> bool:
        """Take one offer back; False if the owner has no such."""
        held = self._offers.get((kind, name))
        if held is None or held.owner is not owner:
            return False
        del self._offers[kind, name]
        return True

    def remove(self, owner: Owner) -> None:
        """Take back all that it offered."""
        self._offers = {key: offer for key, offer in self._offers.items() if offer.owner is not owner}

    def all(self, kind: type[O]) -> tuple[O, ...]:
        return tuple(each for each in self._offers.values() if isinstance(each, kind) and not each.owner.off)

    def of(self, owner: Owner) -> tuple[Offer, ...]:
        """What one plugin offers, of every kind."""
        return tuple(each for each in self._offers.values() if each.owner is owner)

    def find(self, kind: type[O], name: str) -> O | None:
        held = self._offers.get((kind, name))
        return held if isinstance(held, kind) and not held.owner.off else None

    def tools(self, toolsets: Iterable[str] | None = None, without: Iterable[str] = ()) -> Mapping[str, Tool]:
        """By name, what a turn that begins now may use, except `without`.

        `toolsets` narrows it: to these, `core` being the house's own, and to tools by their name.
        """
        wanted, left_out = None if toolsets is None else {*toolsets}, {*without}

        def fits(name: str, toolset: str) -> bool:
            return name not in left_out and (wanted is None or not wanted.isdisjoint((name, toolset)))

        tools = {name: tool for name, tool in self._built_in.items() if fits(name, CORE.name)}
        for offer in self.all(ToolOffer):
            if offer.override:
                tools.pop(offer.name, None)
            if fits(offer.name, offer.toolset) or (offer.override and fits(offer.name, CORE.name)):
                tools[offer.name] = _Lent(offer)
        return tools

    async def unavailable(self) -> frozenset[str]:
        """The tools that say they cannot be used now; one that fails to say so counts among them."""
        asked = [offer for offer in self.all(ToolOffer) if offer.available is not None]
        if not asked:
            return frozenset()
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(_available(offer)) for offer in asked]
        return frozenset(offer.name for offer, at in zip(asked, answers, strict=True) if not at.result())


class _Lent:
    """A plugin's tool as a turn has it: what it does is the plugin's doing."""

    def __init__(self, offer: ToolOffer) -> None:
        self._offer = offer

    @property
    def spec(self) -> ToolSpec:
        return self._offer.tool.spec

    async def run(self, args: Mapping[str, Json], act: Act) -> str | Output:
        owner = self._offer.owner
        if owner.off:
            raise ToolError(f"not run: the plugin {owner.name} is {owner.why}")
        return await done_by(owner, f"the tool {self._offer.name}", self._run(args, act))

    async def _run(self, args: Mapping[str, Json], act: Act) -> str | Output:
        return await self._offer.tool.run(args, act)


async def _available(offer: ToolOffer) -> bool:
    assert offer.available is not None
    what = f"whether {offer.name} is available"
    try:
        return bool(await guard(offer.owner, what, asyncio.to_thread(offer.available), deadline=CHECKING))
    except PluginError:
        return False


def _refused(offer: Offer, why: str) -> PluginError:
    name = f"/{offer.name}" if isinstance(offer, CommandOffer) else offer.name
    return PluginError(offer.owner.name, name, why)


def _what(offer: Offer) -> str:
    return (
        offer.kind if isinstance(offer, ProviderOffer) else type(offer).__name__.removesuffix("Offer").lower()
    )


def _key(offer: Offer) -> tuple[type, str]:
    name = f"{offer.kind}:{offer.name}" if isinstance(offer, ProviderOffer) else offer.name
    return type(offer), name
