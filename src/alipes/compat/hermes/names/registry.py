"""`tools.registry`: tools that plugins add and remove while they run, from any thread."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from alipes.compat.hermes.entries import ToolEntry
from alipes.compat.hermes.names.bound import bridge
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
