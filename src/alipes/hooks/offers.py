"""What plugins add to the house: tools, commands, skills, platforms, each with its owner. It runs none."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from alipes.hooks.owners import CORE, Owner
from alipes.kernel.errors import PluginError
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Inbound

CommandAct: TypeAlias = Callable[[str, Inbound], Awaitable[str | None]]
"""Given what follows the name, and the message it came as; what it returns is shown."""


class ToolOffer(Struct, frozen=True):
    owner: Owner
    tool: Tool
    toolset: str
    available: Callable[[], bool] | None = None
    """Asked at the start of each turn; a tool that is not available is not shown to the model."""
    override: bool = False
    """It stands in for a tool of the same name."""

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

    def add(self, offer: Offer) -> None:
        """Refuses, in the plugin's name, what the house or another plugin has already.

        An owner may offer the same name again: the latest counts.
        """
        what, key = type(offer).__name__.removesuffix("Offer").lower(), _key(offer)
        if isinstance(offer, CommandOffer) and offer.name in self._reserved():
            raise PluginError(offer.owner.name, f"/{offer.name}", "the house has this command already")
        if isinstance(offer, ToolOffer) and offer.name in self._built_in and not offer.override:
            raise PluginError(
                offer.owner.name,
                offer.name,
                "the house has this tool already; to replace it the plugin says override, and you allow it "
                f"with allow_tool_override = true in [plugins.entries.{offer.owner.name}]",
            )
        held = self._offers.get(key)
        if held is not None and held.owner.name != offer.owner.name and not held.owner.off:
            raise PluginError(offer.owner.name, key[1], f"plugin {held.owner.name} has this {what} already")
        self._offers[key] = offer

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

    def find(self, kind: type[O], name: str) -> O | None:
        held = self._offers.get((kind, name))
        return held if isinstance(held, kind) and not held.owner.off else None

    def tools(self, toolsets: Iterable[str] | None = None) -> Mapping[str, Tool]:
        """By name, what a turn that begins now may use; `toolsets` narrows it, `core` is the house's own."""
        wanted = None if toolsets is None else set(toolsets)
        tools = dict(self._built_in) if wanted is None or CORE.name in wanted else {}
        for offer in self.all(ToolOffer):
            asked_for = wanted is None or offer.toolset in wanted
            if asked_for and (offer.available is None or offer.available()):
                tools[offer.name] = offer.tool
        return tools


def _key(offer: Offer) -> tuple[type, str]:
    name = f"{offer.kind}:{offer.name}" if isinstance(offer, ProviderOffer) else offer.name
    return type(offer), name
