"""`toolsets`: which tools belong together, as plugins ask for it. It offers no tool to anyone."""

from collections.abc import Iterable
from typing import Any

from alipes.compat.hermes.names.bound import bridge, is_bound

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
        return self[name] if name in self else default  # noqa: SIM401 (it would call itself)


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
