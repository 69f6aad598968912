"""Tools of Hermes plugins, as the house runs tools: async ones on the loop, plain ones in a worker thread."""

import inspect
import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from alipes.compat.hermes.bridge import Bridge, Outcome
from alipes.compat.hermes.call import Beside, Fit
from alipes.compat.hermes.state import ToolEntry
from alipes.kernel.errors import PluginError
from alipes.kernel.messages import Json
from alipes.kernel.ports import Act, Output, ToolSpec
from alipes.plugins.attribution import on_behalf_of
from alipes.plugins.context import Context

log = logging.getLogger(__name__)


def offer(bridge: Bridge, context: Context, entry: ToolEntry) -> bool:
    """Offer the tool, from any thread; the next turn sees it. False, and a word in the log: it is refused."""
    tool = HermesTool(bridge, entry)

    def add() -> None:
        context.tool(
            tool, toolset=entry.toolset, available=_available(bridge, entry), override=entry.override
        )
        bridge.tools[entry.name] = entry

    try:
        bridge.call(add)
    except PluginError as error:
        context.log.warning("%s", error)
        return False
    return True


def withdraw(bridge: Bridge, context: Context, name: str) -> bool:
    """Take a tool back, from any thread; turns that live keep it."""

    def drop() -> bool:
        held = bridge.tools.get(name)
        if held is not None and held.owner is context.owner:
            del bridge.tools[name]
        return context.drop_tool(name)

    return bridge.call(drop)


def _available(bridge: Bridge, entry: ToolEntry) -> Callable[[], bool] | None:
    """Asked at the start of each turn. A check that breaks is a no, and is told in the log."""
    check = entry.check_fn
    if check is None and not entry.requires_env:
        return None

    def available() -> bool:
        if not all(map(bridge.variable, entry.requires_env)):
            return False
        if check is None:
            return True
        outcome: Outcome[Any] = Outcome()
        with on_behalf_of(entry.owner):
            outcome.of(check)
        if error := outcome.future.exception():
            log.warning("plugin %s: the check of tool %s broke: %r", entry.owner.name, entry.name, error)
            return False
        return bool(outcome.future.result())

    return available


def spec_of(entry: ToolEntry) -> ToolSpec:
    """Its schema may be the bare one, the one with a name around it, or the one of a chat completion."""
    schema = entry.schema.get("function", entry.schema)
    parameters = schema.get("parameters") or schema.get("input_schema")
    if parameters is None:
        parameters = schema if schema.get("type") == "object" else {"type": "object", "properties": {}}
    description = schema.get("description") or entry.description
    return ToolSpec(entry.name, str(description), dict(parameters), entry.effect)


def reads_only(schema: Mapping[str, Any]) -> bool:
    """Does the schema say that the tool changes nothing?"""
    schema = schema.get("function", schema)
    hints = schema.get("annotations")
    return schema.get("effect") == "read" or (
        isinstance(hints, Mapping) and hints.get("readOnlyHint") is True
    )


class HermesTool:
    """A handler `fn(args, **keywords)` as a `Tool`."""

    def __init__(self, bridge: Bridge, entry: ToolEntry) -> None:
        self.spec = spec_of(entry)
        self._bridge, self._entry = bridge, entry
        self._fit = Fit(entry.handler)
        self._on_loop = entry.is_async or self._fit.is_async

    async def run(self, args: Mapping[str, Json], act: Act) -> str | Output:
        """When stopped, an async handler gets its `CancelledError` at once; what a plain one still gives is
        dropped."""
        turn = self._bridge.host.living()
        call = partial(
            self._fit,
            dict(args),
            task_id=act.session,
            session_id=act.session,
            tool_call_id=Beside(act.call_id),
            user_task=turn.inbound.text if turn else None,
        )
        with on_behalf_of(self._entry.owner):
            answer = call() if self._on_loop else await self._off_loop(call, act)
            return as_text(await answer if inspect.isawaitable(answer) else answer)

    async def _off_loop(self, call: Callable[[], Any], act: Act) -> Any:
        over = False

        def work() -> Any:
            try:
                return call()
            finally:
                if over:
                    log.warning(
                        "plugin %s: tool %s gave its result after call %s was over; it is dropped",
                        self._entry.owner.name,
                        self._entry.name,
                        act.call_id,
                    )

        try:
            return await self._bridge.off_loop(work)
        finally:
            over = True


def as_text(answer: Any) -> str | Output:
    """A text as it is, everything else as JSON."""
    if isinstance(answer, str | Output):
        return answer
    return json.dumps(answer, ensure_ascii=False, default=str)
