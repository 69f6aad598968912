"""`tools.registry` and `toolsets`: the tools of Hermes plugins and their groups."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from alipes.compat.hermes.modules.current_app import bridge, is_bound
from alipes.compat.hermes.state import ToolEntry
from alipes.compat.hermes.tools import is_read_only, register_tool, unregister_tool
from alipes.core import standalone
from alipes.features.all import FEATURES

log = logging.getLogger(__name__)
_OPTIONAL_FIELDS = ("check_fn", "is_async", "description", "emoji", "override")


class ToolRegistry:
    """The tools of Hermes plugins. Changes apply to the next turn."""

    def register(
        self, name: str, toolset: str, schema: dict[str, Any], handler: Callable[..., Any], **more: Any
    ) -> None:
        """Register a tool for the calling plugin or the owner of the handler.

        Further keywords: `check_fn, requires_env, is_async, description, emoji, override`; others are
        ignored.
        """
        current = bridge()
        context = current.context(handler)
        entry = ToolEntry(
            owner=context.owner,
            name=name,
            toolset=toolset,
            schema=schema,
            handler=handler,
            requires_env=tuple(more.get("requires_env") or ()),
            effect="read" if is_read_only(schema) else "write",
            **{each: more[each] for each in _OPTIONAL_FIELDS if more.get(each) is not None},
        )
        register_tool(current, context, entry)

    def deregister(self, name: str) -> None:
        """Remove the tool if it belongs to the calling plugin."""
        current = bridge()
        entry = current.tools.get(name)
        if entry is None:
            return
        context = current.context(entry.handler)
        if context.owner is not entry.owner:
            log.warning("plugin %s may not remove %s, a tool of %s", context.name, name, entry.owner.name)
            return
        unregister_tool(current, context, name)

    def get_entry(self, name: str) -> ToolEntry | None:
        return bridge().tools.get(name)

    def get_schema(self, name: str) -> dict[str, Any] | None:
        entry = self.get_entry(name)
        return None if entry is None else entry.schema

    def get_all_tool_names(self) -> list[str]:
        return sorted(bridge().tools)

    def dispatch(self, name: str, args: Mapping[str, Any], **_more: Any) -> str:
        """Run a tool and wait for it; only from a worker thread."""
        current, host = bridge(), bridge().host
        work = host.run_tool(name, args, turn=host.current_turn())
        return current.wait(current.context(), work).text


registry = ToolRegistry()


def tool_error(message: Any, **extra: Any) -> str:
    """The return value of a failed handler."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False, default=str)


def tool_result(data: Any = None, **fields: Any) -> str:
    """The return value of a handler: one value, or names and values."""
    return json.dumps(fields if data is None else data, ensure_ascii=False, default=str)


_SINGLE_TOOL_SETS = {
    "delegation": "delegate_task",
    "moa": "mixture_of_agents",
    "vision": "vision_analyze",
    "image_gen": "image_generate",
    "code_execution": "execute_code",
    "todo": "todo",
    "memory": "memory",
    "clarify": "clarify",
    "messaging": "send_file",
    "session_search": "session_search",
    "cronjob": "cronjob",
}
"""Toolsets with a single tool, by their Hermes names."""
_FEATURE_TOOLS = {feature.name: feature.tool_names for feature in FEATURES if feature.name != "agents"}
CORE_TOOLS = (*standalone.CORE_TOOLS, *(name for names in _FEATURE_TOOLS.values() for name in names))
"""The built-in tools."""
_HERMES_CORE_TOOLS = list(CORE_TOOLS)
_ALL = ("all", "*")


class Toolsets(dict[str, dict[str, Any]]):
    """Built-in toolsets, custom ones, and those named by the tools of plugins."""

    def __missing__(self, name: str) -> dict[str, Any]:
        tools = _plugin_tools(name)
        if not tools:
            raise KeyError(name)
        return _toolset("tools of a plugin", tools)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or bool(_plugin_tools(str(name)))

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401


def _plugin_tools(toolset: str) -> list[str]:
    tools = bridge().tools.values() if is_bound() else ()
    return [entry.name for entry in tools if entry.toolset == toolset]


def _toolset(description: str, tools: Iterable[str] = (), includes: Iterable[str] = ()) -> dict[str, Any]:
    return {"description": description, "tools": list(tools), "includes": list(includes)}


TOOLSETS = Toolsets()


def reset_toolsets() -> None:
    """Restore the built-in toolsets."""
    TOOLSETS.clear()
    TOOLSETS["core"] = _toolset("the built-in tools", CORE_TOOLS)
    TOOLSETS["terminal"] = _toolset("commands and processes", CORE_TOOLS[:2])
    TOOLSETS["file"] = _toolset("reading, writing and finding files", CORE_TOOLS[2:6])
    TOOLSETS["web"] = _toolset("searching the web and reading pages", _FEATURE_TOOLS["web_search"])
    TOOLSETS["skills"] = _toolset("reading and changing skills", _FEATURE_TOOLS["skills"])
    TOOLSETS["browser"] = _toolset("using web pages", _FEATURE_TOOLS["browser"])
    for name, tool in _SINGLE_TOOL_SETS.items():
        TOOLSETS[name] = _toolset(f"only {tool}", (tool,))
    TOOLSETS["hermes-cli"] = _toolset("everything, in the terminal", includes=["core"])
    _HERMES_CORE_TOOLS[:] = CORE_TOOLS


reset_toolsets()


def get_toolset(name: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = TOOLSETS.get(name)
    return found


def validate_toolset(name: str) -> bool:
    """True if the toolset exists."""
    return name in _ALL or name in TOOLSETS


def resolve_toolset(name: str, visited: set[str] | None = None) -> list[str]:
    """The tools of a toolset, including those of the sets it includes."""
    seen = set() if visited is None else visited
    if name in _ALL:
        return sorted({*CORE_TOOLS, *(bridge().tools if is_bound() else ())})
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
