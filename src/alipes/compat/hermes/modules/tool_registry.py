"""`toolsets`: which tools belong together, as plugins ask for it. It offers no tool to anyone."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from alipes.compat.hermes.modules.current_app import bridge, is_bound
from alipes.compat.hermes.state import ToolEntry
from alipes.compat.hermes.tools import offer, reads_only, withdraw

log = logging.getLogger(__name__)
_MORE = ("check_fn", "is_async", "description", "emoji", "override")


class ToolRegistry:
    """The tools of Hermes plugins. What is changed here reaches the next turn."""

    def register(
        self, name: str, toolset: str, schema: dict[str, Any], handler: Callable[..., Any], **more: Any
    ) -> None:
        """Offer a tool, in the name of the plugin whose code calls or whose the handler is.

        Beside the first four: `check_fn, requires_env, is_async, description, emoji, override`; what else
        is given says nothing here.
        """
        house = bridge()
        context = house.context(handler)
        entry = ToolEntry(
            owner=context.owner,
            name=name,
            toolset=toolset,
            schema=schema,
            handler=handler,
            requires_env=tuple(more.get("requires_env") or ()),
            effect="read" if reads_only(schema) else "write",
            **{each: more[each] for each in _MORE if more.get(each) is not None},
        )
        offer(house, context, entry)

    def deregister(self, name: str) -> None:
        """Take it back; no other plugin's, and none that is not there."""
        house = bridge()
        entry = house.tools.get(name)
        if entry is None:
            return
        context = house.context(entry.handler)
        if context.owner is not entry.owner:
            log.warning("plugin %s may not remove %s, a tool of %s", context.name, name, entry.owner.name)
            return
        withdraw(house, context, name)

    def get_entry(self, name: str) -> ToolEntry | None:
        return bridge().tools.get(name)

    def get_schema(self, name: str) -> dict[str, Any] | None:
        entry = self.get_entry(name)
        return None if entry is None else entry.schema

    def get_all_tool_names(self) -> list[str]:
        return sorted(bridge().tools)

    def dispatch(self, name: str, args: Mapping[str, Any], **_more: Any) -> str:
        """Run a tool as the model would, and wait for it: from a worker thread only."""
        house = bridge()
        result = house.wait(house.context(), house.host.use(name, args, turn=house.host.living()))
        return result.text


registry = ToolRegistry()


def tool_error(message: Any, **extra: Any) -> str:
    """What a handler returns when it failed."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False, default=str)


def tool_result(data: Any = None, **named: Any) -> str:
    """What a handler returns: one value, or names and values."""
    return json.dumps(named if data is None else data, ensure_ascii=False, default=str)


_ALONE = {
    "delegation": "delegate_task",
    "moa": "mixture_of_agents",
    "vision": "vision_analyze",
    "image_gen": "image_generate",
    "code_execution": "execute_code",
    "todo": "todo",
    "clarify": "clarify",
}
"""Toolsets of one tool, by the names that plugins know."""
CORE = ("terminal", "process", "read_file", "write_file", "patch", "search_files", *_ALONE.values())
"""The house's own tools."""
_HERMES_CORE_TOOLS = list(CORE)
_ALL = ("all", "*")


class Toolsets(dict[str, dict[str, Any]]):
    """Those of the house, those that plugins wrote in, and those that their tools name."""

    def __missing__(self, name: str) -> dict[str, Any]:
        tools = _of_plugins(name)
        if not tools:
            raise KeyError(name)
        return _toolset("tools of a plugin", tools)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or bool(_of_plugins(str(name)))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401


def _of_plugins(toolset: str) -> list[str]:
    tools = bridge().tools.values() if is_bound() else ()
    return [entry.name for entry in tools if entry.toolset == toolset]


def _toolset(description: str, tools: Iterable[str] = (), includes: Iterable[str] = ()) -> dict[str, Any]:
    return {"description": description, "tools": list(tools), "includes": list(includes)}


TOOLSETS = Toolsets()


def forget() -> None:
    """As it was before plugins wrote into it."""
    TOOLSETS.clear()
    TOOLSETS["core"] = _toolset("the house's own tools", CORE)
    TOOLSETS["terminal"] = _toolset("commands and processes", CORE[:2])
    TOOLSETS["file"] = _toolset("reading, writing and finding files", CORE[2:6])
    for name, tool in _ALONE.items():
        TOOLSETS[name] = _toolset(f"{tool}, alone", (tool,))
    TOOLSETS["hermes-cli"] = _toolset("everything, in the terminal", includes=["core"])
    _HERMES_CORE_TOOLS[:] = CORE


forget()


def get_toolset(name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = TOOLSETS.get(name)
    return found


def validate_toolset(name: str) -> bool:
    """Is there one of this name?"""
    return name in _ALL or name in TOOLSETS


def resolve_toolset(name: str, visited: set[str] | None = None) -> list[str]:
    """The tools of one, with those of the ones it includes."""
    seen = set() if visited is None else visited
    if name in _ALL:
        return sorted({*CORE, *(bridge().tools if is_bound() else ())})
    if name in seen or name not in TOOLSETS:
        return []
    seen.add(name)
    found = TOOLSETS[name]
    inner = [tool for each in found.get("includes", ()) for tool in resolve_toolset(each, seen)]
    return list(dict.fromkeys([*found.get("tools", ()), *inner]))


def create_custom_toolset(
    name: str, description: str, tools: Iterable[str] | None = None, includes: Iterable[str] | None = None
) -> None:
    TOOLSETS[name] = _toolset(description, tools or (), includes or ())
