"""Which tools a turn has: by the settings, the platform, what a person chose in the conversation, and what works."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.config.settings import Settings
from alipes.config.tools import select_tools
from alipes.kernel.ports import Tool
from alipes.kernel.turns import Turn
from alipes.plugins.owner import CORE
from alipes.plugins.registry import Contributions
from alipes.store.sql.conversations import ToolChoiceStore
from alipes.tools.clarify import Clarify
from alipes.tools.send_file import NO_CHATS, SendFileTool

INTERACTIVE_TOOLS = (Clarify.spec.name,)
"""Tools that need a person: turns that work for others do not have them."""
FindUnavailable: TypeAlias = Callable[[], Awaitable[dict[str, str]]]
"""The tools that cannot be used now, and why."""


class ToolState(Struct, frozen=True):
    name: str
    group: str
    """`core`, `mcp__NAME`, or the toolset of a plugin."""
    effect: Literal["read", "write"]
    state: Literal["on", "off", "off here", "unavailable"]
    """`off`: by a setting. `off here`: a person switched it off in this conversation."""
    reason: str = ""


class ToolAccess:
    """Chooses the tools of turns, and explains the choice."""

    def __init__(
        self,
        settings: Settings,
        contributions: Contributions,
        choices: ToolChoiceStore,
        find_unavailable: FindUnavailable,
    ) -> None:
        self._settings, self._contributions, self._choices = settings, contributions, choices
        self.find_unavailable = find_unavailable
        self._hidden: list[Callable[[Turn], Iterable[str]]] = []

    def add_hidden(self, find: Callable[[Turn], Iterable[str]]) -> None:
        """`find(turn)`: tools that the turn must not see, as they belong to other conversations."""
        self._hidden.append(find)

    async def off_in_conversation(self, turn: Turn) -> tuple[str, ...]:
        """What a person switched off in the conversation; a subagent has the choice of the one it works for."""
        origin = turn.inbound.origin
        return turn.tools_off if origin is None else await self._choices.read(origin.session)

    def select(self, turn: Turn, unavailable: Iterable[str], off: Iterable[str]) -> Mapping[str, Tool]:
        """The tools of the turn. `off`: see `off_in_conversation`."""
        origin, only = turn.inbound.origin, turn.inbound.only
        place = origin.address if origin is not None else turn.inbound.address
        left_out = {
            *unavailable,
            *(name for find in self._hidden for name in find(turn)),
            *(INTERACTIVE_TOOLS if origin is not None else ()),
        }
        if origin is not None or place.platform in NO_CHATS:
            left_out.add(SendFileTool.spec.name)
        groups = self._contributions.groups()
        left_out |= self._settings.tools.find_off(place.platform, groups).keys()
        left_out.update(select_tools(off, groups))
        tools = self._contributions.tools(self._settings.toolsets.get(place.platform), without=left_out)
        return tools if only is None else {name: tool for name, tool in tools.items() if name in only}

    def deferrable(self, tools: Iterable[str]) -> dict[str, str]:
        """Those of `tools` that may be left to `tool_search`, with their groups: not the built-in ones."""
        groups = self._contributions.groups()
        return {name: groups[name] for name in tools if groups.get(name, CORE.name) != CORE.name}

    async def list_states(self, platform: str, session: str = "") -> list[ToolState]:
        """All tools with their state on a platform, in a conversation if there is one."""
        settings, groups = self._settings, self._contributions.groups()
        unavailable = await self.find_unavailable()
        if platform in NO_CHATS:
            unavailable.setdefault(SendFileTool.spec.name, "There is no chat here to send files to.")
        off = settings.tools.find_off(platform, groups)
        chosen = {*select_tools(await self._choices.read(session), groups)} if session else set()
        tools = self._contributions.tools()
        listed = self._contributions.tools(settings.toolsets.get(platform))
        states = []
        for name, group in groups.items():
            state: tuple[Literal["on", "off", "off here", "unavailable"], str] = ("on", "")
            if name in off:
                state = "off", f"{off[name]} in config.toml lists it."
            elif name not in listed:
                state = "off", f"toolsets.{platform} in config.toml does not list it."
            elif name in chosen:
                state = "off here", "Switched off in this conversation."
            elif name in unavailable:
                state = "unavailable", unavailable[name]
            states.append(ToolState(name, group, tools[name].spec.effect, *state))
        return states
