"""Settings of tools: which ones are off, everywhere or on one platform."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Struct

from alipes.config.value_types import NAMES


class PlatformTools(Struct, frozen=True):
    off: Annotated[tuple[str, ...], NAMES, "Tools and groups that are off on one platform, by its name."] = ()
    on: Annotated[tuple[str, ...], NAMES, "Tools and groups that are on there although `tools.off` lists them."] = ()


class ToolsConfig(Struct, frozen=True):
    off: Annotated[
        tuple[str, ...],
        NAMES,
        "Tools that are off everywhere: names of tools, or groups such as `browser` (all `browser_...`), `mcp__NAME` "
        "(a server) or the toolset of a plugin. `/tools` lists them.",
    ] = ()
    platforms: dict[str, PlatformTools] = {}
    """By platform: `[tools.telegram]`."""

    def find_off(self, platform: str, groups: Mapping[str, str]) -> dict[str, str]:
        """The tools that are off on a platform, and the setting that says so. `groups`: all tools and their groups."""
        here = self.platforms.get(platform, PlatformTools())
        off = dict.fromkeys(select_tools(self.off, groups), "tools.off")
        for name in select_tools(here.on, groups):
            off.pop(name, None)
        return off | dict.fromkeys(select_tools(here.off, groups), f"tools.{platform}.off")


def select_tools(names: Iterable[str], groups: Mapping[str, str]) -> tuple[str, ...]:
    """The tools that `names` mean, in the order of `groups`, which has the group of each tool.

    A name is that of a tool, of a group, or the start of names: `browser` means `browser_click` too.
    """
    wanted = {*names}
    if not wanted:
        return ()
    starts = tuple(f"{name}_" for name in wanted if name not in groups)
    return tuple(
        name
        for name, group in groups.items()
        if name in wanted or group in wanted - groups.keys() or (starts and name.startswith(starts))
    )
